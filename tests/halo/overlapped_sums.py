"""Program of tests: each cell becomes the sum of its neighbourhood, computed while halos are exchanged.

It reads cases as `overlapped_sums.c` does, and writes the same files. ``python overlapped_sums.py CASES FOLDER``: CASES
has a line of numbers for each case, for each dimension the cells, then the widths, then whether it is periodic. Into
FOLDER/CASE.RANK it writes 64-bit integers: grid, padded array after the last exchange, own cells after the last step.
"""

import sys
from itertools import product
from pathlib import Path

import numpy as np
from mpi4py import MPI

from halo.decomposition import Region
from halo.fields import Domain, Field

STEPS, MODULUS, OUTSIDE = 2, 1_000_003, 5


def sums(padded: np.ndarray, width: tuple[int, ...]) -> np.ndarray:
    """Return the sum of each cell's neighbourhood, without the cells at the sides, which have none."""
    cells = [length - 2 * reach for length, reach in zip(padded.shape, width, strict=True)]
    total = np.zeros(cells, np.int64)
    for begins in product(*(range(2 * reach + 1) for reach in width)):
        total += padded[tuple(slice(begin, begin + length) for begin, length in zip(begins, cells, strict=True))]
    return total % MODULUS


def run(case: list[int], name: Path) -> None:
    dimensions = len(case) // 3
    shape, width, periodic = (case[part * dimensions : (part + 1) * dimensions] for part in range(3))
    domain = Domain(MPI.COMM_WORLD, shape, width=width, periodic=[bool(flag) for flag in periodic])
    old, new = Field(domain, np.int64), Field(domain, np.int64)
    for field in (old, new):
        field.array[...] = OUTSIDE
    old.cells[...] = np.arange(np.prod(shape)).reshape(shape)[domain.block.place]

    def compute(region: Region) -> None:
        new.array[region] = sums(old.around(region), domain.block.width)

    for step in range(STEPS):
        if step:
            old, new = new, old
        with old.exchange():
            compute(domain.block.interior)
        for strip in domain.block.rim:
            compute(strip)
    grid = np.array(domain.decomposition.grid)
    np.concatenate([grid, old.array.ravel(), new.cells.ravel()]).astype(np.int64).tofile(f"{name}.{domain.rank}")
    domain.free()


if __name__ == "__main__":
    for number, line in enumerate(Path(sys.argv[1]).read_text().splitlines()):
        run(list(map(int, line.split())), Path(sys.argv[2], str(number)))
