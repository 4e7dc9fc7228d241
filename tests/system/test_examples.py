"""Examples: each is run as its first lines say, on a platform, and does what it promises."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.platform_process import PlatformProcess

EXAMPLES = Path(__file__).parents[2] / "examples"
#: Seconds that an example may take.
LIMIT = 240


@pytest.fixture
def environ(platform: PlatformProcess, tmp_path: Path) -> dict[str, str]:
    """The environment of a user whose platform is the tests'."""
    own = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "MPLCONFIGDIR": str(tmp_path / "matplotlib")}
    return own | {"WINDTUNNEL_URL": platform.url, "LC_ALL": "C.UTF-8"}


def run(name: str, folder: Path, environ: dict[str, str]) -> str:
    """Run an example in a folder; return what it prints."""
    outcome = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return outcome.stdout


def test_the_controller_in_one_file_drives_better_than_full_throttle(platform: PlatformProcess) -> None:
    fields = {"dataset": "car_street", "scenarios": {"sample": 24, "seed": 3}}
    own = platform.run(model=(EXAMPLES / "controller.py").read_bytes(), **fields)
    other = platform.http.post("/v1/simulations", json={"model": "full_throttle", "runtime": "python", **fields}).json()
    platform.wait_for_end(other["id"])
    assert own["state"] == "succeeded" and own["tasks"]["failed"] == 0
    means = [platform.get(simulation["id"])["metrics"]["score"]["mean"] for simulation in (own, other)]
    assert means[0] > means[1] + 10, means


def test_the_trained_policy_balances_the_pole(tmp_path: Path, environ: dict[str, str]) -> None:
    output = run("trained_policy.py", tmp_path, environ)
    assert output.startswith("succeeded: mean return ")
    assert float(output.split("mean return ")[1].split()[0]) > 450


def test_the_sweep_draws_a_heat_map(tmp_path: Path, environ: dict[str, str]) -> None:
    output = run("sweep.py", tmp_path, environ)
    assert "signal_grid" in output and (tmp_path / "heat-map.png").read_bytes().startswith(b"\x89PNG")


def test_the_comparison_decides_between_two_models(tmp_path: Path, environ: dict[str, str]) -> None:
    output = run("comparison.py", tmp_path, environ)
    assert "controller" in output and "idm" in output and "scenarios" in output


def test_scenarios_of_one_s_own_are_registered_and_played(tmp_path: Path, environ: dict[str, str]) -> None:
    output = run("own_scenarios.py", tmp_path, environ)
    assert "tilted-poles@1: 4 scenarios" in output and "nearly falling" in output


def test_the_notebook_runs_from_its_first_cell_to_its_last(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    # Their imports take two seconds, which no process that merely collects tests needs.
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "clear the outputs before it is committed"
    NotebookClient(notebook, timeout=LIMIT, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert {"image/png", "text/html"} <= kinds


def test_every_example_is_short_and_is_run_by_a_test() -> None:
    programs = sorted(path.name for path in EXAMPLES.glob("*.py"))
    assert len(programs) + len(list(EXAMPLES.glob("*.ipynb"))) == 7
    here = Path(__file__)
    text = here.read_text() + here.with_name("test_cluster_measures.py").read_text()
    for name in programs:
        assert name in text and len((EXAMPLES / name).read_text().splitlines()) <= 60, name
