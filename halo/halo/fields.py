"""Fields on a decomposed grid: arrays whose halos are exchanged by MPI while the program computes.

All cells that a rank needs, those of its diagonal neighbours too, come in messages of their own that are under way at
the same time: up to 26 in three dimensions. The other way, one dimension after another with two messages each, needs
fewer messages, but the second dimension can only begin when the first has arrived, so nothing would be under way
beside the computation after the first. Periodic dimensions with one rank have no messages: they are copied at the end.

Messages are MPI's subarray types on the array itself: the MPI library moves the cells from array to array, and there is
no buffer here to pack and unpack. They are Isend and Irecv rather than persistent requests, which libraries that
measure MPI programs (`runtimes/harness/gang/compiled/mpi_times.c`) do not see, and which would save no copy.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from mpi4py.typing import BufSpec

from halo.decomposition import Decomposition, GridBlock, Region, directions, per_dimension, slices_of

T = TypeVar("T", bound=np.generic)
#: Bytes of an integer of MPI -> its type; elements of an array are moved as one or more of them.
UNITS = {8: MPI.INT64_T, 4: MPI.INT32_T, 2: MPI.INT16_T, 1: MPI.INT8_T}
#: Tag of the messages of `gather` and `scatter`, after those of directions.
WHOLE_TAG = 27


@dataclass(frozen=True, slots=True)
class NeighbourMessage:
    """Exchange with a neighbour: its rank, two regions of an array, and the tags of the two messages."""

    rank: int
    sent: MPI.Datatype
    received: MPI.Datatype
    sent_tag: int
    received_tag: int


class Domain:
    """A grid of cells on the ranks of a communicator: the decomposition, and this rank's block of it.

    ``shape``, ``width`` and ``periodic`` as in `Decomposition`; one number or bool is for all dimensions. ``grid``: of
    ranks, with 0 where `MPI_Dims_create` shall choose; it chooses all if left out. It does not look at the shape: for a
    long, thin grid of cells, give the grid.

    Made by all ranks together, since it has a duplicate of the communicator. Raises ValueError as `Decomposition` does,
    and if the grid has not as many ranks as the communicator.
    """

    def __init__(
        self,
        communicator: MPI.Intracomm,
        shape: int | Sequence[int],
        *,
        width: int | Sequence[int] = 1,
        periodic: bool | Sequence[bool] = False,
        grid: Sequence[int] | None = None,
    ) -> None:
        cells = per_dimension(shape, 1)
        wanted = tuple(grid) if grid is not None else (0,) * len(cells)
        ranks = communicator.size
        chosen = tuple(MPI.Compute_dims(ranks, wanted)) if 0 in wanted else wanted
        if math.prod(chosen) != ranks:
            raise ValueError(f"a grid of {chosen} ranks has {math.prod(chosen)}, the communicator {ranks}")
        self.decomposition = Decomposition.of(cells, chosen, width, periodic)
        self.communicator = communicator.Dup()  # the program's own messages may have the same tags
        self.rank: int = communicator.rank
        self.block: GridBlock = self.decomposition.block(self.rank)
        self.edges = self.decomposition.edges(self.rank)
        self.wraps = self.decomposition.wraps(self.rank)
        self._messages: dict[tuple[tuple[int, ...], int], Sequence[NeighbourMessage]] = {}

    def messages(self, components: tuple[int, ...], size: int) -> Sequence[NeighbourMessage]:
        """Return the messages of an exchange of arrays whose elements have ``size`` bytes.

        Types of MPI are not freed with their last reference, so they are made once for all arrays of a shape.
        """
        if (components, size) not in self._messages:
            self._messages[components, size] = self._new_messages((*components, *self.block.padded), size)
        return self._messages[components, size]

    def _new_messages(self, shape: tuple[int, ...], size: int) -> Sequence[NeighbourMessage]:
        ranks, every = self.decomposition.messages(self.rank), directions(len(self.block.width))
        return [
            NeighbourMessage(
                ranks[direction],
                subarray(shape, self.block.sent_cells(direction), size),
                subarray(shape, self.block.halo_cells(direction), size),
                number,
                len(every) - 1 - number,  # what the neighbour sends comes in the opposite direction
            )
            for number, direction in enumerate(every)
            if direction in ranks
        ]

    def free(self) -> None:
        """Free the communicator and the types of MPI. Called by all ranks together; no field of it is used after it."""
        for messages in self._messages.values():
            for message in messages:
                message.sent.Free()
                message.received.Free()
        self._messages.clear()
        self.communicator.Free()


class Field(Generic[T]):
    """An array on a domain, with a halo. ``array``: (*components, *padded), in C order, zero at first.

    Components are leading axes, so that each of them is contiguous, a constant of the shape of the cells applies to all
    of them, and a region of the block (it begins with ``...``) is an index whatever their number is.

    Between `begin` and `finish` own cells may be read, and the halo neither read nor written; own cells that are less
    than ``width`` cells from the halo are not written, for they are being sent. All ranks begin the exchanges of a
    domain's fields in the same order. Raises TypeError for a type whose elements are not in the array (`object`).
    """

    def __init__(self, domain: Domain, dtype: np.dtype[T] | type[T], components: int | Sequence[int] = ()) -> None:
        self.domain = domain
        self.components = per_dimension(components, 1)
        self.array: npt.NDArray[T] = np.zeros((*self.components, *domain.block.padded), dtype)
        if self.array.dtype.hasobject:
            raise TypeError(f"elements of {self.array.dtype} are references, which mean nothing to another rank")
        self._messages = domain.messages(self.components, self.array.itemsize)
        self._memory = self.array.reshape(-1).view(np.uint8)  # some types of numpy have no buffer (datetime64)
        self._requests: list[MPI.Request] | None = None

    @property
    def cells(self) -> npt.NDArray[T]:
        """View of the own cells: (*components, *block.shape)."""
        return self.array[self.domain.block.cells]

    def around(self, region: Region) -> npt.NDArray[T]:
        """Return a view of a region of own cells and all cells that a stencil of the halo's width reaches from it.

        A function that computes n cells of an array from n + 2 * width can be applied to it.
        """
        return self.array[self.domain.block.around(region)]

    def begin(self) -> None:
        """Begin to send own cells and to receive the halo. Raises RuntimeError if an exchange is under way."""
        if self._requests is not None:
            raise RuntimeError("an exchange of this field is under way; call finish() first")
        communicator, memory = self.domain.communicator, self._memory
        # Receives come first: a message that arrives before its receive is copied once more.
        self._requests = [
            communicator.Irecv((memory, 1, message.received), message.rank, message.received_tag)
            for message in self._messages
        ]
        self._requests += [
            communicator.Isend((memory, 1, message.sent), message.rank, message.sent_tag) for message in self._messages
        ]

    def progress(self) -> bool:
        """Let MPI move what it can without waiting, as most libraries do only in calls; return whether all is here.

        For programs whose interior takes much longer than the exchange: call it between parts of the interior. Raises
        RuntimeError if no exchange is under way.
        """
        return bool(MPI.Request.Testall(self._under_way()))

    def finish(self) -> None:
        """Wait until the halo is received and own cells are sent. Raises RuntimeError if no exchange is under way."""
        MPI.Request.Waitall(self._under_way())
        self._requests = None
        for halo, own in self.domain.wraps:
            self.array[halo] = self.array[own]

    def _under_way(self) -> list[MPI.Request]:
        if self._requests is None:
            raise RuntimeError("no exchange of this field is under way; call begin() first")
        return self._requests

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """Exchange the halo while the body runs.

        After an exception of the body nothing is waited for, since the other ranks may have failed as well.
        """
        self.begin()
        yield
        self.finish()

    def gather(self, root: int = 0) -> npt.NDArray[T] | None:
        """Return on ``root`` the cells of all ranks, (*components, *shape), and None elsewhere. Called by all ranks."""
        domain = self.domain
        if domain.rank != root:
            self._move_cells(domain.communicator.Send, root)
            return None
        whole = np.empty((*self.components, *domain.decomposition.shape), self.array.dtype)
        whole[domain.block.place] = self.cells
        self._move_others(domain.communicator.Irecv, whole)
        return whole

    def scatter(self, whole: npt.NDArray[T] | None = None, root: int = 0) -> None:
        """Set the own cells of all ranks from an array on ``root``, (*components, *shape). Called by all ranks.

        Raises ValueError on ``root`` if the array has another shape; the others wait for it.
        """
        domain = self.domain
        if domain.rank != root:
            self._move_cells(domain.communicator.Recv, root)
            return
        shape = (*self.components, *domain.decomposition.shape)
        if whole is None or whole.shape != shape:
            raise ValueError(f"the array to scatter must be of the shape {shape}, on rank {root}")
        whole = np.ascontiguousarray(whole, self.array.dtype)
        self.cells[...] = whole[domain.block.place]
        self._move_others(domain.communicator.Isend, whole)

    def _move_cells(self, move: Callable[[BufSpec, int, int], None], root: int) -> None:
        """Send or receive the own cells."""
        with subarrays(self.array, [self.domain.block.cells]) as (cells,):
            move((self._memory, 1, cells), root, WHOLE_TAG)

    def _move_others(self, move: Callable[[BufSpec, int, int], MPI.Request], whole: npt.NDArray[T]) -> None:
        """Receive or send the cells of all other ranks."""
        decomposition, memory = self.domain.decomposition, whole.reshape(-1).view(np.uint8)
        others = [rank for rank in range(decomposition.ranks) if rank != self.domain.rank]
        with subarrays(whole, [decomposition.block(rank).place for rank in others]) as places:
            requests = [move((memory, 1, place), rank, WHOLE_TAG) for rank, place in zip(others, places, strict=True)]
            MPI.Request.Waitall(requests)


def subarray(shape: Sequence[int], region: Region, size: int) -> MPI.Datatype:
    """Return the type of a region of an array in C order whose elements have ``size`` bytes; the caller frees it."""
    unit = math.gcd(size, 8)
    slices = slices_of(region)
    components = len(shape) - len(slices)
    sizes = list(shape)
    starts = [0] * components + [part.start for part in slices]
    counts = [*shape[:components], *(part.stop - part.start for part in slices)]
    for lengths in (sizes, counts, starts):
        lengths[-1] *= size // unit  # an element of several units: that many in the last dimension
    return UNITS[unit].Create_subarray(sizes, counts, starts).Commit()


@contextmanager
def subarrays(array: npt.NDArray[T], regions: Sequence[Region]) -> Iterator[Sequence[MPI.Datatype]]:
    """Have the types of regions of an array, and free them at the end."""
    types = [subarray(array.shape, region, array.itemsize) for region in regions]
    try:
        yield types
    finally:
        for type in types:
            type.Free()
