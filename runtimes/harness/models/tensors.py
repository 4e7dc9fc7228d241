"""Declared inputs and outputs of graphs, and whether they fit the observations and actions of a dataset."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..simulators.base import Space
from .base import Misfit, format_type, scores_advice

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Tensor:
    """A declared input or output. A size that is not an integer above 0 is unknown; no ``shape``: unknown rank."""

    name: str
    dtype: str
    shape: tuple[Any, ...] | None

    def __str__(self) -> str:
        return f"{self.name} {self.type}"

    @property
    def type(self) -> str:
        """The type for people, such as ``float32[n,32]``."""
        return format_type(self.dtype, self.shape) if self.shape else self.dtype

    @property
    def sizes(self) -> tuple[int | None, ...]:
        """The sizes, with None for those that are unknown; the rank must be known."""
        assert self.shape is not None
        return tuple(size if isinstance(size, int) and size > 0 else None for size in self.shape)


def check_input(tensor: Tensor, space: Space, batch: int) -> None:
    """Check that an input takes a space's observations; raise Misfit with both types.

    Floats of any width are fed a float space; otherwise the input's type must have all values of the space's type.
    """
    import numpy as np  # the server reads formats without it

    found, wanted = numeric(tensor.dtype), np.dtype(space.dtype)
    if found is None or not _takes(found, wanted) or not _fits(tensor, space, batch):
        raise _misfit("input", tensor, "observes", space, batch)


def _takes(type: "np.dtype[Any]", observed: "np.dtype[Any]") -> bool:
    import numpy as np

    if type.kind == observed.kind == "f":
        return True
    # numpy calls it safe to convert 64-bit integers to floats, which is not exact.
    rounds = type.kind == "f" and observed.kind in "iu" and observed.itemsize == 8
    return np.can_cast(observed, type, "safe") and not rounds


def check_output(tensor: Tensor, space: Space, batch: int) -> None:
    """Check that an output gives a space's actions; raise Misfit with both types and what to export instead."""
    check_output_type(tensor.dtype, space)
    if numeric(tensor.dtype) is None or not _fits(tensor, space, batch):
        scores = tensor.sizes[-1] if tensor.shape and len(tensor.shape) == 2 else None
        advice = scores_advice(scores or 0, space)
        raise Misfit(f"{_misfit('output', tensor, 'takes', space, batch)}{advice}")


def check_output_type(dtype: str, space: Space) -> None:
    """Refuse floats for a space of integers, which a conversion would cut off."""
    import numpy as np  # the server reads formats without it

    output = numeric(dtype)
    if output is not None and output.kind == "f" and np.dtype(space.dtype).kind in "iub":
        raise Misfit(
            f"the model's output is {dtype}; the dataset takes {format_type(space.dtype, space.shape)}, whole numbers:"
            " export the index of the best action (add ArgMax, such as torch.argmax(scores, dim=1)), or round the"
            " output and cast it to an integer type"
        )


def check_features(features: int, space: Space, made: str) -> None:
    """Check an estimator's number of features; ``made``: what has them since when, as "model was trained"."""
    if features != (wanted := math.prod(space.shape)):
        raise Misfit(
            f"the {made} with {features} features; the dataset observes {wanted} numbers"
            f" ({format_type(space.dtype, space.shape)})"
        )


def numeric(dtype: str) -> Any:
    """Return numpy's type of this name, or None if it is not a type of numbers."""
    import numpy as np

    try:
        found = np.dtype(dtype)
    except TypeError:
        return None
    return found if found.kind in "fiub" else None


def _fits(tensor: Tensor, space: Space, batch: int) -> bool:
    """Whether a shape is unknown, ``[n, *shape]``, ``[n, elements]`` or, of a space of a single element, ``[n]``."""
    if not tensor.shape:  # onnxruntime describes an unknown rank like that of a scalar
        return True
    flat = math.prod(space.shape)
    alternatives = [(batch, *space.shape), (batch, flat), *([(batch,)] if flat == 1 else [])]
    return any(
        len(tensor.sizes) == len(expected)
        and all(size is None or size == length for size, length in zip(tensor.sizes, expected, strict=True))
        for expected in alternatives
    )


def _misfit(what: str, tensor: Tensor, verb: str, space: Space, batch: int) -> Misfit:
    return Misfit(
        f"the model's {what} is {tensor.type}; the dataset {verb} {format_type(space.dtype, space.shape)},"
        f" so it has to be {format_type(space.dtype, [None, *space.shape])}"
        + (f" with n = {batch}" if batch > 1 else "")
    )


def input_shape(tensor: Tensor, space: Space) -> tuple[int, ...]:
    """Return the shape of one row that an input declares: the space's own, flat, or of a single element none."""
    if not tensor.shape or len(tensor.shape) == 1 + len(space.shape):
        return space.shape
    return (math.prod(space.shape),) if len(tensor.shape) == 2 else ()
