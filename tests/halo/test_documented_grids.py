"""Programs of docs/gangs.md and docs/halo.md: they run on any number of ranks, with equal results."""

import json
from pathlib import Path

import pytest

from tests.document_commands import ROOT, blocks
from tests.mpi import Mpi


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files of the pages."""
    folder = tmp_path_factory.mktemp("documented")
    for page in ("gangs.md", "halo.md"):
        for block in blocks((ROOT / "docs" / page).read_text()):
            if block.treatment == "file":
                (folder / block.note).write_text(block.text)
    return folder


@pytest.mark.parametrize("ranks", (1, 2, 4))
def test_the_glider_of_the_documentation_moves_by_a_cell_in_four_generations(
    mpi: Mpi, programs: Path, ranks: int
) -> None:
    printed = json.loads(mpi.python(ranks, programs / "life.py"))
    assert printed == {"alive": 5, "row": 25, "ranks": ranks}


@pytest.mark.parametrize("ranks", (1, 3))
def test_the_heat_of_the_documentation_is_conserved(mpi: Mpi, programs: Path, tmp_path: Path, ranks: int) -> None:
    mean = json.loads(mpi.python(ranks, programs / "heat.py"))["mean"]
    assert mean == 99.5  # of rows 0 to 199
    assert json.loads(mpi.run(ranks, mpi.compiled(programs / "heat.c", tmp_path / "heat"))) == {"mean": mean}


def test_the_checkpoint_of_the_documentation_goes_on_with_other_ranks(
    mpi: Mpi, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for step, ranks in enumerate((3, 1, 4), 1):
        assert json.loads(mpi.python(ranks, programs / "restart.py")) == {"step": step, "u": step, "ranks": ranks}
