"""The dataset heat: its program on ranks, against solutions that are known, and by the platform without a model."""

import json
from pathlib import Path
from typing import Any

import pytest

from datasets.catalogue import datasets
from tests.mpi import Mpi, prepared_mpi
from tests.system.platform_process import PlatformProcess

PROGRAM = datasets()["heat"].folder / "heat_stencil.py"
#: What the program takes its tasks from, here: a module of the same name.
TASKS = """
import json, sys
class Task:
    params = json.loads(sys.argv[1])
    def finish(self, **metrics):
        self.metrics = metrics
def tasks():
    task = Task()
    yield task
    from mpi4py import MPI
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(task.metrics))
"""
DEFAULTS = {"grid": 24, "steps": 100, "diffusivity": 1e-4, "courant": 0.125, "mode": 1, "weak": False}


@pytest.fixture(scope="module")
def mpi() -> Mpi:
    return prepared_mpi()


def computed(mpi: Mpi, folder: Path, ranks: int, **params: Any) -> dict[str, Any]:
    """Run the program by hand; return its metrics."""
    (folder / "windtunnel_program.py").write_text(TASKS)
    (folder / "heat.py").write_bytes(PROGRAM.read_bytes())
    printed = mpi.python(ranks, folder / "heat.py", json.dumps(DEFAULTS | params))
    metrics: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return metrics


@pytest.mark.parametrize("mode", [1, 3])
def test_the_grid_is_the_same_to_the_last_bit_on_any_number_of_ranks(mpi: Mpi, tmp_path: Path, mode: int) -> None:
    several = [computed(mpi, tmp_path, ranks, mode=mode) for ranks in (1, 2, 4)]
    assert len({(each["checksum"], each["error"], each["maximum"]) for each in several}) == 1
    assert [each["ranks"] for each in several] == [1, 2, 4]
    assert several[0]["rounding_error"] < 1e-13
    assert computed(mpi, tmp_path, 2, mode=mode, steps=101)["checksum"] != several[0]["checksum"]


def test_the_error_falls_with_the_square_of_the_cells(mpi: Mpi, tmp_path: Path) -> None:
    coarse = computed(mpi, tmp_path, 2, grid=15, steps=40)
    fine = computed(mpi, tmp_path, 2, grid=31, steps=160)  # half the side of a cell, the same simulated time
    assert fine["simulated"] == pytest.approx(coarse["simulated"])
    assert 3.5 < coarse["error"] / fine["error"] < 4.5


def test_for_weak_scaling_the_box_grows_with_the_ranks(mpi: Mpi, tmp_path: Path) -> None:
    one, two = (computed(mpi, tmp_path, ranks, weak=True, grid=16) for ranks in (1, 2))
    assert (one["cells"], two["cells"]) == (16**3, 2 * 16**3)
    assert one["rounding_error"] < 1e-13 and two["rounding_error"] < 1e-13


def test_a_sweep_needs_no_model_and_gives_the_same_on_any_number_of_ranks(platform: PlatformProcess) -> None:
    found = []
    for size in (1, 2):
        ended = platform.run(dataset="heat", sweep={"grid": [16, 24]}, gang={"size": size})
        assert ended["state"] == "succeeded", ended["reason"]
        results = platform.results(ended["id"])
        assert [result["status"] for result in results] == ["ok", "ok"], results
        assert [len(result["timing"]["ranks"]) for result in results] == [size, size]
        assert all(result["metrics"]["rounding_error"] < 1e-13 for result in results)
        found.append([result["metrics"]["checksum"] for result in results])
    assert found[0] == found[1] and len(set(found[0])) == 2
