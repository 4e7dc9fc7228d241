"""Recurrent state of graphs: inputs that get the value of an output of the call before, until the next reset."""

import copy
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .base import Misfit, NoAction
from .tensors import Tensor, numeric

if TYPE_CHECKING:
    from .base import Array

#: The model's metadata entry that pairs inputs and outputs of the state, as JSON.
METADATA = "windtunnel.state"
#: A word of an input's name that says that it is a state, and the word in the name of the output it is paired with.
WORDS = {"in": "out", "ins": "outs"}
#: How to pair an input with an output, for errors.
PAIRING = (
    "name the pair X_in and X_out, or name its output in the model's metadata:"
    f' {METADATA} = {{"input name": "output name"}}'
)


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


def states_of(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], declared: Mapping[str, DeclaredState]
) -> Iterable[RecurrentState]:
    """Yield the pairs of the metadata and those by name; raise Misfit if the two of a pair differ."""
    by_name = {tensor.name: tensor for tensor in outputs}
    if unknown := declared.keys() - {tensor.name for tensor in inputs}:
        raise Misfit(
            f"the model's metadata entry {METADATA} names the input {min(unknown)}; the inputs are {names_of(inputs)}"
        )
    for tensor in inputs:
        if (pair := declared.get(tensor.name)) is not None:
            if pair.output not in by_name:
                raise Misfit(
                    f"the model's metadata entry {METADATA} names the output {pair.output}; the outputs are"
                    f" {names_of(outputs)}"
                )
            yield checked_state(RecurrentState(tensor, by_name[pair.output], pair.initial))
        elif len(inputs) > 1 and (output := by_name.get(output_name(tensor.name))) is not None:
            yield checked_state(RecurrentState(tensor, output))


def output_name(name: str) -> str:
    """Return the name of the output that an input's name pairs it with, such as h_out for h_in; "" for none."""
    words = re.split(r"([^A-Za-z0-9]+)", name)
    places = [index for index, word in enumerate(words) if word in WORDS]
    if len(places) != 1 or len(words) == 1:
        return ""
    words[places[0]] = WORDS[words[places[0]]]
    return "".join(words)


def checked_state(state: RecurrentState) -> RecurrentState:
    """Return a state whose input and output have the same type and shape; raise Misfit if they differ."""
    before, after = state.input, state.output
    if numeric(before.dtype) is None:
        raise Misfit(f"the model's state {before.name} is {before.type}; a state is an array of numbers")
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


def names_of(tensors: Iterable[Tensor]) -> str:
    """List names for an error."""
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


def _batch_axis(state: RecurrentState, observation: Tensor) -> int | None:
    """Return the axis of a state that is its batch's; None if it has none."""
    try:
        one, two = state_shape(state, observation, 1), state_shape(state, observation, 2)
    except Misfit:
        return None
    return next((axis for axis, sizes in enumerate(zip(one, two, strict=True)) if sizes == (1, 2)), None)


class RecurrentValues:
    """The values that a graph's states have in a scenario, for every row of a batch."""

    def __init__(self, states: Sequence[RecurrentState], observation: Tensor, batch: int) -> None:
        import numpy as np  # the server reads formats without it

        self._initial: dict[str, Array] = {
            state.input.name: np.full(state_shape(state, observation, batch), state.initial, state.input.dtype)
            for state in states
        }
        axes = {state.input.name: _batch_axis(state, observation) for state in states}
        #: Whether values of several scenarios can be joined: each has an axis for the batch.
        self.joins = None not in axes.values()
        self._axes = {name: axis for name, axis in axes.items() if axis is not None}
        self._join = np.concatenate
        #: The values for the next call, by the names of their inputs.
        self.inputs: Mapping[str, Array] = self._initial

    def join_rows(self, rows: "Sequence[RecurrentValues]") -> "Mapping[str, Array]":
        """Return the values of scenarios for one call, which are of a batch of one each."""
        return {name: self._join([values.inputs[name] for values in rows], axis) for name, axis in self._axes.items()}

    def divide(self, rows: "Sequence[RecurrentValues]", outputs: "Sequence[Array]") -> None:
        """Feed the outputs of such a call back to each scenario; raise NoAction if a shape has changed."""
        places = list(zip(outputs, self._axes.values(), strict=True))
        if any(value.ndim <= axis or value.shape[axis] != len(rows) for value, axis in places):
            raise NoAction(f"a state of the model has not one value for each of {len(rows)} observations")
        for at, values in enumerate(rows):
            values.keep([value[(slice(None),) * axis + (slice(at, at + 1),)] for value, axis in places])

    def of_another_row(self) -> "RecurrentValues":
        """Return the values of another scenario, which begin with the initial ones."""
        values = copy.copy(self)
        values.reset()
        return values

    def reset(self) -> None:
        """Begin with the initial values."""
        self.inputs = self._initial

    def keep(self, outputs: "Sequence[Array]") -> None:
        """Feed outputs back, in the order of the states; raise NoAction if a shape has changed."""
        values = dict(zip(self._initial, outputs, strict=True))
        for name, value in values.items():
            if value.shape != self._initial[name].shape:
                raise NoAction(
                    f"the model's state {name} has the shape {self._initial[name].shape}, and its output"
                    f" {value.shape}; what is fed back has to have the same shape"
                )
        self.inputs = values
