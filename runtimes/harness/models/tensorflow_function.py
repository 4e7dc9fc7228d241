"""Code shared by TensorFlow's formats: TensorFlow's set-up, and a model that is a function of a batch."""

import importlib
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .base import Assignment, Misfit, NoAction, action_bytes

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


class FunctionModel:
    """A model that is a function from a batch of observations to a batch of actions."""

    def __init__(self, function: "Callable[[NDArray[Any]], Any]", assignment: Assignment, library: str) -> None:
        import numpy as np  # the server reads formats without it

        self._function = function
        self._space = assignment.interface.action
        self.info: Mapping[str, str | int | float | bool | None] = {"library": library}
        space = assignment.interface.observation
        sample = np.zeros((assignment.batch, *space.shape), space.dtype)
        try:
            self.act(sample)  # also traces and compiles, so that the first scenario does not wait for it
        except NoAction as error:
            raise Misfit(f"{error} (tried with zeros)") from None
        except Exception as error:
            shape = ",".join(map(str, ("n", *space.shape)))
            raise Misfit(f"the model does not take {space.dtype}[{shape}]: {str(error)[:500]}") from None

    def reset(self, seed: int) -> None:
        """Do nothing: the functions have no state between calls."""

    def act(self, observations: "NDArray[Any]") -> bytes:
        return action_bytes(self._function(observations), len(observations), self._space)
