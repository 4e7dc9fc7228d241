"""ONNX format: one graph in a file, run by onnxruntime on one thread."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .base import (
    Assignment,
    Certainty,
    LoadedModel,
    Misfit,
    ModelFormat,
    Recognition,
    Sample,
    action_bytes,
    check_batched,
    select_node,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
#: Parts of the names of random operators. A session creates their generators, and seeds those of nodes without a seed;
#: Dropout, which is random in training mode, draws from a generator of the process. Nothing else outlives a run: the
#: operators of ONNX are functions, and a loop's state ends with the run.
RANDOM_OPERATORS = (b"Random", b"Multinomial", b"Bernoulli", b"Dropout")
#: The most bytes of one protobuf message.
MAX_SIZE = (2 << 30) - 1
#: Keys (field number and wire type) of the fields that follow ir_version in a ModelProto (onnx.proto3).
KEYS = frozenset({0x12, 0x1A, 0x22, 0x28, 0x32, 0x3A, 0x42})


def recognise(sample: Sample) -> Recognition | None:
    """Recognise a ModelProto: it begins with ir_version (field 1, a small varint), followed by another field."""
    head = sample.head
    starts = len(head) > 8 and head[0] == 0x08 and 1 <= head[1] <= 32 and head[2] in KEYS
    return Recognition(Certainty.CONTENT) if starts else None


def preload() -> None:
    """Import onnxruntime."""
    import onnxruntime  # noqa: F401


def load(assignment: Assignment) -> LoadedModel:
    """Create a session from the bytes and check its declared input and output."""
    return OnnxModel(assignment)


def _session(source: bytes) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise Misfit(f"onnxruntime {ort.__version__} does not load the model: {_error_text(error)}") from None


def _error_text(error: Exception) -> str:
    return str(error).partition("] : ")[2].partition(" : ")[2][:500] or str(error)[:500]


class OnnxModel:
    """Runs a session. A graph has no state except its random generators, so only those are reset."""

    def __init__(self, assignment: Assignment) -> None:
        import onnxruntime as ort

        session = _session(assignment.source)
        self._random_source = assignment.source if any(name in assignment.source for name in RANDOM_OPERATORS) else None
        interface = assignment.interface
        input_ = select_node(session.get_inputs(), "observation", "input", lambda node: node.name, alone=True)
        output = select_node(session.get_outputs(), "action", "output", lambda node: node.name)
        check_batched("input", _type(input_), input_.shape, interface.observation, "observes", assignment.batch)
        check_batched("output", _type(output), output.shape, interface.action, "takes", assignment.batch)
        self._run = session.run
        self._set_seed = ort.set_seed
        self._input_name, self._output_names = input_.name, [output.name]
        self._flat_size = _flat_length(input_.shape, interface.observation.shape)
        self._space = interface.action
        self.info: Mapping[str, str | int | float | bool | None] = {"library": f"onnxruntime {ort.__version__}"}

    def reset(self, seed: int) -> None:
        if self._random_source is not None:
            self._set_seed(seed & 0x7FFFFFFF)
            self._run = _session(self._random_source).run

    def act(self, observations: "NDArray[Any]") -> bytes:
        if self._flat_size is not None:
            observations = observations.reshape(len(observations), self._flat_size)
        (answer,) = self._run(self._output_names, {self._input_name: observations})
        return action_bytes(answer, len(observations), self._space)


def _type(node: Any) -> str:
    return TYPES.get(node.type, str(node.type))


def _flat_length(declared: Sequence[Any], shape: tuple[int, ...]) -> int | None:
    """Return the length to flatten observations to, or None if the graph does not declare a flat input."""
    return math.prod(shape) if len(declared) == 2 and len(shape) != 1 else None


FORMAT = ModelFormat(
    title="ONNX",
    description="A .onnx file with one input (observation) and one output (action), both with a leading batch axis.",
    runtime="onnx",
    environment="onnx",
    packages=("onnxruntime",),
    suffixes=(".onnx",),
    recognise=recognise,
    max_size=MAX_SIZE,
    preload=preload,
    load=load,
    baselines={"car_street": "car_street.onnx"},
)
