"""Models in ONNX, run by onnxruntime on one thread."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from .base import Assignment, Misfit, Model, action_bytes, check_batched, chosen

TYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(int8)": "int8",
    "tensor(int16)": "int16",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(uint8)": "uint8",
    "tensor(bool)": "bool",
}
#: Operators that draw. Their generators are as old as their session, and take its seed where a node has none.
DRAWN = (b"Random", b"Multinomial", b"Bernoulli")


def preload() -> None:
    """Everything was imported with this module."""


def load(assignment: Assignment) -> Model:
    """Make a session of the bytes and check its declared input and output."""
    return OnnxModel(assignment)


def _session(source: bytes) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise Misfit(f"onnxruntime {ort.__version__} does not load the model: {_words(error)}") from None


def _words(error: Exception) -> str:
    return str(error).partition("] : ")[2].partition(" : ")[2][:500] or str(error)[:500]


class OnnxModel:
    """Runs a session; but for what it draws, a graph has no memory, so there is nothing to forget."""

    def __init__(self, assignment: Assignment) -> None:
        session = _session(assignment.source)
        self._drawing = assignment.source if any(name in assignment.source for name in DRAWN) else None
        interface = assignment.interface
        entry = chosen(session.get_inputs(), "observation", "input", lambda one: one.name, alone=True)
        exit_ = chosen(session.get_outputs(), "action", "output", lambda one: one.name)
        check_batched("input", _type(entry), entry.shape, interface.observation, "observes", assignment.batch)
        check_batched("output", _type(exit_), exit_.shape, interface.action, "takes", assignment.batch)
        self._run = session.run
        self._in, self._out = entry.name, [exit_.name]
        self._shape = _flat(entry.shape, interface.observation.shape)
        self._space = interface.action
        self.info: Mapping[str, str | int | float | bool | None] = {"library": f"onnxruntime {ort.__version__}"}

    def reset(self, seed: int) -> None:
        if self._drawing is not None:
            ort.set_seed(seed & 0x7FFFFFFF)
            self._run = _session(self._drawing).run

    def act(self, observations: NDArray[Any]) -> bytes:
        if self._shape is not None:
            observations = observations.reshape(len(observations), self._shape)
        (answer,) = self._run(self._out, {self._in: observations})
        return action_bytes(answer, len(observations), self._space)


def _type(node: Any) -> str:
    return TYPES.get(node.type, str(node.type))


def _flat(declared: Sequence[Any], shape: tuple[int, ...]) -> int | None:
    """Return the length to flatten observations to, where the graph wants them flat."""
    return int(np.prod(shape)) if len(declared) == 2 and len(shape) != 1 else None
