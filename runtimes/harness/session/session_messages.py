"""Session messages: orders of a server that plays scenarios for its clients, and answers of a session, as msgpack."""

from collections.abc import Mapping

import msgspec

from ..runner.framed_socket import Broken
from ..simulators.base import Metric


class Created(msgspec.Struct, tag="created"):
    """The simulators are created. ``worlds``: their number, which is 1 if several may not work in one process."""

    worlds: int


class ResetOrder(msgspec.Struct, tag="reset"):
    """Order to start a scenario as the task of a simulation with this seed; the scenario before, if any, is dropped."""

    scenario: int
    repeat: int
    seed: int


class StepOrder(msgspec.Struct, tag="step"):
    """Order to apply an action: one value per entry of the action space, in C order."""

    values: list[float]


Order = ResetOrder | StepOrder


class Observed(msgspec.Struct, tag="observed"):
    """The observation after a reset or a step: one value per entry of the observation space, in C order.

    ``seed``: of the scenario. ``reward``: of the step, None after a reset. ``metrics``: of the scenario that this step
    has ended, None if it goes on.
    """

    values: list[float]
    seed: int
    reward: float | None = None
    metrics: Mapping[str, Metric] | None = None


class Refused(msgspec.Struct, tag="refused"):
    """The action was not applied; the scenario goes on."""

    reason: str


class Failed(msgspec.Struct, tag="failed"):
    """The simulator raised an error, which has ended the scenario; the next reset starts another one."""

    reason: str


#: Before the first order a session answers that its simulator is created, or cannot be.
Answer = Created | Broken | Observed | Refused | Failed


def cut_off(metrics: Mapping[str, object], outcomes: Mapping[str, str]) -> bool:
    """Return whether a limit of time, not the world, has ended the scenario with these metrics.

    ``outcomes``: the dataset's names of the ends "terminated" and "truncated".
    """
    return metrics.get("outcome") in {outcomes.get("truncated", "truncated"), "timeout"}
