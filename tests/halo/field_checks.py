"""Program of tests: what fields and checkpoints do on any number of ranks. ``field_checks.py CHECK [FOLDER]``."""

import json
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from halo import checkpoints
from halo.fields import Domain, Field

WORLD = MPI.COMM_WORLD
SHAPE = (13, 11)
#: A type with an odd number of bytes, and others of which numpy has no buffer or MPI no type.
RECORD = np.dtype([("position", np.float32, (3,)), ("kind", np.int8)])
TYPES = (np.bool_, np.int16, np.float32, np.float64, np.longdouble, np.complex128, "datetime64[s]", "S3", RECORD)


def whole(dtype: np.dtype, components: tuple[int, ...]) -> np.ndarray:
    """Return the same array on every rank, with elements of all bytes that are valid."""
    random = np.random.default_rng(7)
    count = int(np.prod((*components, *SHAPE)))
    if dtype == np.bool_:
        return random.integers(0, 2, (*components, *SHAPE)).astype(dtype)
    values = random.integers(0, 120, count * dtype.itemsize, np.uint8)
    return values.view(dtype).reshape(*components, *SHAPE)


def equal(left: np.ndarray, right: np.ndarray) -> bool:
    return left.shape == right.shape and left.tobytes() == right.tobytes()


def types() -> None:
    """All types and numbers of components are exchanged, gathered and scattered by their bytes."""
    domain = Domain(WORLD, SHAPE, width=(2, 1), periodic=True)
    for dtype in map(np.dtype, TYPES):
        for components in ((), (3,), (2, 2)):
            field = Field(domain, dtype, components)
            given = whole(dtype, components)
            field.scatter(given if WORLD.rank == 0 else None)
            with field.exchange():
                pass
            around = np.pad(given, [(0, 0)] * len(components) + [(2, 2), (1, 1)], mode="wrap")
            place = [
                slice(start, stop + 2 * width)
                for start, stop, width in zip(domain.block.start, domain.block.stop, (2, 1), strict=True)
            ]
            assert equal(field.array, np.ascontiguousarray(around[(..., *place)])), (dtype, components)
            gathered = field.gather(root=WORLD.size - 1)
            assert (gathered is None) == (WORLD.rank != WORLD.size - 1)
            assert gathered is None or equal(gathered, given)
    domain.free()


def several() -> None:
    """Fields of one domain are exchanged at the same time, and beside messages of the program with any number."""
    domain = Domain(WORLD, SHAPE, periodic=(True, False))
    fields = [Field(domain, np.int64) for _ in range(3)]
    for number, field in enumerate(fields):
        field.array[...] = number
        for edge in domain.edges:
            field.array[edge.ghosts] = -1
    answer = WORLD.irecv(source=(WORLD.rank - 1) % WORLD.size, tag=MPI.ANY_TAG)
    for field in fields:
        field.begin()
    for field in fields:
        while not field.progress():
            pass
        field.finish()
    WORLD.send("mine", (WORLD.rank + 1) % WORLD.size, 1)
    assert answer.wait() == "mine"
    for number, field in enumerate(fields):
        for edge in domain.edges:
            assert (field.array[edge.ghosts] == -1).all()
            field.array[edge.ghosts] = number
        assert (field.array == number).all()
    domain.free()


def refusals() -> None:
    """What cannot be is refused, with its reason."""
    domain = Domain(WORLD, SHAPE)
    field = Field(domain, np.float64)
    refused(RuntimeError, "call begin() first", field.finish)
    refused(RuntimeError, "call begin() first", field.progress)
    field.begin()
    refused(RuntimeError, "call finish() first", field.begin)
    field.finish()
    try:
        with field.exchange():
            raise KeyError("of the body")
    except KeyError:
        field.finish()  # nothing was waited for
    refused(TypeError, "mean nothing to another rank", lambda: Field(domain, np.dtype(object)))
    refused(ValueError, "the communicator", lambda: Domain(WORLD, SHAPE, grid=(WORLD.size, 2)))
    refused(ValueError, "fewer than", lambda: Domain(WORLD, (WORLD.size, WORLD.size), width=WORLD.size + 1))
    if WORLD.rank == 0:
        refused(ValueError, "must be of the shape (13, 11)", lambda: field.scatter(np.zeros((3, 3))))
    chosen = Domain(WORLD, SHAPE, grid=(0, 1))
    assert chosen.decomposition.grid == (WORLD.size, 1)
    chosen.free()
    domain.free()


def refused(error: type[Exception], reason: str, call) -> None:
    try:
        call()
    except error as caught:
        assert reason in str(caught), caught
    else:
        raise AssertionError(f"not refused: {reason}")


def fields_of(domain: Domain) -> dict[str, Field]:
    return {"u": Field(domain, np.float64), "v": Field(domain, RECORD, 2)}


def save(folder: str) -> None:
    """Save two fields; a second time is refused, and so is a folder that cannot be written."""
    domain = Domain(WORLD, SHAPE, width=2)
    fields = fields_of(domain)
    for field in fields.values():
        field.cells[...] = whole(field.array.dtype, field.components)[domain.block.place]
    checkpoints.save(folder, fields, {"step": 41})
    refused(FileExistsError, "has a checkpoint", lambda: checkpoints.save(folder, fields))
    # A file of one rank cannot be written: all ranks are told.
    obstructed = Path(folder, "obstructed")
    if WORLD.rank == 0:
        (obstructed / f"u.{WORLD.size - 1:05}.npy").mkdir(parents=True)
    WORLD.Barrier()
    refused(OSError, f"rank {WORLD.size - 1}", lambda: checkpoints.save(obstructed, fields))
    refused(FileNotFoundError, "index.json", lambda: checkpoints.load(obstructed, fields))
    domain.free()


def load(folder: str) -> None:
    """Load them on this number of ranks, in another grid and with another halo."""
    domain = Domain(WORLD, SHAPE, width=1, periodic=True, grid=(1, 0))
    fields = fields_of(domain)
    state = checkpoints.load(folder, fields)
    assert state == {"step": 41}, state
    for field in fields.values():
        given = whole(field.array.dtype, field.components)[domain.block.place]
        assert equal(np.ascontiguousarray(field.cells), np.ascontiguousarray(given))
    refused(KeyError, "has the fields u, v", lambda: checkpoints.load(folder, {"w": fields["u"]}))
    refused(ValueError, "the field float32", lambda: checkpoints.load(folder, {"u": Field(domain, np.float32)}))
    refused(ValueError, "the domain (26,)", lambda: checkpoints.load(folder, {"u": Field(Domain(WORLD, 26), float)}))
    if WORLD.rank == 0:
        print(json.dumps({"grid": domain.decomposition.grid}))
    domain.free()


if __name__ == "__main__":
    {check.__name__: check for check in (types, several, refusals, save, load)}[sys.argv[1]](*sys.argv[2:])
