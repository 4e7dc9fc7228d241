"""Channel: the geometry of the flow around a cylinder, its units, and where its boundary cuts the lattice's links.

The channel of Schäfer and Turek, "Benchmark computations of laminar flow around a cylinder", 1996, case 2D-2: 2.2 m by
0.41 m, a cylinder of 0.1 m at (0.2 m, 0.2 m), a parabolic inflow with a mean of 1 m/s. A cell of the lattice is a
square; its node is its centre. Lengths are in cells, and times in steps of the lattice, unless a name says otherwise.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

#: Velocities of the nine populations: rest, then one of each pair of opposites, then the others in the same order.
VELOCITIES = ((0, 0), (1, 0), (0, 1), (1, 1), (-1, 1), (-1, 0), (0, -1), (-1, -1), (1, -1))
#: Their weights.
WEIGHTS = (4 / 9, 1 / 9, 1 / 9, 1 / 36, 1 / 36, 1 / 9, 1 / 9, 1 / 36, 1 / 36)
#: The opposite of each.
OPPOSITES = (0, 5, 6, 7, 8, 1, 2, 3, 4)
#: Length and height of the channel and place of the cylinder's centre, in diameters.
LENGTH, HEIGHT, CENTRE = 22.0, 4.1, (2.0, 2.0)
#: Diameter in metres, and mean velocity of the inflow in metres per second.
DIAMETER, SPEED = 0.1, 1.0
#: The largest velocity of the inflow, in cells per step: errors of compressibility fall with its square.
FASTEST = 0.1
#: Where the pressure is measured, in diameters from the cylinder's centre: four on a ring, and six in the wake.
RING, WAKE = 0.75, ((1.5, 0.5), (1.5, -0.5), (2.5, 0.5), (2.5, -0.5), (4.0, 0.5), (4.0, -0.5))


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """A link from a node of the fluid, by a population, through the cylinder's surface.

    ``distance``: to the surface, as a part of the link; ``arm``: from the centre to that point of the surface.
    """

    population: int
    column: int
    row: int
    distance: float
    arm: tuple[float, float]


@dataclass(frozen=True)
class Channel:
    """A channel with so many ``cells`` per diameter of the cylinder, and a Reynolds number of mean and diameter."""

    cells: int
    reynolds: float

    @property
    def columns(self) -> int:
        """Number of cells along the channel."""
        return round(LENGTH * self.cells)

    @property
    def rows(self) -> int:
        """Number of cells across the channel."""
        return round(HEIGHT * self.cells)

    @property
    def mean(self) -> float:
        """Mean velocity of the inflow."""
        return FASTEST * 2 / 3

    @property
    def viscosity(self) -> float:
        """Kinematic viscosity."""
        return self.mean * self.cells / self.reynolds

    def steps(self, seconds: float) -> int:
        """Return the number of steps of the lattice in a time."""
        return round(seconds * SPEED / DIAMETER * self.cells / self.mean)

    def inflow(self, row: int) -> float:
        """Return the velocity of the inflow at a row: a parabola that is zero at both walls."""
        across = (row + 0.5) / self.rows
        return 4.0 * FASTEST * across * (1.0 - across)

    @property
    def centre(self) -> tuple[float, float]:
        """Place of the cylinder's centre."""
        return CENTRE[0] * self.cells, CENTRE[1] * self.cells

    @property
    def radius(self) -> float:
        """Radius of the cylinder."""
        return self.cells / 2

    def is_solid(self, column: int, row: int) -> bool:
        """Return whether a node is within the cylinder."""
        x, y = self._from_centre(column, row)
        return x * x + y * y < self.radius**2

    @cached_property
    def solids(self) -> tuple[tuple[int, int], ...]:
        """Nodes within the cylinder, by column and row."""
        return tuple(node for node in self._near() if self.is_solid(*node))

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """All links that the surface cuts, in the order of their columns."""
        return tuple(link for node in self._near() if not self.is_solid(*node) for link in self._links_of(*node))

    @property
    def probes(self) -> tuple[tuple[int, int], ...]:
        """Nodes where the pressure is measured, those nearest to RING and WAKE, by column and row."""
        ring = [(RING * math.cos(angle), RING * math.sin(angle)) for angle in (0.0, math.pi / 2, math.pi, -math.pi / 2)]
        return tuple(self._nearest(x, y) for x, y in (*ring, *WAKE))

    def _nearest(self, x: float, y: float) -> tuple[int, int]:
        column, row = ((centre + at) * self.cells for centre, at in zip(CENTRE, (x, y), strict=True))
        return math.floor(column), math.floor(row)

    def _near(self) -> Iterator[tuple[int, int]]:
        """Yield the nodes around the cylinder."""
        reach = self.radius + 2
        x, y = self.centre
        for column in range(math.floor(x - reach), math.ceil(x + reach)):
            for row in range(math.floor(y - reach), math.ceil(y + reach)):
                yield column, row

    def _from_centre(self, column: int, row: int) -> tuple[float, float]:
        return column + 0.5 - self.centre[0], row + 0.5 - self.centre[1]

    def _links_of(self, column: int, row: int) -> Iterator[Link]:
        x, y = self._from_centre(column, row)
        for population, (across, up) in enumerate(VELOCITIES):
            if population and self.is_solid(column + across, row + up):
                # |(x, y) + distance (across, up)| = radius; the smaller root is where the link enters.
                square, half = across * across + up * up, x * across + y * up
                root = math.sqrt(half * half - square * (x * x + y * y - self.radius**2))
                distance = (-half - root) / square
                arm = (x + distance * across, y + distance * up)
                yield Link(population=population, column=column, row=row, distance=distance, arm=arm)
