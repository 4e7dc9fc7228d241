"""States of simulations, comparisons, pipelines and steps as pages show them: a sign, not only a colour, and a tone."""

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
    # The ends of a run say nothing of how good its model is, so that they are not green.
    "finished": ShownState("\N{CHECK MARK}", "ended", ended=True),  # of comparisons
    "succeeded": ShownState("\N{CHECK MARK}", "ended", ended=True),
    "failed": ShownState("\N{MULTIPLICATION X}", "bad", ended=True),
    "errored": ShownState("!", "bad", ended=True),
    "cancelled": ShownState("\N{EN DASH}", "ended", ended=True),
    # The others are of steps of pipelines.
    "waiting": ShownState("\N{HOURGLASS WITH FLOWING SAND}\N{VARIATION SELECTOR-15}", "waiting"),
    "ready": ShownState("\N{NORTH EAST ARROW}", "waiting"),
    "skipped": ShownState("=", "ended", ended=True),
    "not_run": ShownState("\N{EN DASH}", "ended", ended=True),
}
_OF_STEPS = frozenset({"waiting", "ready", "skipped", "not_run"})
#: Those that simulations have, and those that comparisons have.
OF_SIMULATIONS = frozenset(STATES) - _OF_STEPS - {"finished"}
OF_COMPARISONS = frozenset(STATES) - _OF_STEPS - {"queued", "staging", "launching", "succeeded", "errored"}
