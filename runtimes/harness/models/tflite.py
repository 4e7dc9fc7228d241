"""TensorFlow Lite format: one graph in a flatbuffer, run by LiteRT on one thread."""

from collections.abc import Mapping
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
    select_node,
)
from .tensors import Tensor, check_input, check_output
from .tflite_graph import StatefulGraph

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The flatbuffer's file identifier, behind the offset of its root table.
IDENTIFIER = b"TFL3"
#: The most bytes of a flatbuffer.
MAX_SIZE = (2 << 30) - 1


def recognise(sample: Sample) -> Recognition | None:
    """Recognise the flatbuffer by its file identifier."""
    return Recognition(Certainty.CONTENT) if sample.head[4:8] == IDENTIFIER else None


def preload() -> None:
    """Import LiteRT."""
    import ai_edge_litert.interpreter  # noqa: F401


def load(assignment: Assignment) -> LoadedModel:
    """Create an interpreter from the bytes, resize it to the batch, and check its input and output."""
    return LiteModel(assignment)


class LiteModel:
    """Runs an interpreter. Every reset clears the graph's variable tensors; a graph with another state, such as
    resource variables or random generators, gets a new interpreter."""

    def __init__(self, assignment: Assignment) -> None:
        interface, batch = assignment.interface, assignment.batch
        interpreter = _interpreter(assignment.source)
        inputs, outputs = _nodes_by_name(interpreter)
        input_ = select_node(list(inputs.items()), "observation", "input", lambda item: item[0], alone=True)[1]
        output = select_node(list(outputs.items()), "action", "output", lambda item: item[0])[1]
        check_input(_tensor(input_), interface.observation, batch)
        check_output(_tensor(output), interface.action, batch)
        self._input_type = input_["dtype"]
        self._shape = [batch, *(int(size) for size in input_["shape"][1:])]
        self._resize = list(input_["shape"]) != self._shape
        self._input_index, self._output_index = input_["index"], output["index"]
        self._graph = StatefulGraph.of(assignment.source)
        self._space = interface.action
        self.info: Mapping[str, str | int | float | bool | None] = {"library": "LiteRT"}
        self._use(interpreter)

    def _use(self, interpreter: Any) -> None:
        if self._resize:
            interpreter.resize_tensor_input(self._input_index, self._shape)
        try:
            interpreter.allocate_tensors()
        except RuntimeError as error:
            raise Misfit(f"LiteRT cannot run the model: {str(error)[:500]}") from None
        self._interpreter = interpreter

    def reset(self, seed: int) -> None:
        if self._graph is not None:
            self._use(_interpreter(self._graph.seeded(seed)))
        self._interpreter.reset_all_variables()

    def act(self, observations: "NDArray[Any]") -> bytes:
        inputs = observations.astype(self._input_type, copy=False).reshape(self._shape)
        self._interpreter.set_tensor(self._input_index, inputs)
        self._interpreter.invoke()
        return action_bytes(self._interpreter.get_tensor(self._output_index), len(observations), self._space)


def _interpreter(source: bytes) -> Any:
    from ai_edge_litert.interpreter import Interpreter

    try:
        return Interpreter(model_content=source, num_threads=1)
    except (RuntimeError, ValueError) as error:
        raise Misfit(f"LiteRT does not load the model: {str(error)[:500]}") from None


def _nodes_by_name(interpreter: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return inputs and outputs by the names that the author gave them: those of the signature, if there is one."""
    inputs = {detail["name"]: detail for detail in interpreter.get_input_details()}
    outputs = {detail["name"]: detail for detail in interpreter.get_output_details()}
    signatures = interpreter.get_signature_list()
    if len(signatures) == 1:
        runner = interpreter.get_signature_runner(next(iter(signatures)))
        by_index = {detail["index"]: detail for detail in (*inputs.values(), *outputs.values())}
        named_in = {name: by_index.get(detail["index"]) for name, detail in runner.get_input_details().items()}
        named_out = {name: by_index.get(detail["index"]) for name, detail in runner.get_output_details().items()}
        if all(named_in.values()) and all(named_out.values()):
            return named_in, named_out
    return inputs, outputs


def _tensor(detail: Any) -> Tensor:
    import numpy as np  # the server reads formats without it

    sizes = tuple(int(size) for size in detail["shape_signature"])
    return Tensor(detail["name"], str(np.dtype(detail["dtype"])), sizes)


FORMAT = ModelFormat(
    title="TensorFlow Lite",
    description="A .tflite file with one input and one output, both with a leading batch axis, run by LiteRT.",
    runtime="tensorflow",
    environment="litert",
    packages=("ai-edge-litert",),
    suffixes=(".tflite",),
    recognise=recognise,
    max_size=MAX_SIZE,
    preload=preload,
    load=load,
    baselines={"car_street": "car_street.tflite"},
)
