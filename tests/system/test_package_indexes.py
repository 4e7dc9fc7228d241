"""A format whose packages come from the operator's index: TorchScript with a build of PyTorch for processors only."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import typing_extensions

from tests.cached import tool
from tests.contracts.package_index import PackageIndex
from tests.system.conftest import StartPlatform
from tests.system.platform_process import PlatformProcess, has_one_result_per_task

MODELS = Path(__file__).parents[1] / "simulators" / "torch_models.py"


@pytest.fixture
def wheel() -> Path:
    return Path(tool("debian-torch"))


@pytest.fixture
def model(wheel: Path, tmp_path: Path) -> bytes:
    """A module that Debian's PyTorch saved."""
    site, path = tmp_path / "site", tmp_path / "policy.pt"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    shutil.copy(typing_extensions.__file__, site)  # without numpy, which is of another version than this PyTorch needs
    command = [sys.executable, "-S", "-W", "ignore", MODELS, "script Linear", path]
    subprocess.run(command, check=True, env={"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1", "PATH": os.defpath})
    return path.read_bytes()


@pytest.fixture
def index(wheel: Path) -> Iterator[PackageIndex]:
    server = PackageIndex((wheel.name, wheel.read_bytes()))
    yield server
    server.close()


@pytest.fixture
def platform(index: PackageIndex, start_platform: StartPlatform) -> PlatformProcess:
    return start_platform(workers=2, package_indexes=f"{index.url},https://pypi.org/simple")


def test_torchscript_runs_with_the_pytorch_of_the_index_that_the_operator_put_first(
    platform: PlatformProcess, index: PackageIndex, model: bytes
) -> None:
    runtime = platform.http.get("/v1/runtimes/pytorch").json()
    assert {line for format in runtime["formats"] for line in format["requirements"]} == {"torch>=1.10", "torch>=2.5"}
    first = platform.run(model=model, filename="policy.pt", dataset="cartpole", scenarios={"range": [0, 10]})
    assert first["state"] == "succeeded", first
    results = platform.results(first["id"])
    assert has_one_result_per_task(results, 10)
    assert {result["metrics"]["outcome"] for result in results} == {"balanced"}
    lock = platform.http.get("/v1/models/policy/lock").text
    assert "torch==1.13.1" in lock and "nvidia" not in lock and "numpy==1." in lock
    record = platform.http.get("/v1/models/policy").json()
    assert record["dependencies"]["file"] == "the format torchscript"

    fetched = list(index.requests)
    again = platform.run(model=model, filename="policy.pt", dataset="cartpole", scenarios={"range": [0, 10]}, workers=1)
    assert platform.summary(again["id"])["results_digest"] == platform.summary(first["id"])["results_digest"]
    assert index.requests == fetched, "the kept environment is used"


def test_a_program_of_torch_export_says_that_the_index_has_no_pytorch_that_is_new_enough(
    platform: PlatformProcess, tmp_path: Path
) -> None:
    path = tmp_path / "policy.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("archive_format", "models/model.json"):
            archive.writestr(f"policy/{name}", "pt2")
    ended = platform.run(model=path.read_bytes(), filename="policy.pt2", dataset="cartpole")
    assert ended["state"] == "failed" and ended["tasks"]["done"] == 0
    assert "The dependencies in the format torch_export cannot be resolved." in ended["reason"], ended
    assert "only torch==1.13.1 is available" in ended["reason"], ended
