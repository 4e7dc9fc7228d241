"""Ranks of the benchmark of halos: seconds of a copy, an exchange and a step, in rounds; rank 0 prints them.

Run by MPI: ``mpiexec -n 2 python -m mpi4py -m benchmarks.halo_steps '{"shape": [128, 128, 128], ...}'``.
"""

import json
import sys
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from halo.decomposition import Region, cells_in, directions
from halo.fields import Domain, Field

ROUNDS = 25
#: Seconds that the calls of one timing take together, at least: a call may take microseconds.
TIMING = 0.01


def stencil(out: np.ndarray, padded: np.ndarray, width: tuple[int, ...]) -> None:
    """Set cells to the mean of those within ``width`` along each axis, without another array of that size."""
    cells = [slice(reach, length - reach) for reach, length in zip(width, padded.shape, strict=True)]
    out[...] = padded[tuple(cells)]
    for dimension, reach in enumerate(width):
        for shift in (*range(-reach, 0), *range(1, reach + 1)):
            moved = slice(cells[dimension].start + shift, cells[dimension].stop + shift)
            out += padded[(*cells[:dimension], moved, *cells[dimension + 1 :])]
    out *= 1 / (1 + 2 * sum(width))


class Step:
    """A step of a stencil on a field, and its parts."""

    def __init__(self, shape: list[int], width: int, grid: list[int]) -> None:
        self.domain = Domain(MPI.COMM_WORLD, shape, width=width, periodic=True, grid=grid)
        self.block = self.domain.block
        self.old, self.new = Field(self.domain, np.float64), Field(self.domain, np.float64)
        self.old.cells[...] = np.random.default_rng(self.domain.rank).random(self.block.shape)
        ranks = self.domain.decomposition.messages(self.domain.rank)
        #: What other ranks send: number of the direction, rank, and where it belongs.
        self.received = [
            (number, ranks[direction], direction)
            for number, direction in enumerate(directions(len(shape)))
            if direction in ranks
        ]
        counts = [cells_in(self.block.halo_cells(direction)) for _, _, direction in self.received]
        self.buffers = [(np.empty(count), np.empty(count)) for count in counts]
        self.bytes = 8 * sum(counts)
        self.source, self.target = np.ones(self.bytes // 8), np.ones(self.bytes // 8)

    def compute(self, region: Region) -> None:
        stencil(self.new.array[region], self.old.around(region), self.block.width)

    def copy(self) -> None:
        """Copy as many bytes as a rank receives."""
        np.copyto(self.target, self.source)

    def exchange(self) -> None:
        self.old.begin()
        self.old.finish()

    def packed_exchange(self) -> None:
        """Exchange as programs without MPI's subarray types do: by buffers that numpy packs and unpacks."""
        communicator, array, last = self.domain.communicator, self.old.array, len(directions(len(self.block.width))) - 1
        requests = [
            communicator.Irecv(received, rank, last - number)
            for (number, rank, _), (_, received) in zip(self.received, self.buffers, strict=True)
        ]
        for (number, rank, direction), (sent, _) in zip(self.received, self.buffers, strict=True):
            cells = array[self.block.sent_cells(direction)]
            np.copyto(sent.reshape(cells.shape), cells)
            requests.append(communicator.Isend(sent, rank, number))
        MPI.Request.Waitall(requests)
        for (_, _, direction), (_, received) in zip(self.received, self.buffers, strict=True):
            cells = array[self.block.halo_cells(direction)]
            np.copyto(cells, received.reshape(cells.shape))
        for halo, own in self.domain.wraps:
            array[halo] = array[own]

    def computation(self) -> None:
        self.compute(self.block.cells)

    def parts(self) -> None:
        """Compute interior and rim without an exchange: what the division costs."""
        for region in (self.block.interior, *self.block.rim):
            self.compute(region)

    def step_in_turn(self) -> None:
        self.exchange()
        self.compute(self.block.cells)

    def overlapped_step(self) -> None:
        with self.old.exchange():
            self.compute(self.block.interior)
        for strip in self.block.rim:
            self.compute(strip)


def seconds(call: Callable[[], None], calls: int) -> float:
    """Return the seconds of a call on the slowest rank."""
    MPI.COMM_WORLD.Barrier()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return MPI.COMM_WORLD.allreduce((time.perf_counter() - began) / calls, MPI.MAX)


def measure(case: dict[str, object]) -> dict[str, object]:
    """Return the seconds of each part in each round; the parts of a round follow each other, in turns."""
    step = Step(**case)
    parts = [
        step.copy,
        step.exchange,
        step.packed_exchange,
        step.computation,
        step.parts,
        step.step_in_turn,
        step.overlapped_step,
    ]
    calls = {part.__name__: max(2, round(TIMING / seconds(part, 3))) for part in parts}
    times: dict[str, list[float]] = {part.__name__: [] for part in parts}
    for number in range(ROUNDS):
        turn = number % len(parts)
        for part in (*parts[turn:], *parts[:turn]):
            times[part.__name__].append(seconds(part, calls[part.__name__]))
    return {"bytes": step.bytes, "messages": len(step.received), "seconds": times}


if __name__ == "__main__":
    figures = measure(json.loads(sys.argv[1]))
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(figures))
