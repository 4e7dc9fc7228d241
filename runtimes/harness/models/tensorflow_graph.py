"""TensorFlow graphs: which operations keep something between calls, and how the model is reset for the next scenario.

Every operation that TensorFlow registers as stateful is in one of the tables below, or the model is refused: what a
model server cannot reset would make results depend on the scenarios that ran before.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from .base import Misfit

#: Stateful by registration only: they read, call, check or print. TensorArrays end with the call that made them.
HARMLESS = frozenset(
    {"ReadVariableOp", "VarHandleOp", "VarIsInitializedOp", "VariableShape", "ResourceGather", "ResourceGatherNd"}
    | {"Variable", "VariableV2", "DisableCopyOnRead", "GuaranteeConst", "DeepCopy", "StatelessRandomGetAlg"}
    | {"HashTable", "HashTableV2", "LookupTableFindV2", "LookupTableSizeV2", "LookupTableExportV2"}
    | {"MutableHashTableV2", "MutableHashTableOfTensorsV2", "MutableDenseHashTableV2"}
    | {"If", "While", "Case", "StatefulPartitionedCall", "DeviceIndex", "SyncDevice"}
    | {"Assert", "CheckNumerics", "CheckNumericsV2", "Print", "PrintV2"}
    | {f"TensorArray{verb}V3" for verb in ("", "Close", "Concat", "Gather", "Grad", "Read", "Scatter", "Size")}
    | {"TensorArraySplitV3", "TensorArrayWriteV3", "TensorArrayGradWithShape"}
)
#: Change a variable; the generators of `tf.random.Generator` keep their state in one.
VARIABLE_WRITERS = frozenset(
    {"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "ResourceStridedSliceAssign"}
    | {"ResourceCountUpTo", "RngReadAndSkip", "RngSkip", "StatefulRandomBinomial", "StatefulStandardNormal"}
    | {"StatefulStandardNormalV2", "StatefulTruncatedNormal", "StatefulUniform", "StatefulUniformFullInt"}
    | {"StatefulUniformInt"}
)
#: The same, by the beginning of their names: scattered updates, and the steps of optimizers.
VARIABLE_WRITER_PREFIXES = ("ResourceScatter", "ResourceApply", "ResourceSparseApply")
#: Change a lookup table.
TABLE_WRITERS = frozenset({"LookupTableInsertV2", "LookupTableRemoveV2", "LookupTableImportV2"})
#: Create what writers change; inside the function, a name finds the same resource again after a reload.
CREATORS = frozenset({"VarHandleOp"} | {name for name in HARMLESS if name.startswith("Mutable")})
#: Draw from a generator of their own, seeded by the attributes `seed` and `seed2`, or by the system if both are 0.
RANDOM = frozenset(
    {"FractionalAvgPool", "FractionalMaxPool", "Multinomial", "ParameterizedTruncatedNormal", "RandomCrop"}
    | {"RandomGamma", "RandomPoisson", "RandomPoissonV2", "RandomShuffle", "RandomStandardNormal", "RandomUniform"}
    | {"RandomUniformInt", "SampleDistortedBoundingBox", "SampleDistortedBoundingBoxV2", "TruncatedNormal"}
    | {"AllCandidateSampler", "FixedUnigramCandidateSampler", "LearnedUnigramCandidateSampler"}
    | {"LogUniformCandidateSampler", "ThreadUnsafeUnigramCandidateSampler", "UniformCandidateSampler"}
)
#: Not registered as stateful, but with a side effect, or an input that the observation is not.
SIDE_EFFECTS = frozenset(
    {"Batch", "BatchFunction", "Unbatch", "UnbatchGrad", "ReadFile", "MatchingFiles", "DebugIdentity"}
    | {"DebugNanCount", "DebugNumericSummary", "ImmutableConst"}
)
#: Done when a model is loaded, and in no call: values of variables and tables come from the model's own files.
LOADERS = frozenset(
    {"RestoreV2", "InitializeTable", "InitializeTableV2", "InitializeTableFromTextFile"}
    | {"InitializeTableFromTextFileV2", "LookupTableImportV2", "Assign", "AnonymousHashTable"}
)
#: Pass a reference on without changing what it refers to.
REFERENCE_READERS = frozenset({"Identity", "RefIdentity", "RefEnter", "RefExit", "RefSwitch", "RefMerge", "RefSelect"})
#: Signatures whose outputs are operations that initialize a model.
INITIALIZING = ("__saved_model_init_op", "__saved_model_train_op")


class Remedy(IntEnum):
    """How a model is reset before a scenario; of several operations, the greatest holds."""

    NOTHING = 0  # nothing outlives a call
    RESTORE = 1  # its variables get the values that they had when it was loaded
    RELOAD = 2  # it is loaded again, with the seeds of this scenario


@dataclass(frozen=True, slots=True)
class Operation:
    """The type of an operation in a graph; ``references``: it takes references to variables of TensorFlow 1."""

    type: str
    stateful: bool = False
    references: bool = False


def remedy(operations: Iterable[Operation]) -> Remedy:
    """Return how a model with these operations is reset; raise Misfit if it cannot be."""
    found = set(operations)
    _refuse_unknown(found)
    types = {operation.type for operation in found}
    writes = types & TABLE_WRITERS or any(_writes_variables(type) for type in types)
    if writes and (created := types & CREATORS):
        raise Misfit(
            f"the model cannot be reset between scenarios: its function itself creates what it changes"
            f" ({', '.join(sorted(created))}); save it with tf.saved_model.save of TensorFlow 2, from a tf.Module that"
            " owns its variables and tables"
        )
    if types & (TABLE_WRITERS | RANDOM):
        return Remedy.RELOAD
    return Remedy.RESTORE if writes else Remedy.NOTHING


def check_loading(message: Any) -> None:
    """Raise Misfit if loading a SavedModel (its `SavedModel` message) could keep, or read, more than the model's files.

    Its functions are run in every load that they initialize something in, whether or not an action depends on them.
    """
    has_objects = len(message.meta_graphs) == 1 and message.meta_graphs[0].HasField("object_graph_def")
    for meta_graph in message.meta_graphs:
        functions = {function.signature.name: function for function in meta_graph.graph_def.library.function}
        if has_objects:
            names = meta_graph.object_graph_def.concrete_functions
            roots = [functions[name].node_def for name in names if name in functions]
        else:
            roots = [_initializing_nodes(meta_graph)]
        _refuse_unknown(operation for operation in _walked(roots, functions) if operation.type not in LOADERS)


def _initializing_nodes(meta_graph: Any) -> list[Any]:
    """Return the nodes of TensorFlow 1's graph that loading may run: what initializes, restores or is in a collection,
    and all that these need.
    """
    from tensorflow.core.framework import variable_pb2

    names = [meta_graph.saver_def.restore_op_name, meta_graph.saver_def.filename_tensor_name]
    for key in INITIALIZING:
        if key in meta_graph.signature_def:
            names += [tensor.name for tensor in meta_graph.signature_def[key].outputs.values()]
    for collection in meta_graph.collection_def.values():
        names += collection.node_list.value
        for value in collection.bytes_list.value:
            with contextlib.suppress(Exception):  # a message of another kind
                names.append(variable_pb2.VariableDef.FromString(value).initializer_name)
    nodes = {node.name: node for node in meta_graph.graph_def.node}
    found: dict[str, Any] = {}
    pending = [_node_name(name) for name in names]
    while pending:
        name = pending.pop()
        if name in nodes and name not in found:
            found[name] = nodes[name]
            pending += [_node_name(source) for source in nodes[name].input]
    return list(found.values())


def _node_name(tensor: str) -> str:
    return tensor.removeprefix("^").partition(":")[0]


def _refuse_unknown(operations: Iterable[Operation]) -> None:
    if unknown := sorted({operation.type for operation in operations if not _is_known(operation)}):
        raise Misfit(
            f"the model cannot be reset between scenarios, because of its operations {', '.join(unknown)}: they keep a"
            " state, or depend on more than the observation; export it without them"
        )


def _writes_variables(type: str) -> bool:
    return type in VARIABLE_WRITERS or type.startswith(VARIABLE_WRITER_PREFIXES)


def _is_known(operation: Operation) -> bool:
    if operation.type in SIDE_EFFECTS or (operation.references and operation.type not in REFERENCE_READERS):
        return False
    known = HARMLESS | TABLE_WRITERS | RANDOM
    return not operation.stateful or operation.type in known or _writes_variables(operation.type)


def operations(graph: Any) -> Iterator[Operation]:
    """Yield the operations of a function's graph (`tf.Graph`) and of all functions that it calls."""
    definition = graph.as_graph_def()
    functions = {function.signature.name: function for function in definition.library.function}
    return _walked([definition.node], functions)


def _walked(roots: Sequence[Iterable[Any]], functions: Mapping[str, Any]) -> Iterator[Operation]:
    """Yield the operations of nodes and of all functions that they call."""
    from tensorflow.python.eager import context
    from tensorflow.python.framework import op_def_registry

    pending = list(roots)
    seen: set[str] = set()
    while pending:
        for node in pending.pop():
            called = {node.op} if (registered := op_def_registry.get(node.op)) is None else set()
            for value in node.attr.values():
                called |= (
                    {value.func.name} if value.HasField("func") else {function.name for function in value.list.func}
                )
            for name in called - seen:
                seen.add(name)
                function = functions.get(name) or context.context().get_function_def(name)
                pending.append(function.node_def)
            if registered is not None:
                references = any(argument.is_ref for argument in registered.input_arg)
                yield Operation(node.op, registered.is_stateful, references)


def seed_random_operations(graphs: Iterable[Any], seed: int) -> None:
    """Set the seeds of all random operations of `GraphDef`s that have none, each to another value."""
    for number, graph in enumerate(graphs):
        groups = [("", graph.node)] + [(item.signature.name, item.node_def) for item in graph.library.function]
        for function, nodes in groups:
            for node in nodes:
                if node.op in RANDOM and not (node.attr["seed"].i or node.attr["seed2"].i):
                    node.attr["seed"].i, node.attr["seed2"].i = derived_seeds(seed, f"{number}/{function}/{node.name}")


def derived_seeds(seed: int, name: str) -> tuple[int, int]:
    """Return two seeds, 1 to 2^31 - 1, for one random generator of a model in a scenario with this seed."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    first, second = (int.from_bytes(digest[start : start + 4], "little") & 0x7FFFFFFF for start in (0, 4))
    return first or 1, second or 1


def restorer(captured: Iterable[Any]) -> Callable[[], None]:
    """Return a function that gives all variables among a function's captured tensors the values that they have now."""
    import tensorflow as tf

    saved = []
    for tensor in captured:
        if tensor.dtype != tf.resource:
            continue
        handle_data = getattr(tensor, "_handle_data", None)
        if handle_data is None or not handle_data.is_set:
            if _is_variable(tensor):
                raise Misfit("the model has a variable of unknown type, which cannot be reset between scenarios")
            continue  # a lookup table, which no operation of the function changes
        if not _is_variable(tensor):
            raise Misfit("the model has a variable without a value; give every variable an initial value")
        dtype = tf.as_dtype(handle_data.shape_and_type[0].dtype)
        saved.append((tensor, tf.raw_ops.ReadVariableOp(resource=tensor, dtype=dtype)))

    def restore() -> None:
        for handle, value in saved:
            tf.raw_ops.AssignVariableOp(resource=handle, value=value)

    return restore


def _is_variable(handle: Any) -> bool:
    import tensorflow as tf

    try:
        return bool(tf.raw_ops.VarIsInitializedOp(resource=handle))
    except tf.errors.OpError:  # a resource of another kind
        return False
