"""TensorFlow Lite format: one graph in a flatbuffer, run by LiteRT on one thread."""

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .base import (
    Assignment,
    Certainty,
    Misfit,
    ModelFormat,
    Recognition,
    Sample,
    Unreadable,
    action_bytes,
    importer,
)
from .recurrence import RecurrentValues
from .signature import described, signature_of
from .tensors import Tensor, check_input, check_output
from .tflite_graph import StatefulGraph, check_order, has_variables

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The flatbuffer's file identifier, behind the offset of its root table.
IDENTIFIER = b"TFL3"
#: The most bytes of a flatbuffer.
MAX_SIZE = (2 << 30) - 1


def recognise(sample: Sample) -> Recognition | None:
    """Recognise the flatbuffer by its file identifier."""
    return Recognition(Certainty.CONTENT) if sample.head[4:8] == IDENTIFIER else None


class LiteModel:
    """Runs an interpreter. Every reset clears the graph's variable tensors; a graph with another state, such as
    resource variables or random generators, gets a new interpreter."""

    def __init__(self, assignment: Assignment) -> None:
        """Create an interpreter from the bytes, resize it to the batch, and check its input and output."""
        interface, batch = assignment.interface, assignment.batch
        interpreter = _interpreter(assignment.source)
        check_order(assignment.source)
        inputs, outputs = _nodes_by_name(interpreter)
        declared, answers = [[_tensor(*item) for item in nodes.items()] for nodes in (inputs, outputs)]
        signature = signature_of(declared, answers)
        observation = signature.observation
        check_input(observation, interface.observation, batch)
        check_output(signature.action, interface.action, batch)
        self._type = inputs[observation.name]["dtype"]
        self._shape = (batch, *(int(size) for size in inputs[observation.name]["shape"][1:]))
        self._values = RecurrentValues(signature.states, observation, batch)
        #: Indexes of the observation, the action and the states' inputs and outputs.
        self._observation, self._action = inputs[observation.name]["index"], outputs[signature.action.name]["index"]
        self._fed = {name: inputs[name]["index"] for name in self._values.inputs}
        self._kept = [outputs[state.output.name]["index"] for state in signature.states]
        shapes = {name: value.shape for name, value in self._values.inputs.items()} | {observation.name: self._shape}
        self._resized = {
            inputs[name]["index"]: shape for name, shape in shapes.items() if tuple(inputs[name]["shape"]) != shape
        }
        self._graph = StatefulGraph.of(assignment.source)
        self._has_variables = has_variables(assignment.source)
        self._space = interface.action
        self.info: Mapping[str, str | int | float | bool | None] = {
            "library": "LiteRT",
            **described(signature, declared, answers),
        }
        self._use(interpreter)

    def _use(self, interpreter: Any) -> None:
        try:
            for index, shape in self._resized.items():
                interpreter.resize_tensor_input(index, shape)
            interpreter.allocate_tensors()
        except RuntimeError as error:
            raise Misfit(f"LiteRT cannot run the model: {str(error)[:500]}") from None
        self._interpreter = interpreter

    def reset(self, seed: int) -> None:
        self._values.reset()
        if self._graph is not None:
            self._use(_interpreter(self._graph.seeded(seed)))
        self._interpreter.reset_all_variables()

    def row(self) -> "LiteModel | None":
        """Return a model of the same interpreter; None if that keeps anything itself."""
        if self._graph is not None or self._has_variables:
            return None
        row = copy.copy(self)
        row._values = self._values.of_another_row()
        return row

    def act(self, observations: "NDArray[Any]") -> bytes:
        interpreter = self._interpreter
        interpreter.set_tensor(self._observation, observations.astype(self._type, copy=False).reshape(self._shape))
        for name, value in self._values.inputs.items():
            interpreter.set_tensor(self._fed[name], value)
        interpreter.invoke()
        self._values.keep([interpreter.get_tensor(index) for index in self._kept])
        return action_bytes(interpreter.get_tensor(self._action), len(observations), self._space)


def _interpreter(source: bytes) -> Any:
    from ai_edge_litert.interpreter import Interpreter

    try:
        return Interpreter(model_content=source, num_threads=1)
    except (RuntimeError, ValueError) as error:
        raise Unreadable(f"LiteRT does not load the model: {str(error)[:500]}") from None


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


def _tensor(name: str, detail: Any) -> Tensor:
    import numpy as np  # the server reads formats without it

    sizes = tuple(int(size) for size in detail["shape_signature"])
    return Tensor(name, str(np.dtype(detail["dtype"])), sizes)


FORMAT = ModelFormat(
    title="TensorFlow Lite",
    description=(
        "A .tflite file with an input (observation) and an output (action), both with a leading batch axis, run by"
        " LiteRT; a recurrent state is an input and an output of its signature, such as h_in and h_out."
    ),
    runtime="tensorflow",
    environment="litert",
    packages=("ai-edge-litert",),
    suffixes=(".tflite",),
    recognise=recognise,
    max_size=MAX_SIZE,
    preload=importer("ai_edge_litert.interpreter"),
    forkable=True,
    load=LiteModel,
    baselines={"car_street": "car_street.tflite"},
)
