"""Python models: what the platform calls of the class `Model` in a model's file, for editors and type checkers.

A model's process has no packages but those that the model declares, so a model names these types only for its editor:

    from typing import TYPE_CHECKING

    if TYPE_CHECKING:
        from windtunnel import PythonModel, ResetInfo
    else:
        PythonModel = object
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ModelSpace(Protocol):
    """An observation or an action: type and shape of its array, and for each entry, in C order, what it is.

    ``low`` and ``high`` are infinite where an entry has no bound. ``gymnasium``: what the space is in Gymnasium; as a
    text `Discrete(2)`, for one with two values.
    """

    dtype: str
    shape: tuple[int, ...]
    names: tuple[str, ...]
    units: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    gymnasium: Any


class ResetInfo(TypedDict):
    """What `reset` gets. ``seed``: of this scenario, the same whenever it is played; ``params``: of the simulation."""

    seed: int
    observation: ModelSpace
    action: ModelSpace
    params: Mapping[str, Any]


class PythonModel(Protocol):
    """A model. It is made without arguments, in a process of its own for each scenario; only `act` is required."""

    def reset(self, info: ResetInfo) -> None:
        """Begin a scenario. `random` and `numpy.random` have been seeded with its seed."""

    def act(self, observation: "NDArray[Any]") -> "NDArray[Any] | Sequence[float] | float":
        """Return the action for an observation, which is a copy of the model's own.

        An action has a number for each entry of its space: an array, a list, a tuple, or one number for one entry.
        """
        ...


class PythonGymnasiumModel(Protocol):
    """A model that gets and returns elements of Gymnasium's spaces: an int for a Discrete, a dict for a Dict."""

    spaces: Literal["gymnasium"]

    def reset(self, info: ResetInfo) -> None:
        """Begin a scenario, as of a PythonModel."""

    def act(self, observation: Any) -> Any:
        """Return an element of the action space for an element of the observation space."""


class PythonBatchModel(PythonModel, Protocol):
    """A model with a method of its own for several observations at once."""

    def act_batch(self, observations: "NDArray[Any]") -> "NDArray[Any] | Sequence[Sequence[float]]":
        """Return an action for each of several observations, [n, ...], where a simulation plays tasks side by side.

        Without this method, `act` is called for each of them.
        """
        ...
