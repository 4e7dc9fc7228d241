"""Packages of a model's environment that have the names of other modules: they run in the sandbox, or not at all."""

import os
import shutil
from pathlib import Path

import pytest

from runtimes.harness import sandbox
from runtimes.harness.runner import processes
from tests.contracts.harness_processes import SITE, worker_spec


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A copy of the packages that a model server needs, in a folder that a sandbox's user may read."""
    site = tmp_path / "site"
    for name in ("numpy", "numpy.libs", "msgspec"):
        if (source := Path(SITE, name)).is_dir():
            shutil.copytree(source, site / name, ignore=shutil.ignore_patterns("tests", "__pycache__"))
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    return site


def started(site: Path) -> bytes:
    """Start a confined model server with this environment; return the first bytes of its answer, empty if it ended."""
    spec = worker_spec(model_server_site=str(site), sandbox=sandbox.level().number)
    server = processes.spawn_model_server(spec, "model_server")
    try:
        server.socket.settimeout(60)
        return server.socket.recv(4096)
    finally:
        server.socket.close()
        server.process.popen.kill()
        server.process.popen.wait()


def trace_of(trace: Path) -> str:
    """Return a module that shows by a file outside of the sandbox that it ran unconfined."""
    return (
        f"import os\ntry:\n    os.close(os.open({str(trace)!r}, os.O_CREAT | os.O_WRONLY))\nexcept OSError:\n    pass\n"
    )


@pytest.mark.parametrize("name", ["numpy", "msgspec"])
def test_a_package_with_the_name_of_one_that_the_harness_imports_runs_in_the_sandbox_only(
    site: Path, tmp_path: Path, name: str
) -> None:
    shutil.rmtree(site / name)
    (site / f"{name}.py").write_text(trace_of(tmp_path / "unconfined") + "raise SystemExit(3)\n")
    assert started(site) == b""
    assert not (tmp_path / "unconfined").exists()


@pytest.mark.parametrize(
    "name", ["json", "socket", "secrets", "ctypes", "dataclasses", "harness", "sitecustomize", "usercustomize", "site"]
)
def test_a_package_with_the_name_of_a_module_of_python_or_of_the_harness_replaces_none(
    site: Path, tmp_path: Path, name: str
) -> None:
    (site / f"{name}.py").write_text(trace_of(tmp_path / "unconfined") + "raise SystemExit(3)\n")
    assert b"hello" in started(site)
    assert not (tmp_path / "unconfined").exists()


def test_a_pth_file_of_a_package_runs_no_code(site: Path, tmp_path: Path) -> None:
    (site / "evil.pth").write_text(f"import os; os.open({str(tmp_path / 'unconfined')!r}, os.O_CREAT)\n")
    assert b"hello" in started(site)
    assert not (tmp_path / "unconfined").exists()
