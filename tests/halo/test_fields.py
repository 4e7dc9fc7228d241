"""Fields and their checkpoints on one to eight ranks (field_checks.py), and checkpoints without MPI."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halo import Decomposition, checkpoints
from tests.halo.test_decompositions import decompositions
from tests.mpi import Mpi

CHECKS = Path(__file__).parent / "field_checks.py"
RANKS = (1, 2, 3, 4, 8)


@pytest.mark.parametrize("ranks", RANKS)
def test_elements_of_all_types_and_components_keep_their_bytes(mpi: Mpi, ranks: int) -> None:
    mpi.python(ranks, CHECKS, "types")


@pytest.mark.parametrize("ranks", RANKS)
def test_fields_of_a_domain_are_exchanged_at_the_same_time(mpi: Mpi, ranks: int) -> None:
    mpi.python(ranks, CHECKS, "several")


@pytest.mark.parametrize("ranks", (1, 3))
def test_what_cannot_be_exchanged_is_refused_with_its_reason(mpi: Mpi, ranks: int) -> None:
    mpi.python(ranks, CHECKS, "refusals")


@pytest.mark.parametrize("saving", (1, 3, 8))
def test_a_checkpoint_is_loaded_by_any_number_of_ranks(mpi: Mpi, tmp_path: Path, saving: int) -> None:
    mpi.python(saving, CHECKS, "save", tmp_path)
    for ranks in RANKS:
        assert json.loads(mpi.python(ranks, CHECKS, "load", tmp_path)) == {"grid": [1, ranks]}


def saved(folder: str, decomposition: Decomposition) -> np.ndarray:
    """Save a field of a decomposition as its ranks do, and return the whole of it."""
    whole = np.random.default_rng(3).random((2, *decomposition.shape))
    for rank in range(decomposition.ranks):
        checkpoints.write_block(folder, "u", rank, whole[decomposition.block(rank).place])
    checkpoints.write_index(folder, decomposition, ["u"], {})
    return whole


@given(decompositions(), st.data())
def test_redistribution_is_the_identity(decomposition, data):
    with tempfile.TemporaryDirectory() as folder:
        whole = saved(folder, decomposition)
        grid = tuple(data.draw(st.integers(1, cells)) for cells in decomposition.shape)
        other = Decomposition.of(decomposition.shape, grid, 0)
        for rank in {0, other.ranks // 2, other.ranks - 1}:
            block = other.block(rank)
            assert np.array_equal(checkpoints.read(folder, "u", block.start, block.stop), whole[block.place])
        assert np.array_equal(checkpoints.read(folder, "u"), whole)


def test_a_checkpoint_that_was_not_finished_is_not_there(tmp_path):
    checkpoints.write_block(tmp_path, "u", 0, np.zeros(3))
    with pytest.raises(FileNotFoundError, match=r"index\.json"):
        checkpoints.read(tmp_path, "u")


def test_a_checkpoint_of_another_format_is_refused(tmp_path):
    (tmp_path / "index.json").write_text('{"format": 2, "more": 1}')
    with pytest.raises(ValueError, match="format 2; this version reads 1"):
        checkpoints.read(tmp_path, "u")


def test_cells_that_a_grid_has_not_are_refused(tmp_path):
    saved(str(tmp_path), Decomposition.of(8, 2))
    with pytest.raises(ValueError, match="no cells from"):
        checkpoints.read(tmp_path, "u", (8,), (9,))
