"""Frozen graph format: a TensorFlow GraphDef in one .pb file, with its variables as constants."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .base import Assignment, Certainty, LoadedModel, Misfit, ModelFormat, Recognition, Sample, Unreadable
from .recurrence import output_name
from .signature import ACTIONS, Signature, described, signature_of
from .tensorflow_function import (
    ENVIRONMENT,
    PACKAGES,
    FunctionModel,
    LoadedFunction,
    function_of,
    import_tensorflow,
    start_tensorflow,
)
from .tensorflow_graph import seed_random_operations
from .tensors import Tensor, check_input, check_output

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A GraphDef's first field is a node, whose first fields are its name and its operation (graph.proto, node_def.proto).
NODE = re.compile(
    rb"\x0a[\x80-\xff]{0,4}[\x00-\x7f]\x0a(?P<name_length>[\x80-\xff]?[\x00-\x7f])(?P<rest>[A-Za-z0-9.].*)", re.DOTALL
)
OPERATION = re.compile(rb"\x12[\x01-\x7f][A-Z_]")
#: A SavedModel's first fields are its version, 1, and a MetaGraphDef that begins with its own description.
SAVED_MODEL = re.compile(rb"\x08\x01\x12[\x80-\xff]{0,4}[\x00-\x7f]\x0a")
#: The most bytes of one protobuf message.
MAX_SIZE = (2 << 30) - 1
#: Operations whose values are in a checkpoint, or nowhere, if the graph is not frozen.
VARIABLES = frozenset({"Variable", "VariableV2", "VarHandleOp", "AutoReloadVariable"})
#: Operations that are not computed from the inputs, so that they are not the output.
SOURCES = frozenset({"Const", "Placeholder", "PlaceholderWithDefault", "PlaceholderV2"})


def recognise(sample: Sample) -> Recognition | None:
    """Recognise a GraphDef by its first node, and refuse the part of a SavedModel that has no variables."""
    if SAVED_MODEL.match(sample.head):
        return Recognition(
            Certainty.CONTENT,
            "The file is the `saved_model.pb` of a SavedModel, without its variables: zip the whole folder, and send"
            " the zip.",
        )
    return Recognition(Certainty.CONTENT) if _is_graph(sample.head) else None


def _is_graph(head: bytes) -> bool:
    node = NODE.match(head)
    if node is None:
        return False
    first, *more = node["name_length"]
    length = first & 0x7F | (more[0] << 7 if more else 0)
    return OPERATION.match(node["rest"][length:]) is not None


def load(assignment: Assignment) -> LoadedModel:
    """Import the graph and find its placeholders and outputs."""
    tf = import_tensorflow()
    from tensorflow.core.framework import graph_pb2

    try:
        graph = graph_pb2.GraphDef.FromString(assignment.source)
    except Exception as error:
        raise Unreadable(f"the file is not a GraphDef: {str(error)[:300]}") from None
    inputs, outputs = _tensors(graph)
    signature = signature_of(inputs, outputs)
    check_input(signature.observation, assignment.interface.observation, assignment.batch)
    check_output(signature.action, assignment.interface.action, assignment.batch)

    def load_function(seed: int) -> LoadedFunction:
        seeded = graph_pb2.GraphDef.FromString(assignment.source)
        seed_random_operations([seeded], seed)
        return _function(seeded, signature, assignment, described(signature, inputs, outputs))

    return FunctionModel(load_function, assignment, f"tensorflow {tf.__version__}")


def _tensors(graph: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Return the graph's placeholders, and the values that it may be asked for."""
    tf = import_tensorflow()
    with tf.Graph().as_default() as imported:
        try:
            tf.import_graph_def(graph, name="")
        except Exception as error:
            raise Unreadable(f"tensorflow {tf.__version__} does not import the graph: {str(error)[:500]}") from None
        operations = imported.get_operations()
        names = [
            [operation.name for operation in operations if operation.type == "Placeholder"],
            list(_output_names(operations)),
        ]
        inputs, outputs = [[_tensor(imported.get_tensor_by_name(f"{name}:0")) for name in part] for part in names]
    return inputs, outputs


def _output_names(operations: Sequence[Any]) -> Iterator[str]:
    """Yield the names of operations that no operation takes a value from, and of those that are named as outputs."""
    taken = {tensor.op.name for operation in operations for tensor in operation.inputs}
    named = {*ACTIONS, *(output_name(operation.name) for operation in operations if operation.type == "Placeholder")}
    for operation in operations:
        if operation.outputs and operation.type not in SOURCES:
            if operation.name not in taken or operation.name in named:
                yield operation.name


def _tensor(tensor: Any) -> Tensor:
    shape = None if tensor.shape.rank is None else tuple(tensor.shape.as_list())
    return Tensor(tensor.op.name, tensor.dtype.name, shape)


def _function(graph: Any, signature: Signature, assignment: Assignment, info: Mapping[str, str]) -> LoadedFunction:
    tf = import_tensorflow()
    wrapped = tf.compat.v1.wrap_function(lambda: tf.import_graph_def(graph, name=""), [])
    states = signature.states
    feeds = [signature.observation.name, *(state.input.name for state in states)]
    fetches = [signature.action.name, *(state.output.name for state in states)]
    tensors = [[wrapped.graph.get_tensor_by_name(f"{name}:0") for name in names] for names in (feeds, fetches)]
    try:
        function = wrapped.prune(*tensors)
    except Exception as error:
        reason = str(error)[:300]
        raise Misfit(f"{signature.action.name} cannot be computed from {', '.join(feeds)}: {reason}") from None
    if variables := sorted({node.type for node in function.graph.get_operations()} & VARIABLES):
        raise Misfit(
            f"the graph is not frozen: it has variables ({', '.join(variables)}), whose values are in another file;"
            " freeze it with tf.compat.v1.graph_util.convert_variables_to_constants, or send a SavedModel"
        )

    def run(values: "Mapping[str, NDArray[Any]]") -> Mapping[str, Any]:
        return dict(zip(fetches, function(*(tf.constant(values[name]) for name in feeds)), strict=True))

    return function_of(run, signature, assignment, traced=function, owner=wrapped, info=info)


FORMAT = ModelFormat(
    title="Frozen graph",
    description=(
        "A .pb file with a TensorFlow GraphDef whose variables are constants: a placeholder (observation) and an output"
        " (action), both with a leading batch axis; a recurrent state is a placeholder and an output, such as h_in and"
        " h_out."
    ),
    runtime="tensorflow",
    environment=ENVIRONMENT,
    packages=PACKAGES,
    suffixes=(".pb",),
    recognise=recognise,
    max_size=MAX_SIZE,
    preload=start_tensorflow,
    load=load,
)
