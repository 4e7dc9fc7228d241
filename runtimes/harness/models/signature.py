"""Signature of a graph: its declared inputs and outputs, and which of them are observation, action and state."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..simulators.base import Space
from .base import Misfit, format_type

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Names of the observation's input and of the action's output, the most telling first.
OBSERVATIONS, ACTIONS = ("observation", "obs", "input"), ("action", "actions")
#: The model's metadata entry that pairs inputs and outputs of the state, as JSON.
METADATA = "windtunnel.state"
#: A word of an input's name that says that it is a state, and the word in the name of the output it is paired with.
WORDS = {"in": "out", "ins": "outs"}
#: The most characters of a description, which a model server sends in one frame with the others.
LONGEST = 2000
PAIRING = (
    "name the pair X_in and X_out, or name its output in the model's metadata:"
    f' {METADATA} = {{"input name": "output name"}}'
)


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


@dataclass(frozen=True, slots=True)
class RecurrentState:
    """An input that gets the value of an output of the call before; ``initial``: its value after a reset."""

    input: Tensor
    output: Tensor
    initial: float = 0.0


@dataclass(frozen=True, slots=True)
class DeclaredState:
    """A pair of the model's metadata: the name of the output, and the value after a reset."""

    output: str
    initial: float = 0.0


@dataclass(frozen=True, slots=True)
class Signature:
    """Which input is the observation, which output is the action, and what is fed back."""

    observation: Tensor
    action: Tensor
    states: tuple[RecurrentState, ...] = ()


def declared_states(text: str) -> dict[str, DeclaredState]:
    """Read the metadata entry's pairs, ``{"input": "output"}`` or ``{"input": {"output": "output", "initial": 1}}``."""
    try:
        pairs = json.loads(text)
        return {name: _declared_state(value) for name, value in pairs.items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        raise Misfit(
            f"the model's metadata entry {METADATA} is {text[:100]!r}; it has to be a JSON object such as"
            ' {"input name": "output name"} or {"input name": {"output": "output name", "initial": 1.0}}'
        ) from None


def _declared_state(value: Any) -> DeclaredState:
    if isinstance(value, str):
        return DeclaredState(value)
    if not isinstance(value["output"], str) or not value.keys() <= {"output", "initial"}:
        raise ValueError
    return DeclaredState(value["output"], float(value.get("initial", 0.0)))


def signature_of(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], declared: Mapping[str, DeclaredState] | None = None
) -> Signature:
    """Find observation, action and state; raise Misfit with the inputs that are neither.

    The only input is the observation, whatever its name. Pairs of the metadata come before those by name.
    """
    if not inputs or not outputs:
        raise Misfit(f"the model has no {'output' if inputs else 'input'}")
    states = tuple(_states(inputs, outputs, declared or {}))
    paired = {state.input.name for state in states}
    observation = _observation([tensor for tensor in inputs if tensor.name not in paired], states)
    fed_back = {state.output.name for state in states}
    answers = [tensor for tensor in outputs if tensor.name not in fed_back]
    if not answers:
        raise Misfit(f"all outputs of the model are states ({_names(outputs)}); it needs one more, the action")
    return Signature(observation, _named(answers, ACTIONS) or answers[0], states)


def _states(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], declared: Mapping[str, DeclaredState]
) -> Iterable[RecurrentState]:
    by_name = {tensor.name: tensor for tensor in outputs}
    if unknown := declared.keys() - {tensor.name for tensor in inputs}:
        raise Misfit(
            f"the model's metadata entry {METADATA} names the input {min(unknown)}; the inputs are {_names(inputs)}"
        )
    for tensor in inputs:
        if (pair := declared.get(tensor.name)) is not None:
            if pair.output not in by_name:
                raise Misfit(
                    f"the model's metadata entry {METADATA} names the output {pair.output}; the outputs are"
                    f" {_names(outputs)}"
                )
            yield _checked(RecurrentState(tensor, by_name[pair.output], pair.initial))
        elif len(inputs) > 1 and (output := by_name.get(_output_name(tensor.name))) is not None:
            yield _checked(RecurrentState(tensor, output))


def _output_name(name: str) -> str:
    """Return the name of the output that an input's name pairs it with, such as h_out for h_in; "" for none."""
    words = re.split(r"([^A-Za-z0-9]+)", name)
    places = [index for index, word in enumerate(words) if word in WORDS]
    if len(places) != 1 or len(words) == 1:
        return ""
    words[places[0]] = WORDS[words[places[0]]]
    return "".join(words)


def _checked(state: RecurrentState) -> RecurrentState:
    before, after = state.input, state.output
    fits = before.dtype == after.dtype and (
        before.shape is None
        or after.shape is None
        or (
            len(before.shape) == len(after.shape)
            and all(None in sizes or sizes[0] == sizes[1] for sizes in zip(before.sizes, after.sizes, strict=True))
        )
    )
    if not fits:
        raise Misfit(
            f"the model's state {before.name} is {before.type}, and its output {after.name} is {after.type}; what is"
            " fed back has to have the same type and shape"
        )
    return state


def _observation(candidates: Sequence[Tensor], states: Sequence[RecurrentState]) -> Tensor:
    observation = _named(candidates, OBSERVATIONS) or (candidates[0] if len(candidates) == 1 else None)
    if observation is None:
        besides = f" besides its state ({', '.join(state.input.name for state in states)})" if states else ""
        found = f"{len(candidates)} inputs ({_names(candidates)})" if candidates else "no input"
        raise Misfit(f"the model has {found}{besides}; name the input of the observation {' or '.join(OBSERVATIONS)}")
    for tensor in candidates:
        if tensor is not observation:
            raise Misfit(
                f"the model's input {tensor.name} {tensor.type} is neither the observation ({observation.name}) nor a"
                f" state that an output is paired with; if it is a state, {PAIRING}; otherwise export the model"
                " without it"
            )
    return observation


def _named(tensors: Sequence[Tensor], names: Sequence[str]) -> Tensor | None:
    by_name = {tensor.name: tensor for tensor in tensors}
    return next((by_name[name] for name in names if name in by_name), None)


def _names(tensors: Iterable[Tensor]) -> str:
    return ", ".join(tensor.name for tensor in tensors)


def state_shape(state: RecurrentState, observation: Tensor, batch: int) -> tuple[int, ...]:
    """Return the shape of a state's value: the size of its batch axis is ``batch``.

    The batch axis is named as the observation's is, or is the only axis of unknown size. A state without a batch axis
    would be shared by the scenarios of a batch, so Misfit is raised.
    """
    tensor = state.input if state.input.shape is not None else state.output
    if tensor.shape is None:
        raise Misfit(f"the model's state {tensor.name} has an unknown rank; declare its shape")
    first = observation.shape[0] if observation.shape else None
    named = [isinstance(size, str) and size == first for size in tensor.shape]
    unknown = [size is None for size in tensor.sizes]
    axes = named if any(named) else unknown
    if sum(axes) > 1 or any(size and not axis for size, axis in zip(unknown, axes, strict=True)):
        raise Misfit(
            f"the model's state {tensor.name} is {tensor.type}, with more than one unknown size; export it with fixed"
            " sizes, except for the batch axis"
        )
    shape = tuple(batch if axis else size or 0 for axis, size in zip(axes, tensor.sizes, strict=True))
    if batch > 1 and batch not in shape:
        raise Misfit(
            f"the model's state {tensor.name} is {tensor.type}, without an axis for the batch of {batch}; export it"
            " with a dynamic batch axis, or run it with a batch of 1"
        )
    return shape


def initial_states(states: Iterable[RecurrentState], observation: Tensor, batch: int) -> "dict[str, NDArray[Any]]":
    """Return the values that states have after a reset, by the name of their input."""
    import numpy as np  # the server reads formats without it

    return {
        state.input.name: np.full(state_shape(state, observation, batch), state.initial, state.input.dtype)
        for state in states
    }


def check_input(tensor: Tensor, space: Space, batch: int) -> None:
    """Check that an input takes a space's observations; raise Misfit with both types.

    Floats of any width are fed a float space; otherwise the input's type must have all values of the space's type.
    """
    import numpy as np  # the server reads formats without it

    found, wanted = _numeric(tensor.dtype), np.dtype(space.dtype)
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
    if _numeric(tensor.dtype) is None or not _fits(tensor, space, batch):
        error = _misfit("output", tensor, "takes", space, batch)
        raise Misfit(f"{error}{_scores(tensor, space)}")


def check_output_type(dtype: str, space: Space) -> None:
    """Refuse floats for a space of integers, which a conversion would cut off."""
    import numpy as np  # the server reads formats without it

    output = _numeric(dtype)
    if output is not None and output.kind == "f" and np.dtype(space.dtype).kind in "iub":
        raise Misfit(
            f"the model's output is {dtype}; the dataset takes {format_type(space.dtype, space.shape)}, whole numbers:"
            " export the index of the best action (add ArgMax, such as torch.argmax(scores, dim=1)), or round the"
            " output and cast it to an integer type"
        )


def _numeric(dtype: str) -> Any:
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


def _scores(tensor: Tensor, space: Space) -> str:
    """Return the advice for an output that has a score for each value of a discrete action; "" for any other."""
    count = tensor.sizes[-1] if tensor.shape and len(tensor.shape) == 2 else None
    if count is None or math.prod(space.shape) != 1 or (space.low[0], space.high[0]) != (0, count - 1):
        return ""
    return (
        f"; if these are the scores of the {count} actions, export the index of the best one (add ArgMax, such as"
        " torch.argmax(scores, dim=1))"
    )


def input_shape(tensor: Tensor, space: Space) -> tuple[int, ...]:
    """Return the shape of one row that an input declares: the space's own, flat, or of a single element none."""
    if not tensor.shape or len(tensor.shape) == 1 + len(space.shape):
        return space.shape
    return (math.prod(space.shape),) if len(tensor.shape) == 2 else ()


def described(signature: Signature, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> dict[str, str]:
    """Describe a signature for people: its inputs and outputs, and what is fed back."""
    return {
        "inputs": _listed(map(str, inputs)),
        "outputs": _listed(map(str, outputs)),
        "observation": signature.observation.name[:LONGEST],
        "action": signature.action.name[:LONGEST],
        "state": _listed(f"{state.input.name} from {state.output.name}" for state in signature.states) or "none",
    }


def _listed(texts: Iterable[str]) -> str:
    text = ", ".join(texts)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
