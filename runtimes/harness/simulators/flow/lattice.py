"""Lattice: a slab of the channel's columns, which a lattice Boltzmann method moves on step by step.

Nine populations per node (D2Q9) collide with two relaxation times and the equilibrium of an incompressible fluid, and
move to the neighbours. Every number is computed from the same numbers in the same order in whatever slab its node is,
so that the flow is the same to the last bit on any number of ranks.

- Ginzburg, Verhaeghe, d'Humières, "Two-relaxation-time lattice Boltzmann scheme", 2008: MAGIC is their Lambda.
- He, Luo, "Lattice Boltzmann model for the incompressible Navier-Stokes equation", 1997: the equilibrium.
- Bouzidi, Firdaouss, Lallemand, "Momentum transfer of a Boltzmann-lattice fluid with boundaries", 2001: the surface
  between nodes, here of a cylinder that turns.
- Wen, Zhang, Tu, Wang, Fang, "Galilean invariant fluid-solid interfacial dynamics", 2014: the force on a moving wall.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .channel import OPPOSITES, VELOCITIES, WEIGHTS, Channel

Array = NDArray[np.float64]
#: Product of both relaxation times, each less a half: larger values are unstable where cells are as coarse as here.
MAGIC = 0.001
#: Populations that move to the right, and to the left.
RIGHT, LEFT = (1, 3, 8), (5, 4, 7)


def alone(populations: Array) -> None:
    """Exchange nothing: the slab is the whole channel."""


class Lattice:
    """Columns ``first`` to ``last`` (excluded) of a channel. ``exchange`` fills the outermost columns, which are the
    neighbours' (halo): of the populations that move to the right the first column, of those to the left the last.
    """

    def __init__(self, channel: Channel, first: int, last: int, exchange: Callable[[Array], None] = alone) -> None:
        self._channel, self._exchange = channel, exchange
        self._inlet, self._outlet = first == 0, last == channel.columns
        self.width = width = last - first
        rows = channel.rows
        even = 1.0 / (3.0 * channel.viscosity + 0.5)
        odd = 1.0 / (MAGIC / (1.0 / even - 0.5) + 0.5)
        weights = np.array(WEIGHTS)
        column = weights[1:5, None, None]
        self._even, self._odd = (even * column, 0.5 * even), (3.0 * odd * column, 0.5 * odd)
        self._rest = even * WEIGHTS[0], 1.0 - even
        #: Populations with the halo around, at rest; and after a collision.
        self.populations: Array = np.repeat(weights, (width + 2) * (rows + 2)).reshape(9, width + 2, rows + 2)
        self.collided = self.populations.copy()
        self._inner = (slice(1, width + 1), slice(1, rows + 1))
        self._work = [np.empty((4, width, rows)) for _ in range(4)]
        self._density, self._square, self._scratch = (np.empty((width, rows)) for _ in range(3))
        profile = np.array([channel.inflow(row) for row in range(rows)])
        self._inflow = {population: 6.0 * WEIGHTS[population] * profile for population in RIGHT}
        self.surface = Surface(channel, first, last, self.populations.shape)
        self._fill(profile)

    def _fill(self, profile: Array) -> None:
        """Fill the channel with the profile of the inflow."""
        for population, (across, _) in enumerate(VELOCITIES):
            moving = 3.0 * across * profile + (4.5 * across * across - 1.5) * profile * profile
            self.populations[population][self._inner] = WEIGHTS[population] * (1.0 + moving)

    def step(self, spin: float) -> None:
        """Move on by a step, in which the cylinder turns by the angle ``spin``, counterclockwise in radians."""
        self.collide()
        self._exchange(self.collided)
        self.stream(spin)

    def stream(self, spin: float) -> None:
        """After the exchange: move the populations, and reflect those that meet a boundary."""
        self._move()
        self._walls()
        self.surface.reflect(self.populations, self.collided, spin)

    def collide(self) -> None:
        """Relax each node's populations towards their equilibrium."""
        old = self.populations[(slice(None), *self._inner)]
        new = self.collided[(slice(None), *self._inner)]
        total, difference, along, change = self._work
        density, square, scratch = self._density, self._square, self._scratch
        one, other = old[1:5], old[5:9]
        np.add(one, other, out=total)
        np.subtract(one, other, out=difference)
        np.add(difference[0], difference[2], out=along[0])
        np.subtract(along[0], difference[3], out=along[0])
        np.add(difference[1], difference[2], out=along[1])
        np.add(along[1], difference[3], out=along[1])
        np.add(along[0], along[1], out=along[2])
        np.subtract(along[1], along[0], out=along[3])
        np.add(old[0], total[0], out=density)
        for pair in (1, 2, 3):
            np.add(density, total[pair], out=density)
        np.multiply(along[0], along[0], out=square)
        np.multiply(along[1], along[1], out=scratch)
        np.add(square, scratch, out=square)
        np.multiply(square, 1.5, out=square)
        np.subtract(density, square, out=square)  # what all equilibria have in common
        np.multiply(along, along, out=change)
        np.multiply(change, 4.5, out=change)
        np.add(change, square, out=change)
        np.multiply(change, self._even[0], out=change)
        np.multiply(total, self._even[1], out=total)
        np.subtract(change, total, out=change)
        np.multiply(difference, self._odd[1], out=difference)
        np.multiply(along, self._odd[0], out=total)
        np.subtract(total, difference, out=difference)
        np.add(one, change, out=new[1:5])
        np.add(new[1:5], difference, out=new[1:5])
        np.add(other, change, out=new[5:9])
        np.subtract(new[5:9], difference, out=new[5:9])
        np.multiply(square, self._rest[0], out=square)
        np.multiply(old[0], self._rest[1], out=new[0])
        np.add(new[0], square, out=new[0])
        self.surface.rest(self.collided)

    def _move(self) -> None:
        """Move each population to the neighbour that it points to."""
        columns, rows = self._inner
        for population, (across, up) in enumerate(VELOCITIES):
            source = slice(columns.start - across, columns.stop - across), slice(rows.start - up, rows.stop - up)
            self.populations[population][self._inner] = self.collided[population][source]

    def _walls(self) -> None:
        """Reflect at the channel's walls; let the inflow in, and the flow out at a constant pressure."""
        new, old = self.populations, self.collided
        columns, rows = self._inner
        bottom, top = rows.start, rows.stop - 1
        for population in (2, 3, 4):
            new[population, columns, bottom] = old[OPPOSITES[population], columns, bottom]
            new[OPPOSITES[population], columns, top] = old[population, columns, top]
        if self._inlet:
            for population in RIGHT:
                new[population, 1, rows] = old[OPPOSITES[population], 1, rows] + self._inflow[population]
        if self._outlet:
            end = columns.stop - 1
            along = self._work[2]
            x, y = along[0, -1], along[1, -1]
            square = 1.0 - 1.5 * (x * x + y * y)
            for population in LEFT:
                across, up = VELOCITIES[population]
                toward = across * x + up * y
                equilibrium = 2.0 * WEIGHTS[population] * (square + 4.5 * toward * toward)
                new[population, end, rows] = equilibrium - old[OPPOSITES[population], end, rows]

    def density(self, column: int, row: int) -> float:
        """Return the density at a node, ``column`` counted from the slab's first; the pressure is a third of it."""
        total = 0.0
        for value in self.populations[:, column + 1, row + 1].tolist():
            total += value
        return total

    def velocity(self) -> tuple[Array, Array]:
        """Return the velocities along and across the channel at the nodes of the slab."""
        p = self.populations[(slice(None), *self._inner)]
        along = (p[1] - p[5]) + (p[3] - p[7]) - (p[4] - p[8])
        across = (p[2] - p[6]) + (p[3] - p[7]) + (p[4] - p[8])
        return along, across


class Surface:
    """The part of the cylinder's surface that is in a slab, and the forces on it, summed up over steps per link."""

    def __init__(self, channel: Channel, first: int, last: int, shape: tuple[int, ...]) -> None:
        links = [link for link in channel.links if first <= link.column < last]
        solids = [(column - first + 1, row + 1) for column, row in channel.solids if first - 1 <= column <= last]
        self._solids = tuple(np.array(solids, dtype=np.int64).reshape(-1, 2).T)
        self._weights = np.array(WEIGHTS)[:, None]

        def places(populations: list[int]) -> NDArray[np.int64]:
            columns, rows = [link.column - first + 1 for link in links], [link.row + 1 for link in links]
            nodes = zip(populations, columns, rows, strict=True)
            return np.array([(p * shape[1] + column) * shape[2] + row for p, column, row in nodes], dtype=np.int64)

        def numbers(values: list[float]) -> Array:
            return np.array(values, dtype=np.float64)

        self._toward = places([link.population for link in links])
        self._back = places([OPPOSITES[link.population] for link in links])
        near = [link.distance < 0.5 for link in links]
        both = list(zip(links, near, strict=True))
        self._own = numbers([2 * link.distance if is_near else 0.5 / link.distance for link, is_near in both])
        self._behind = numbers([1 - 2 * link.distance if is_near else 0.0 for link, is_near in both])
        self._returned = numbers([0.0 if is_near else 1 - 0.5 / link.distance for link, is_near in both])
        velocities = [VELOCITIES[link.population] for link in links]
        self._velocity = [numbers([float(v[axis]) for v in velocities]) for axis in (0, 1)]
        self._arm = [numbers([link.arm[axis] for link in links]) for axis in (0, 1)]
        # What a surface that turns gives back: 6 w (c u), here per unit of spin, with u = spin (-y, x).
        turning = -self._velocity[0] * self._arm[1] + self._velocity[1] * self._arm[0]
        scale = [6.0 * WEIGHTS[link.population] * (1.0 if is_near else 0.5 / link.distance) for link, is_near in both]
        self._turned = -numbers(scale) * turning
        #: Momentum that each link has given the cylinder since `clear`, along and across the channel, and its moment.
        self.sums: Array = np.zeros((3, len(links)))

    def rest(self, collided: Array) -> None:
        """Set the nodes within the cylinder to rest."""
        if len(self._solids[0]):
            collided[:, self._solids[0], self._solids[1]] = self._weights

    def reflect(self, populations: Array, collided: Array, spin: float) -> None:
        """Reflect the populations that meet the surface, and add up what it gets of them."""
        if not len(self._toward):
            return
        new, old = populations.reshape(-1), collided.reshape(-1)
        sent, returned = old[self._toward], old[self._back]
        back = self._own * sent + self._behind * new[self._toward] + self._returned * returned + self._turned * spin
        new[self._back] = back
        given, kept = sent + back, (sent - back) * spin
        along = self._velocity[0] * given + self._arm[1] * kept
        across = self._velocity[1] * given - self._arm[0] * kept
        self.sums[0] += along
        self.sums[1] += across
        self.sums[2] += self._arm[0] * across - self._arm[1] * along

    def clear(self) -> Array:
        """Return the sums, and set them to zero."""
        sums, self.sums = self.sums, np.zeros_like(self.sums)
        return sums
