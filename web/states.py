"""States of simulations as pages show them: a sign, so that colour is not the only difference, and a tone."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShownState:
    """How a state is shown. ``tone``: class of the style sheet; ``ended``: whether it is the last."""

    sign: str
    tone: str
    ended: bool = False


STATES: Mapping[str, ShownState] = {
    "queued": ShownState("\N{HOURGLASS WITH FLOWING SAND}\N{VARIATION SELECTOR-15}", "waiting"),
    "staging": ShownState("\N{DOWNWARDS ARROW}", "waiting"),
    "launching": ShownState("\N{NORTH EAST ARROW}", "waiting"),
    "running": ShownState("\N{BLACK RIGHT-POINTING TRIANGLE}\N{VARIATION SELECTOR-15}", "active"),
    "cancelling": ShownState("\N{HORIZONTAL ELLIPSIS}", "waiting"),
    "succeeded": ShownState("\N{CHECK MARK}", "good", ended=True),
    "failed": ShownState("\N{MULTIPLICATION X}", "bad", ended=True),
    "errored": ShownState("!", "bad", ended=True),
    "cancelled": ShownState("\N{EN DASH}", "ended", ended=True),
}
