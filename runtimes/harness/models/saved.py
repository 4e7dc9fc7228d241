"""What TensorFlow's two formats share: calling a function of a batch, and checking it by calling it once."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import Assignment, Misfit, NoAction, action_bytes


class Called:
    """A model that is a function from a batch of observations to a batch of actions."""

    def __init__(self, function: Callable[[NDArray[Any]], Any], assignment: Assignment, library: str) -> None:
        self._function = function
        self._space = assignment.interface.action
        self.info: Mapping[str, str | int | float | bool | None] = {"library": library}
        space = assignment.interface.observation
        sample = np.zeros((assignment.batch, *space.shape), space.dtype)
        try:
            self.act(sample)  # also traces and compiles, which the first scenario should not pay for
        except NoAction as error:
            raise Misfit(f"{error} (tried with zeros)") from None
        except Exception as error:
            shape = ",".join(map(str, ("n", *space.shape)))
            raise Misfit(f"the model does not take {space.dtype}[{shape}]: {str(error)[:500]}") from None

    def reset(self, seed: int) -> None:
        """Its functions have no memory that outlives a call."""

    def act(self, observations: NDArray[Any]) -> bytes:
        return action_bytes(self._function(observations), len(observations), self._space)
