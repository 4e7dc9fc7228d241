"""Code shared by TensorFlow's formats: TensorFlow's set-up, and a model that is a function of a batch."""

import copy
import gc
import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .base import Assignment, Misfit, NoAction, action_bytes
from .recurrence import RecurrentValues
from .signature import Signature
from .tensorflow_graph import Remedy, operations, remedy, restorer
from .tensors import check_output_type, input_shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The environment of TensorFlow's formats, and its packages.
ENVIRONMENT, PACKAGES = "tensorflow", ("tensorflow-cpu",)


def import_tensorflow() -> Any:
    """Return TensorFlow; the first call imports it."""
    # TensorFlow reads both at import: fewer lines in the model's log, and the same order of summation on every machine.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    return importlib.import_module("tensorflow")


def start_tensorflow() -> None:
    """Import TensorFlow and limit it to one thread before it starts its threads."""
    tf = import_tensorflow()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.add(tf.constant(0.0), 1.0)  # starts the runtime


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedFunction:
    """A loaded function: how to call it with a batch and its state, and its traced form, a `ConcreteFunction`.

    ``owner`` keeps variables alive that the function refers to weakly. ``values``: what is fed back to it at first.
    ``info`` describes it for people.
    """

    call: "Callable[[NDArray[Any], RecurrentValues | None], Any]"
    traced: Any
    owner: Any = None
    values: RecurrentValues | None = None
    info: Mapping[str, str] = field(default_factory=dict)


def function_of(
    run: "Callable[[Mapping[str, NDArray[Any]]], Mapping[str, Any]]",
    signature: Signature,
    assignment: Assignment,
    *,
    traced: Any,
    owner: Any,
    info: Mapping[str, str],
) -> LoadedFunction:
    """Return a function of observations whose states are fed back; ``run`` maps arrays to tensors, both by name."""
    observation, space = signature.observation, assignment.interface.observation
    values = RecurrentValues(signature.states, observation, assignment.batch)
    shape = (assignment.batch, *input_shape(observation, space))

    def call(observations: "NDArray[Any]", values: RecurrentValues | None) -> Any:
        assert values is not None
        observed = observations.astype(observation.dtype, copy=False).reshape(shape)
        outputs = run({observation.name: observed, **values.inputs})
        values.keep([outputs[state.output.name].numpy() for state in signature.states])
        return outputs[signature.action.name].numpy()

    return LoadedFunction(call=call, traced=traced, owner=owner, values=values, info=info)


class FunctionModel:
    """A model that is a function from a batch of observations to a batch of actions.

    ``load`` loads it, with the random operations of a scenario's seed. What its operations keep decides how it is
    reset: not at all, by restoring variables, or by loading it again.
    """

    def __init__(
        self,
        load: Callable[[int], LoadedFunction],
        assignment: Assignment,
        library: str,
    ) -> None:
        import numpy as np  # the server reads formats without it

        self._load = load
        self._space = assignment.interface.action
        self._use(load(0))
        self.info: Mapping[str, str | int | float | bool | None] = {"library": library, **self._function.info}
        self._remedy = remedy(operations(self._function.traced.graph))
        self._restore = restorer(self._function.traced.captured_inputs) if self._remedy == Remedy.RESTORE else None
        space = assignment.interface.observation
        sample = np.zeros((assignment.batch, *space.shape), space.dtype)
        try:
            answer = self._call(sample, self._values)  # also compiles, so that the first scenario does not wait for it
            check_output_type(str(answer.dtype), self._space)
            action_bytes(answer, assignment.batch, self._space)
        except Misfit:
            raise
        except NoAction as error:
            raise Misfit(f"{error} (tried with zeros)") from None
        except Exception as error:
            shape = ",".join(map(str, ("n", *space.shape)))
            raise Misfit(f"the model does not take {space.dtype}[{shape}]: {str(error)[:500]}") from None
        if self._remedy == Remedy.RELOAD:
            gc.freeze()  # TensorFlow's own objects need not be examined at each reset

    def _use(self, function: LoadedFunction) -> None:
        self._function = function
        self._call = function.call
        self._values = function.values

    def reset(self, seed: int) -> None:
        """Undo what the last scenario has changed, and seed what draws random numbers."""
        if self._values is not None:
            self._values.reset()
        if self._remedy == Remedy.NOTHING:
            return
        import_tensorflow().random.set_seed(seed & 0x7FFFFFFF)
        if self._remedy == Remedy.RELOAD:
            self._use(self._load(seed))
            gc.collect()  # a loaded function is a cycle, and would stay until Python has as many new objects as old
        if self._restore is not None:
            self._restore()

    def act(self, observations: "NDArray[Any]") -> bytes:
        return action_bytes(self._call(observations, self._values), len(observations), self._space)

    def row(self) -> "FunctionModel | None":
        """Return a model of the same function; None if its operations keep anything."""
        if self._remedy != Remedy.NOTHING:
            return None
        row = copy.copy(self)
        row._values = self._values.of_another_row() if self._values is not None else None
        return row
