"""Heat in a box: an explicit 7-point stencil on the ranks of MPI, against two solutions that are known exactly.

The box has a side of 1 m and walls at 0 K. The temperature begins as a product of sines, which decays and keeps its
shape: in the differential equation, and also in the differences that are computed here, by another factor. So both the
error of the method and the error of this computation are known. A cell is computed from its neighbours in the same
order wherever it lies, so that the grid is the same to the last bit on any number of ranks.
"""

import hashlib
import math
import time

import numpy as np
from mpi4py import MPI
from windtunnel_program import tasks

from halo.fields import Domain, Field

world = MPI.COMM_WORLD


class Box:
    """A box of cells whose temperature is known after each of ``steps``; ``mode``: half waves along each side."""

    def __init__(self, grid: int, steps: int, mode: int, diffusivity: float, courant: float, weak: bool) -> None:
        self.steps = steps
        self.step = 1.0 / (grid + 1)
        self.seconds = courant * self.step**2 / diffusivity
        self.courant = courant
        shape = (grid * world.size if weak else grid, grid, grid)
        self.domain = Domain(world, shape, grid=(0, 1, 1) if weak else None)
        self.lengths = [self.step * (cells + 1) for cells in shape]
        self.waves = [mode * math.pi / length for length in self.lengths]
        self.diffusivity = diffusivity
        block = self.domain.block
        along = [
            np.sin(wave * self.step * np.arange(first + 1, last + 1))
            for wave, first, last in zip(self.waves, block.start, block.stop, strict=True)
        ]
        self.shape = along[0][:, None, None] * along[1][:, None] * along[2]

    def decay(self) -> float:
        """Return what is left of the first temperature at the end, by the differential equation."""
        return math.exp(-self.diffusivity * self.steps * self.seconds * sum(wave**2 for wave in self.waves))

    def computed_decay(self) -> float:
        """Return what is left of it by the differences that are computed."""
        return (1 - 4 * self.courant * sum(math.sin(wave * self.step / 2) ** 2 for wave in self.waves)) ** self.steps


class Stencil:
    """Steps of the temperature, without an array that is made in a step."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.old, self.new = Field(box.domain, np.float64), Field(box.domain, np.float64)
        for field in (self.old, self.new):
            field.array[...] = 0.0  # of which the walls stay
        self.old.cells[...] = box.shape
        self.scratch = np.empty(box.shape.shape[1:])

    def advance(self) -> None:
        """Do a step: exchange, then compute, plane by plane, as both fit in the cache."""
        self.old.begin()
        self.old.finish()
        old, new, courant = self.old.array, self.new.array, self.box.courant
        around = self.scratch
        for plane in range(1, old.shape[0] - 1):
            own = old[plane, 1:-1, 1:-1]
            np.add(old[plane - 1, 1:-1, 1:-1], old[plane + 1, 1:-1, 1:-1], out=around)
            for neighbours in (
                old[plane, :-2, 1:-1],
                old[plane, 2:, 1:-1],
                old[plane, 1:-1, :-2],
                old[plane, 1:-1, 2:],
            ):
                np.add(around, neighbours, out=around)
            target = new[plane, 1:-1, 1:-1]
            np.multiply(own, 1 - 6 * courant, out=target)
            np.multiply(around, courant, out=around)
            np.add(target, around, out=target)
        self.old, self.new = self.new, self.old

    def error(self, decay: float) -> float:
        """Return the largest difference to the first temperature times ``decay``, on all ranks."""
        return float(world.allreduce(np.abs(self.old.cells - decay * self.box.shape).max(), MPI.MAX))

    def checksum(self) -> str:
        """Return a digest of all cells that does not depend on how they are divided: the sum of their bits."""
        own = np.ascontiguousarray(self.old.cells).view(np.uint64).sum(dtype=np.uint64)
        total = np.empty(1, np.uint64)
        world.Allreduce(np.array([own]), total)
        return hashlib.sha256(total.tobytes()).hexdigest()[:16]


for task in tasks():
    box = Box(**task.params)
    stencil = Stencil(box)
    world.Barrier()
    began = time.perf_counter()
    for _ in range(box.steps):
        stencil.advance()
    seconds = world.allreduce(time.perf_counter() - began, MPI.MAX)
    cells = math.prod(box.domain.decomposition.shape)
    task.finish(
        error=stencil.error(box.decay()),
        rounding_error=stencil.error(box.computed_decay()),
        maximum=float(world.allreduce(stencil.old.cells.max(), MPI.MAX)),
        checksum=stencil.checksum(),
        simulated=box.steps * box.seconds,
        cells=cells,
        ranks=world.size,
        seconds=seconds,
        updates_per_second=cells * box.steps / seconds,
    )
