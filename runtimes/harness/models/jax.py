"""JAX format: a function that `jax.export` serialized, compiled once per launch and run on one thread."""

import copy
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .base import (
    Assignment,
    Certainty,
    Misfit,
    ModelFormat,
    NoAction,
    Recognition,
    Sample,
    Unreadable,
    action_bytes,
)
from .recurrence import DeclaredState, RecurrentValues
from .signature import OBSERVATIONS, Signature, described, signature_of
from .tensors import Tensor, check_input, check_output, input_shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: How a StableHLO module begins, which `jax.export` puts behind the types of inputs and outputs (the flatbuffer itself
#: has no identifier): MLIR's bytecode with the producer StableHLO.
STABLEHLO = b"ML\xefR\rStableHLO_v"
#: Threads of XLA: one per pool, whatever the machine has. Pools have a thread per processor otherwise.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "NPROC": "1",
    "PJRT_NPROC": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}
#: What the names of inputs and outputs without a name begin with.
ARGUMENT, RESULT = "arg", "out"
#: What to do about a file of another version (JAX, "Compatibility guarantees" of exported functions).
VERSIONS = "Send the file that `serialize()` of jax.export wrote with this version or one of the six months before"
PAGE = "docs/exporting.md#jax"
#: Dialects of MLIR whose operations are functions of their operands, but for these operations.
DIALECTS = frozenset({"builtin", "func", "stablehlo", "chlo", "sdy"})
STATEFUL = frozenset(f"stablehlo.{name}" for name in ("rng", "infeed", "outfeed", "send", "recv"))
#: Targets of `stablehlo.custom_call` that are functions of their operands. JAX lets others be exported: such as memory
#: that nothing has written (`AllocateBuffer`), and code that is registered with the process.
PURE_CALLS = re.compile(
    r"lapack_\w+_ffi|(mhlo|chlo)\.\w+|TopK|ApproxTopK|Eigh|Qr|LuDecomposition|ProductOfElementaryHouseholderReflectors"
    r"|Sharding|SPMDFullToShardShape|SPMDShardToFullShape|annotate_device_placement|shape_assertion"
    r"|stablehlo\.dynamic_(approx_top_k|reduce_window|rng_bit_generator|top_k)"
)


def recognise(sample: Sample) -> Recognition | None:
    """Recognise a serialized export by the StableHLO module in it; a module alone is refused."""
    if sample.head.startswith(STABLEHLO):
        return Recognition(
            Certainty.CONTENT,
            "This is a StableHLO module without the types and names of its inputs. Send what"
            f" `jax.export.export(...)(...).serialize()` returns ({PAGE}).",
        )
    # A flatbuffer begins with the offset of its table.
    starts = int.from_bytes(sample.head[:4], "little") < len(sample.head) and STABLEHLO in sample.head
    return Recognition(Certainty.CONTENT) if starts else None


def preload() -> None:
    """Import JAX, with all types of numbers and without threads of its compiler's own."""
    os.environ.update(ENVIRONMENT)
    import jax
    import jax.export
    from jax._src.interpreters import mlir

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    shared = mlir.make_ir_context

    def without_threads() -> Any:
        context = shared()
        context.enable_multithreading(False)  # its pool has a thread per processor, and a model may have 64 tasks
        return context

    mlir.make_ir_context = without_threads


def _exported(source: bytes) -> Any:
    """Deserialize the function; raise Misfit if this machine cannot run it."""
    import jax

    try:
        exported = jax.export.deserialize(bytearray(source))
    except Exception as error:
        raise Unreadable(f"jax {jax.__version__} does not load the model: {_text(error)}. {VERSIONS}") from None
    if "cpu" not in exported.platforms:
        raise Misfit(
            f"the model was exported for {', '.join(exported.platforms)}; export it for processors:"
            ' jax.export.export(function, platforms=["cpu"])'
        )
    if exported.nr_devices != 1:
        raise Misfit(f"the model was exported for {exported.nr_devices} devices; export it for one, without a mesh")
    return exported


def _check_operations(exported: Any) -> None:
    """Raise Misfit if an operation of the function keeps something between calls, or is not known to keep nothing."""
    from jax._src.interpreters import mlir
    from jaxlib.mlir import ir

    unknown: set[str] = set()

    def visit(operation: Any) -> Any:
        if operation.name == "stablehlo.custom_call":
            target = ir.StringAttr(operation.attributes["call_target_name"]).value
            if not PURE_CALLS.fullmatch(target):
                unknown.add(f"custom_call @{target[:100]}")
        elif operation.name in STATEFUL or operation.name.partition(".")[0] not in DIALECTS:
            unknown.add(operation.name)
        return ir.WalkResult.ADVANCE

    with mlir.make_ir_context():
        ir.Module.parse(exported.mlir_module()).operation.walk(visit)
    if unknown:
        raise Misfit(
            f"the model cannot be reset between scenarios, because of its operations {', '.join(sorted(unknown))}: they"
            " keep a state, or depend on more than the observation; export it without them. Random numbers are drawn"
            " with jax.random, from a key that is part of the state or made of the observation"
        )


def _text(error: Exception) -> str:
    return " ".join(str(error).split())[:500] or type(error).__name__


def _tensors(tree: Any, avals: Sequence[Any], prefix: str) -> list[Tensor]:
    """Name the leaves of a tree: by their keys, or by their places. Inputs lie in (arguments, named arguments)."""
    import jax

    paths, _ = jax.tree_util.tree_flatten_with_path(jax.tree_util.tree_unflatten(tree, range(len(avals))))
    tensors = []
    for (path, _), aval in zip(paths, avals, strict=True):
        shape = tuple(size if isinstance(size, int) else str(size) for size in aval.shape)
        tensors.append(Tensor(_name(path[1:] if prefix == ARGUMENT else path, prefix), str(aval.dtype), shape))
    if len({tensor.name for tensor in tensors}) < len(tensors):  # keys that occur in several arguments
        return [Tensor(f"{prefix}{index}", tensor.dtype, tensor.shape) for index, tensor in enumerate(tensors)]
    return tensors


def _name(path: Sequence[Any], prefix: str) -> str:
    parts = [str(next(filter(None, (getattr(key, name, None) for name in ("key", "name"))), "")) for key in path]
    places = [str(key.idx) for key in path if hasattr(key, "idx")]
    return ".".join(filter(None, parts)) or prefix + ".".join(places or ["0"])


def _signature(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Signature:
    """Find observation, action and state: by name if an input is named as the observation, in order otherwise."""
    if len(inputs) <= 1 or any(tensor.name in OBSERVATIONS for tensor in inputs):
        return signature_of(inputs, outputs)
    if len(inputs) != len(outputs):
        raise Misfit(
            f"the model has {len(inputs)} inputs and {len(outputs)} outputs: a function (observation, state) ->"
            " (action, state) has as many arrays in the state that it takes as in the one that it returns"
        )
    pairs = zip(inputs[1:], outputs[1:], strict=True)
    return signature_of(inputs, outputs, {before.name: DeclaredState(after.name) for before, after in pairs})


class JaxModel:
    """Calls a compiled function, which keeps nothing, and feeds its state back."""

    def __init__(self, assignment: Assignment) -> None:
        """Deserialize the function, find observation, action and state, compile it, and try it with zeros."""
        import jax
        import numpy as np

        exported = _exported(assignment.source)
        _check_operations(exported)
        interface, batch = assignment.interface, assignment.batch
        inputs = _tensors(exported.in_tree, exported.in_avals, ARGUMENT)
        outputs = _tensors(exported.out_tree, exported.out_avals, RESULT)
        signature = _signature(inputs, outputs)
        observation = signature.observation
        check_input(observation, interface.observation, batch)
        check_output(signature.action, interface.action, batch)
        self._values = RecurrentValues(signature.states, observation, batch)
        self._observed = (np.dtype(observation.dtype), (batch, *input_shape(observation, interface.observation)))
        self._order = [None if tensor is observation else tensor.name for tensor in inputs]
        self._action = outputs.index(signature.action)
        self._states = [outputs.index(state.output) for state in signature.states]
        self._space = interface.action
        seen = np.zeros((batch, *interface.observation.shape), interface.observation.dtype)
        try:
            self._call = _compiled(exported, self._inputs(seen))
            self.act(seen)
        except NoAction as error:
            raise Misfit(f"{error} (tried with zeros)") from None
        except Exception as error:
            raise Misfit(f"jax {jax.__version__} cannot run the model (tried with zeros): {_text(error)}") from None
        self.reset(0)
        self.info: Mapping[str, str | int | float | bool | None] = {
            "library": f"jax {jax.__version__}",
            "function": str(exported.fun_name)[:500],
            **described(signature, inputs, outputs),
        }

    def reset(self, seed: int) -> None:
        self._values.reset()

    def act(self, observations: "NDArray[Any]") -> bytes:
        import numpy as np  # the server reads formats without it

        answers = self._call(*self._inputs(observations))
        self._values.keep([np.asarray(answers[index]) for index in self._states])
        return action_bytes(np.asarray(answers[self._action]), len(observations), self._space)

    def row(self) -> "JaxModel":
        """Return a model of the same function."""
        row = copy.copy(self)
        row._values = self._values.of_another_row()
        return row

    def _inputs(self, observations: "NDArray[Any]") -> "list[NDArray[Any]]":
        """Return the arrays of a call in the order of the inputs."""
        dtype, shape = self._observed
        observed = observations.astype(dtype, copy=False).reshape(shape)
        return [observed if name is None else self._values.inputs[name] for name in self._order]


def _compiled(exported: Any, inputs: "list[NDArray[Any]]") -> Any:
    """Compile the function for arrays of these shapes, as a function from arrays to arrays in the trees' order."""
    import jax

    def call(*leaves: Any) -> Any:
        arguments, named = jax.tree_util.tree_unflatten(exported.in_tree, leaves)
        return jax.tree_util.tree_leaves(exported.call(*arguments, **named))

    shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in inputs]
    return jax.jit(call, keep_unused=True).lower(*shapes).compile()


FORMAT = ModelFormat(
    title="JAX",
    description=(
        "A function that jax.export serialized for processors (platforms=['cpu']), from a batch of observations to the"
        " actions; with a state, from (observation, state) to (action, state)."
    ),
    runtime="jax",
    environment="jax",
    packages=("flatbuffers", "jax"),
    suffixes=(".jax",),
    recognise=recognise,
    preload=preload,
    forkable=True,
    load=JaxModel,
)
