"""The model port: what a format's module must offer the model server, and the ways in which a model does not fit."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..simulators.base import Interface, Space

T = TypeVar("T")

#: The most bytes a model's unpacked files may take where it is confined: a part of its temporary folder.
UNPACKED = 48 << 20


class Misfit(Exception):
    """The model cannot be used here, for a reason that its owner can read."""


class NoAction(Exception):
    """The model answered something that is no action."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """What a model is loaded for. ``scratch`` is a folder it may write to, or None where there is none."""

    source: bytes
    interface: Interface
    batch: int = 1
    params: Mapping[str, Any] = field(default_factory=dict)
    scratch: Path | None = None

    def folder(self) -> Path:
        """Return an empty folder for the model's own files."""
        if self.scratch is None:
            raise Misfit("the model has files of its own, and this machine's sandbox gives it no folder to unpack them")
        folder = self.scratch / "model"
        os.makedirs(folder, exist_ok=True)
        return folder


class Model(Protocol):
    """A loaded model. ``info`` tells a person what it is."""

    info: Mapping[str, str | int | float | bool | None]

    def reset(self, seed: int) -> None:
        """Forget the last scenario. Chance has been seeded already."""

    def act(self, observations: NDArray[Any]) -> bytes:
        """Answer ``[n, *observation shape]`` with the bytes of ``[n, *action shape]``; raise NoAction if it is none."""


class Format(Protocol):
    """A format's module."""

    def preload(self) -> None:
        """Import what models of this format need, before any model is there."""

    def load(self, assignment: Assignment) -> Model:
        """Load a model and check that it fits; raise Misfit saying why not."""


def action_bytes(answer: Any, count: int, space: Space) -> bytes:
    """Return an answer as the bytes of ``count`` actions; raise NoAction unless it has exactly their elements."""
    if answer is None:  # numpy would make it a NaN
        raise NoAction("the model answered nothing (None)")
    try:
        array = np.asarray(answer, dtype=space.dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise NoAction(f"the model answered {type(answer).__name__}, which is no array of numbers: {error}") from None
    if array.nbytes != count * space.size:
        wanted = space.shape if count == 1 else (count, *space.shape)
        raise NoAction(f"the model answered an array of shape {array.shape}, not {wanted}")
    return array.tobytes()


def shown(dtype: str, shape: Sequence[Any]) -> str:
    """Write a type as people do, ``float32[n,32]``."""
    sizes = ("n" if size is None or not isinstance(size, int) or size < 0 else str(size) for size in shape)
    return f"{dtype}[{','.join(sizes)}]"


def chosen(among: Sequence[T], name: str, what: str, name_of: Callable[[T], str], *, alone: bool = False) -> T:
    """Return the input or output of this name, or the first; where it must be ``alone``, there may be no other."""
    if not among:
        raise Misfit(f"the model has no {what}")
    if alone and len(among) > 1:
        names = ", ".join(name_of(one) for one in among)
        raise Misfit(f"the model has {len(among)} {what}s ({names}); it is given one, the {name}")
    return next((one for one in among if name_of(one) == name), among[0])


def check_batched(what: str, dtype: str, shape: Sequence[Any], space: Space, verb: str, batch: int) -> None:
    """Check a graph's declared ``[n, ...]`` against a space; an unknown size fits everything."""
    sizes = [size if isinstance(size, int) and size > 0 else None for size in shape]
    flat = int(np.prod(space.shape, dtype=np.int64))
    alternatives = ([batch, *space.shape], [batch, flat])
    fits = dtype == space.dtype and any(
        len(sizes) == len(wanted)
        and all(have is None or have == want for have, want in zip(sizes, wanted, strict=True))
        for wanted in alternatives
    )
    if not fits:
        raise Misfit(
            f"the model's {what} is {shown(dtype, shape)}; the dataset {verb} {shown(space.dtype, space.shape)},"
            f" which makes it {shown(space.dtype, [None, *space.shape])}" + (f" with n = {batch}" if batch > 1 else "")
        )
