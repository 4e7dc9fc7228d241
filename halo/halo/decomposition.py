"""Decomposition of a regular grid of cells: which rank owns which cells, who its neighbours are, what each receives.

Arithmetic only, without MPI; `include/halo.h` has the same in C. Cells are numbered from 0 in each of one to three
dimensions, ranks in row-major order of their places (the last dimension varies fastest), as `MPI_Cart_create` does.

The array of a rank is *padded*: its own cells, and around them a *halo* of ``width`` cells for copies of its
neighbours' cells. At an edge of a grid that is not periodic the halo is there too, and belongs to the program.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import EllipsisType
from typing import TypeVar

#: Index of a padded array, whatever axes its components have in front: an ellipsis, then a slice for each dimension.
Region = tuple[EllipsisType | slice, ...]
#: Where a neighbour is: -1, 0 or 1 in each dimension, not 0 in all.
Direction = tuple[int, ...]
Shape = tuple[int, ...]
T = TypeVar("T", int, bool)


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge of a grid that is not periodic, at a block that touches it.

    ``dimension``; ``side``: -1 at the first cell, 1 at the last; ``ghosts``: the halo outside, of the whole length of
    the padded array in the other dimensions; ``nearest``: the layer of own cells beside it, one cell thick, which can
    be broadcast to it. Edges that are filled in the order of their dimensions also fill the corners, as `numpy.pad`
    does.
    """

    dimension: int
    side: int
    ghosts: Region
    nearest: Region


@dataclass(frozen=True, slots=True)
class GridBlock:
    """The cells of a rank: from ``start`` to before ``stop`` in each dimension, with a halo of ``width`` cells.

    Regions are of its padded array.
    """

    start: Shape
    stop: Shape
    width: Shape

    @property
    def shape(self) -> Shape:
        """Number of own cells by dimension."""
        return tuple(stop - start for start, stop in zip(self.start, self.stop, strict=True))

    @property
    def padded(self) -> Shape:
        """Number of cells by dimension, with the halo on both sides."""
        return tuple(cells + 2 * width for cells, width in zip(self.shape, self.width, strict=True))

    @property
    def place(self) -> Region:
        """Index of the own cells in an array of the whole grid."""
        return (..., *map(slice, self.start, self.stop))

    @property
    def cells(self) -> Region:
        """Region of the own cells."""
        return (..., *(slice(width, width + cells) for cells, width in zip(self.shape, self.width, strict=True)))

    @property
    def interior(self) -> Region:
        """Region of the own cells that are ``width`` cells or more from the halo; empty if the block is too small.

        A stencil that reaches as far as the halo is wide can be computed here while an exchange is under way.
        """
        return (..., *(middle for _, middle, _ in self._thirds()))

    @property
    def rim(self) -> tuple[Region, ...]:
        """Regions of the other own cells: strips that do not overlap, up to two in each dimension, none empty."""
        thirds, cells = self._thirds(), slices_of(self.cells)
        strips: list[Region] = []
        for dimension, (first, _, last) in enumerate(thirds):
            before, after = [middle for _, middle, _ in thirds[:dimension]], cells[dimension + 1 :]
            strips += [(..., *before, strip, *after) for strip in (first, last)]
        return tuple(strip for strip in strips if cells_in(strip))

    def _thirds(self) -> Sequence[tuple[slice, slice, slice]]:
        """Return for each dimension the first own cells, the interior, and the last own cells."""
        thirds = []
        for cells, width in zip(self.shape, self.width, strict=True):
            low, high = 2 * width, max(2 * width, cells)
            thirds.append((slice(width, low), slice(low, high), slice(high, width + cells)))
        return thirds

    def around(self, region: Region) -> Region:
        """Return a region of own cells with all cells that a stencil of the halo's width reaches from it."""
        parts = zip(slices_of(region), self.width, strict=True)
        return (..., *(slice(part.start - width, part.stop + width) for part, width in parts))

    def layer(self, dimension: int, part: slice) -> Region:
        """Return a part of the padded array in one dimension, and the whole of it in the others."""
        padded = tuple(slice(0, cells) for cells in self.padded)
        return (..., *padded[:dimension], part, *padded[dimension + 1 :])

    def sent_cells(self, direction: Direction) -> Region:
        """Return the region of own cells that the neighbour in a direction has in its halo."""
        begins = [
            cells if side > 0 else width for side, cells, width in zip(direction, self.shape, self.width, strict=True)
        ]
        return self._strip(direction, begins)

    def halo_cells(self, direction: Direction) -> Region:
        """Return the region of the halo that has cells of the neighbour in a direction."""
        sides = zip(direction, self.shape, self.width, strict=True)
        return self._strip(direction, [width + side * (cells if side > 0 else width) for side, cells, width in sides])

    def _strip(self, direction: Direction, begins: Sequence[int]) -> Region:
        """Return a region as thick as the halo where it has a side, and as long as the block elsewhere."""
        lengths = (
            width if side else cells for side, cells, width in zip(direction, self.shape, self.width, strict=True)
        )
        return (..., *(slice(begin, begin + length) for begin, length in zip(begins, lengths, strict=True)))


@dataclass(frozen=True, slots=True)
class Decomposition:
    """A grid of cells that is divided among a grid of ranks; every cell has one owner.

    ``shape``: cells; ``grid``: ranks; ``width``: cells of the halo; ``periodic``: whether the last cell is beside the
    first; each by dimension. Of cells that cannot be divided evenly, the first ranks have one more.

    Raises ValueError if the four differ in length or have other than one to three dimensions, and if a block has no
    cells or fewer than the halo is wide: it would need cells of its neighbour's neighbour.
    """

    shape: Shape
    grid: Shape
    width: Shape
    periodic: tuple[bool, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.shape) <= 3 or len({*map(len, (self.shape, self.grid, self.width, self.periodic))}) > 1:
            raise ValueError(
                f"shape {self.shape}, grid {self.grid}, width {self.width} and periodic {self.periodic}"
                " must have an entry for each of one to three dimensions"
            )
        for dimension, (cells, ranks, width) in enumerate(zip(self.shape, self.grid, self.width, strict=True)):
            if ranks < 1 or width < 0:
                raise ValueError(f"dimension {dimension}: {ranks} ranks and a halo of {width} cells are not possible")
            if cells // ranks < max(width, 1):
                raise ValueError(
                    f"dimension {dimension}: {cells} cells on {ranks} ranks are {cells // ranks} a rank,"
                    f" fewer than {max(width, 1)}; give another grid or fewer ranks"
                )

    @classmethod
    def of(
        cls,
        shape: int | Sequence[int],
        grid: int | Sequence[int],
        width: int | Sequence[int] = 1,
        periodic: bool | Sequence[bool] = False,
    ) -> "Decomposition":
        """Return a decomposition; one number or bool is for all dimensions of ``shape``. Raises ValueError as above."""
        cells = per_dimension(shape, 1)
        count = len(cells)
        return cls(cells, per_dimension(grid, count), per_dimension(width, count), per_dimension(periodic, count))

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return math.prod(self.grid)

    def place(self, rank: int) -> Shape:
        """Return where a rank is in the grid of ranks. Raises ValueError if there is no such rank."""
        if not 0 <= rank < self.ranks:
            raise ValueError(f"there is no rank {rank} of {self.ranks}")
        place = []
        for ranks in reversed(self.grid):
            rank, part = divmod(rank, ranks)
            place.append(part)
        return tuple(reversed(place))

    def block(self, rank: int) -> GridBlock:
        """Return the cells of a rank."""
        bounds = [
            (bound(cells, ranks, part), bound(cells, ranks, part + 1))
            for cells, ranks, part in zip(self.shape, self.grid, self.place(rank), strict=True)
        ]
        return GridBlock(tuple(start for start, _ in bounds), tuple(stop for _, stop in bounds), self.width)

    def neighbours(self, rank: int) -> Mapping[Direction, int]:
        """Return the neighbour in each direction from which a rank receives cells; diagonal ones too.

        It may be the rank itself, and one rank may be a neighbour in several directions, where the grid is periodic.
        """
        place = self.place(rank)
        neighbours = {}
        for direction in directions(len(self.shape)):
            there = [part + side for part, side in zip(place, direction, strict=True)]
            outside = any(
                not (periodic or 0 <= part < ranks)
                for part, ranks, periodic in zip(there, self.grid, self.periodic, strict=True)
            )
            if not outside and all(width for width, side in zip(self.width, direction, strict=True) if side):
                neighbours[direction] = self._rank(there)
        return neighbours

    def messages(self, rank: int) -> Mapping[Direction, int]:
        """Return the neighbours whose cells come in messages; never the rank itself."""
        return {
            direction: other
            for direction, other in self.neighbours(rank).items()
            if not any(side and alone for side, alone in zip(direction, self._alone, strict=True))
        }

    def wraps(self, rank: int) -> Sequence[tuple[Region, Region]]:
        """Return copies that complete a halo when all messages are received: where to, and where from, in this order.

        In a periodic dimension with one rank the cells around a block are at its other side, with their own halo in the
        dimensions before: two copies in place of two thirds of all messages.
        """
        block, place = self.block(rank), self.place(rank)
        parts = []  # of each dimension, those that are received, or else own
        for dimension, cells_of_rank in enumerate(slices_of(block.cells)):
            width, exchanged = self.width[dimension], not self._alone[dimension]
            below = exchanged and (self.periodic[dimension] or place[dimension] > 0)
            above = exchanged and (self.periodic[dimension] or place[dimension] < self.grid[dimension] - 1)
            parts.append(slice(cells_of_rank.start - width * below, cells_of_rank.stop + width * above))
        copies: list[tuple[Region, Region]] = []
        for dimension in (dimension for dimension, alone in enumerate(self._alone) if alone):
            cells, width = block.shape[dimension], self.width[dimension]
            for to, start in ((0, cells), (width + cells, width)):
                before, after = parts[:dimension], parts[dimension + 1 :]
                halo: Region = (..., *before, slice(to, to + width), *after)
                own: Region = (..., *before, slice(start, start + width), *after)
                copies.append((halo, own))
            parts[dimension] = slice(0, block.padded[dimension])
        return copies

    @property
    def _alone(self) -> Sequence[bool]:
        """For each dimension, whether a rank is its own neighbour in it."""
        return [
            ranks == 1 and periodic and width > 0
            for ranks, periodic, width in zip(self.grid, self.periodic, self.width, strict=True)
        ]

    def _rank(self, place: Sequence[int]) -> int:
        rank = 0
        for part, ranks in zip(place, self.grid, strict=True):
            rank = rank * ranks + part % ranks
        return rank

    def edges(self, rank: int) -> tuple[Edge, ...]:
        """Return the edges of a grid that is not periodic at which a rank is, by dimension; none without a halo."""
        block = self.block(rank)
        edges = []
        for dimension, (part, ranks) in enumerate(zip(self.place(rank), self.grid, strict=True)):
            cells, width = block.shape[dimension], self.width[dimension]
            if self.periodic[dimension] or not width:
                continue
            if part == 0:
                ghosts, nearest = slice(0, width), slice(width, width + 1)
                edges.append(Edge(dimension, -1, block.layer(dimension, ghosts), block.layer(dimension, nearest)))
            if part == ranks - 1:
                ghosts, nearest = slice(width + cells, 2 * width + cells), slice(width + cells - 1, width + cells)
                edges.append(Edge(dimension, 1, block.layer(dimension, ghosts), block.layer(dimension, nearest)))
        return tuple(edges)


def bound(cells: int, ranks: int, part: int) -> int:
    """Return the first cell of a part of ``cells`` that are divided among ``ranks``: the first parts have one more."""
    share, more = divmod(cells, ranks)
    return part * share + min(part, more)


def directions(dimensions: int) -> Sequence[Direction]:
    """Return all directions, in the order of their numbers: the opposite of number k is the last but k."""
    return [direction for direction in product((-1, 0, 1), repeat=dimensions) if any(direction)]


def slices_of(region: Region) -> tuple[slice, ...]:
    """Return the slices of a region, without the ellipsis."""
    return tuple(part for part in region if isinstance(part, slice))


def cells_in(region: Region) -> int:
    """Return the number of cells in a region."""
    return math.prod(part.stop - part.start for part in slices_of(region))


def per_dimension(value: T | Sequence[T], dimensions: int) -> tuple[T, ...]:
    """Return a value for each dimension."""
    return tuple(value) if isinstance(value, Sequence) else (value,) * dimensions
