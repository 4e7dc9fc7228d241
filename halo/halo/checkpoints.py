"""Checkpoints of fields: a folder with the block of each rank, which any number of ranks can load.

`index.json` says which cells each file has, and is written when all files are, so that a program which is killed while
it saves leaves no index. Files are ``NAME.RANK.npy``: the own cells of a field, (*components, *block shape). Reading
needs no MPI.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from halo.decomposition import Decomposition, Region, Shape

if TYPE_CHECKING:
    from halo.fields import Domain

INDEX = "index.json"
#: Version of the format; a reader refuses others.
FORMAT = 1
#: What JSON can hold.
State = Mapping[str, object]


class SavedField(Protocol):
    """A `Field` as a checkpoint sees it, whatever its type."""

    @property
    def domain(self) -> "Domain":
        """The domain that it is on."""

    @property
    def cells(self) -> npt.NDArray[np.generic]:
        """View of the own cells: (*components, *block.shape)."""


@dataclass(frozen=True, slots=True)
class SavedBlock:
    """The cells of a rank: from ``start`` to before ``stop`` in each dimension."""

    start: Shape
    stop: Shape

    def overlap(self, start: Shape, stop: Shape) -> tuple[Shape, Shape] | None:
        """Return the first cells and the ends of what it has of other cells; None if it has none of them."""
        low, high = tuple(map(max, self.start, start)), tuple(map(min, self.stop, stop))
        return (low, high) if all(map(int.__lt__, low, high)) else None


@dataclass(frozen=True, slots=True)
class Index:
    """Contents of a checkpoint. ``shape``: of the whole grid; ``blocks``: by rank; ``state``: the program's own."""

    format: int
    shape: Shape
    fields: Sequence[str]
    blocks: Sequence[SavedBlock]
    state: State


def save(folder: Path | str, fields: Mapping[str, SavedField], state: State | None = None) -> None:
    """Save fields of one domain, and a small state that JSON can hold, of rank 0. Called by all ranks.

    The folder must be the same for all ranks, as it is on one machine. A checkpoint is not written over: each has a
    folder of its own. Raises FileExistsError if the folder has a checkpoint, and OSError on all ranks if one of them
    cannot write.
    """
    folder, (first, *others) = Path(folder), fields.values()
    domain = first.domain
    if any(field.domain is not domain for field in others):
        raise ValueError("fields of one checkpoint must be of one domain")
    if (folder / INDEX).exists():
        raise FileExistsError(f"{folder} has a checkpoint; save each in a folder of its own")
    problem = None
    try:
        for name, field in fields.items():
            write_block(folder, name, domain.rank, field.cells)
    except OSError as error:
        problem = f"rank {domain.rank}: {error}"
    # Every rank has looked for an index, and has written its files, before the index is written.
    if problems := [text for text in domain.communicator.allgather(problem) if text is not None]:
        raise OSError(f"the checkpoint {folder} cannot be written: {'; '.join(problems)}")
    if domain.rank == 0:
        write_index(folder, domain.decomposition, list(fields), state or {})
    domain.communicator.Barrier()


def load(folder: Path | str, fields: Mapping[str, SavedField]) -> State:
    """Set the own cells of fields from a checkpoint of any number of ranks; return its state. Halos are not set.

    Each rank reads its cells only, and waits for no other. Raises FileNotFoundError if the folder has no checkpoint,
    KeyError if it lacks a field, and ValueError if a field has other cells, components or another type.
    """
    index = read_index(folder)
    for name, field in fields.items():
        if index.shape != field.domain.decomposition.shape:
            raise ValueError(f"{folder} has cells {index.shape}, the domain {field.domain.decomposition.shape}")
        block = field.domain.block
        cells = read(folder, name, block.start, block.stop)
        own = field.cells
        if cells.shape != own.shape or cells.dtype != own.dtype:
            raise ValueError(
                f"{name} in {folder} is {cells.dtype} of {cells.shape}, the field {own.dtype} of {own.shape}"
            )
        own[...] = cells
    return index.state


def read(
    folder: Path | str, name: str, start: Shape | None = None, stop: Shape | None = None
) -> npt.NDArray[np.generic]:
    """Return the cells of a field from ``start`` to before ``stop``, or of the whole grid: (*components, *cells).

    Only files that have some of these cells are opened. Raises as `load` does.
    """
    index, folder = read_index(folder), Path(folder)
    if name not in index.fields:
        raise KeyError(f"{folder} has the fields {', '.join(index.fields)}, not {name}")
    start, stop = start or (0,) * len(index.shape), stop or index.shape
    cells: npt.NDArray[np.generic] | None = None
    for rank, block in enumerate(index.blocks):
        if (overlap := block.overlap(start, stop)) is None:
            continue
        saved = np.load(folder / f"{name}.{rank:05}.npy", mmap_mode="r")
        if cells is None:
            components = saved.shape[: saved.ndim - len(start)]
            cells = np.empty((*components, *(end - begin for begin, end in zip(start, stop, strict=True))), saved.dtype)
        cells[place(*overlap, start)] = saved[place(*overlap, block.start)]
    if cells is None:
        raise ValueError(f"{folder} has no cells from {start} to {stop}")
    return cells


def place(start: Shape, stop: Shape, origin: Shape) -> Region:
    """Return the index of cells in an array whose first cell is ``origin``."""
    return (..., *(slice(low - first, high - first) for low, high, first in zip(start, stop, origin, strict=True)))


def write_block(folder: Path | str, name: str, rank: int, cells: npt.NDArray[np.generic]) -> None:
    """Write the own cells of a rank. Raises ValueError if their elements are references, and OSError."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    with open(Path(folder) / f"{name}.{rank:05}.npy", "wb") as file:
        np.save(file, cells, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())


def write_index(folder: Path | str, decomposition: Decomposition, fields: Sequence[str], state: State) -> None:
    """Write the index of a checkpoint whose files are written, whole or not at all."""
    blocks = [decomposition.block(rank) for rank in range(decomposition.ranks)]
    places = [SavedBlock(block.start, block.stop) for block in blocks]
    index = Index(FORMAT, decomposition.shape, fields, places, state)
    unfinished = Path(folder) / f"{INDEX}.new"
    unfinished.write_text(json.dumps(asdict(index)) + "\n")
    unfinished.replace(Path(folder) / INDEX)


def read_index(folder: Path | str) -> Index:
    """Return the index of a checkpoint. Raises FileNotFoundError without one, ValueError of another format."""

    def index(
        *,
        format: int,
        shape: Sequence[int] = (),
        fields: Sequence[str] = (),
        blocks: Sequence[Mapping[str, Sequence[int]]] = (),
        state: State | None = None,
        **_: object,
    ) -> Index:
        if format != FORMAT:
            raise ValueError(f"{folder} is a checkpoint of format {format}; this version reads {FORMAT}")
        places = [SavedBlock(**{name: tuple(cells) for name, cells in block.items()}) for block in blocks]
        return Index(format, tuple(shape), fields, places, state or {})

    return index(**json.loads((Path(folder) / INDEX).read_text()))
