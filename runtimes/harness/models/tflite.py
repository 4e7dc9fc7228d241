"""Models in TensorFlow Lite, run by LiteRT on one thread."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

from .base import Assignment, Misfit, Model, action_bytes, check_batched, chosen


def preload() -> None:
    """Everything was imported with this module."""


def load(assignment: Assignment) -> Model:
    """Make an interpreter of the bytes, size it for the batch, and check its input and output."""
    try:
        interpreter = Interpreter(model_content=assignment.source, num_threads=1)
    except (RuntimeError, ValueError) as error:
        raise Misfit(f"LiteRT does not load the model: {str(error)[:500]}") from None
    return LiteModel(interpreter, assignment)


class LiteModel:
    """Runs an interpreter; what a graph keeps in variables is forgotten at every reset."""

    def __init__(self, interpreter: Any, assignment: Assignment) -> None:
        interface, batch = assignment.interface, assignment.batch
        inputs, outputs = _named(interpreter)
        entry = chosen(list(inputs.items()), "observation", "input", lambda one: one[0], alone=True)[1]
        exit_ = chosen(list(outputs.items()), "action", "output", lambda one: one[0])[1]
        check_batched("input", _type(entry), _sizes(entry), interface.observation, "observes", batch)
        check_batched("output", _type(exit_), _sizes(exit_), interface.action, "takes", batch)
        self._shape = [batch, *(int(size) for size in entry["shape"][1:])]
        if list(entry["shape"]) != self._shape:
            interpreter.resize_tensor_input(entry["index"], self._shape)
        try:
            interpreter.allocate_tensors()
        except RuntimeError as error:
            raise Misfit(f"LiteRT cannot run the model: {str(error)[:500]}") from None
        self._interpreter = interpreter
        self._in, self._out = entry["index"], exit_["index"]
        self._space = interface.action
        self.info: Mapping[str, str | int | float | bool | None] = {"library": "LiteRT"}

    def reset(self, seed: int) -> None:
        self._interpreter.reset_all_variables()

    def act(self, observations: NDArray[Any]) -> bytes:
        self._interpreter.set_tensor(self._in, observations.reshape(self._shape))
        self._interpreter.invoke()
        return action_bytes(self._interpreter.get_tensor(self._out), len(observations), self._space)


def _named(interpreter: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return inputs and outputs by the names its author gave them, which are those of the signature if there is one."""
    inputs = {one["name"]: one for one in interpreter.get_input_details()}
    outputs = {one["name"]: one for one in interpreter.get_output_details()}
    signatures = interpreter.get_signature_list()
    if len(signatures) == 1:
        runner = interpreter.get_signature_runner(next(iter(signatures)))
        by_index = {one["index"]: one for one in (*inputs.values(), *outputs.values())}
        named_in = {name: by_index.get(one["index"]) for name, one in runner.get_input_details().items()}
        named_out = {name: by_index.get(one["index"]) for name, one in runner.get_output_details().items()}
        if all(named_in.values()) and all(named_out.values()):
            return named_in, named_out
    return inputs, outputs


def _sizes(detail: Any) -> list[int]:
    return [int(size) for size in detail["shape_signature"]]


def _type(detail: Any) -> str:
    return str(np.dtype(detail["dtype"]))
