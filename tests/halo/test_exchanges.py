"""Exchanges of halos beside computation, in Python and C, on one to eight ranks: what one process computes."""

from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tests.mpi import Mpi

HERE = Path(__file__).parent
RANKS = (1, 2, 3, 4, 8)
#: As in the programs.
STEPS, MODULUS, OUTSIDE = 2, 1_000_003, 5
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Case:
    shape: tuple[int, ...]
    width: tuple[int, ...]
    periodic: tuple[bool, ...]

    @property
    def line(self) -> str:
        return " ".join(str(int(number)) for number in (*self.shape, *self.width, *self.periodic))


#: Sizes that cannot be divided evenly, and are at least as wide as the halo on every rank.
SHAPES = {1: (29,), 2: (13, 11), 3: (10, 7, 9)}
CASES = [
    Case(SHAPES[dimensions], width, periodic)
    for dimensions in (1, 2, 3)
    for width in [*((width,) * dimensions for width in (1, 2, 3)), (2, 0, 3)[:dimensions], (0, 1, 2)[:dimensions]]
    for periodic in product((False, True), repeat=dimensions)
]


def padded(whole: Numbers, case: Case) -> Numbers:
    """Return the whole grid with a halo, one dimension after another, as `numpy.pad` makes it."""
    for dimension, (width, periodic) in enumerate(zip(case.width, case.periodic, strict=True)):
        widths = [(width, width) if other == dimension else (0, 0) for other in range(whole.ndim)]
        if periodic:
            whole = np.pad(whole, widths, mode="wrap")
        else:
            whole = np.pad(whole, widths, constant_values=OUTSIDE)
    return whole


def stepped(whole: Numbers, case: Case) -> Numbers:
    """Return the sums of all neighbourhoods, dimension by dimension, by rolling the padded grid."""
    total = padded(whole, case)
    for dimension, width in enumerate(case.width):
        total = np.sum([np.roll(total, shift, dimension) for shift in range(-width, width + 1)], axis=0)
    own = tuple(slice(width, length - width) for width, length in zip(case.width, total.shape, strict=True))
    return total[own] % MODULUS


def blocks(case: Case, grid: tuple[int, ...], rank: int) -> list[npt.NDArray[np.intp]]:
    """Return the numbers of a rank's cells in each dimension, as `numpy.array_split` divides them."""
    place = np.unravel_index(rank, grid)
    return [
        np.array_split(np.arange(cells), ranks)[part]
        for cells, ranks, part in zip(case.shape, grid, place, strict=True)
    ]


def check(case: Case, ranks: int, name: Path) -> None:
    """Compare what each rank has written with the grid that one process has computed."""
    before = np.arange(np.prod(case.shape)).reshape(case.shape)
    for _ in range(STEPS - 1):
        before = stepped(before, case)
    after = stepped(before, case)
    for rank in range(ranks):
        numbers = np.fromfile(f"{name}.{rank}", np.int64)
        grid = tuple(map(int, numbers[: len(case.shape)]))
        assert np.prod(grid) == ranks
        cells = blocks(case, grid, rank)
        with_halo = [np.arange(own[0], own[-1] + 1 + 2 * width) for own, width in zip(cells, case.width, strict=True)]
        expected = np.concatenate(
            [grid, padded(before, case)[np.ix_(*with_halo)].ravel(), after[np.ix_(*cells)].ravel()]
        )
        assert np.array_equal(numbers, expected), f"{case} on {ranks} ranks, rank {rank} of {grid}"


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    path = tmp_path / "cases"
    path.write_text("".join(f"{case.line}\n" for case in CASES))
    return path


@pytest.fixture(scope="module")
def program_in_c(mpi: Mpi, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mpi.compiled(HERE / "overlapped_sums.c", tmp_path_factory.mktemp("programs") / "overlapped_sums")


@pytest.mark.parametrize("ranks", RANKS)
def test_every_cell_and_every_halo_is_that_of_one_process(mpi: Mpi, cases: Path, tmp_path: Path, ranks: int) -> None:
    mpi.python(ranks, HERE / "overlapped_sums.py", cases, tmp_path)
    for number, case in enumerate(CASES):
        check(case, ranks, tmp_path / str(number))


@pytest.mark.parametrize("ranks", RANKS)
def test_a_program_in_c_has_the_numbers_of_python(
    mpi: Mpi, cases: Path, program_in_c: Path, tmp_path: Path, ranks: int
) -> None:
    mpi.run(ranks, program_in_c, cases, tmp_path)
    for number, case in enumerate(CASES):
        check(case, ranks, tmp_path / str(number))
