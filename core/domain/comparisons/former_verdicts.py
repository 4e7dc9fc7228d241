"""Running verdicts of comparisons that began before claims were kept: their state as that of today.

They go on by the rules with which they began: the any-time sequence with the whole error rate, no margin, and on a list
the sign of its mean at the end. Their flips were not counted while they ran; they are in the pages that are computed
from the results.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from core.domain.comparisons.claims import Decision, Fact
from core.domain.comparisons.confidence_sequence import ConfidenceSequence
from core.domain.comparisons.difference_cells import NOTHING
from core.domain.comparisons.group_verdicts import GroupTest
from core.domain.comparisons.one_sided_bets import FRACTIONS, OneSidedBets
from core.domain.comparisons.paired_test import PairedTest, Shown, TestPlan

#: Facts by the decision that they are, and by the side of the sequence's bets.
_FACTS: Mapping[Decision, tuple[Fact, int]] = {
    Decision.BETTER: (Fact.ABOVE_ZERO, 0),
    Decision.WORSE: (Fact.BELOW_ZERO, 1),
}


def is_former(document: Mapping[str, Any]) -> bool:
    """Return whether a stored state is one of then."""
    return "sequence" not in document["test"]


def present_state(document: Mapping[str, Any], plan: TestPlan) -> dict[str, Any]:
    """Return the stored state of `RunningVerdict` that goes on with the same numbers."""
    state = document["test"]
    sequence = ConfidenceSequence.from_json(state)
    shown: dict[Fact, Shown] = {}
    if state["decided_at"] is not None:
        shown[_FACTS[Decision(state["decided"])][0]] = Shown(count=state["decided_at"], test="anytime")
    test = PairedTest(
        plan=plan,
        sequence=sequence,
        bets={fact: _bets(state, sequence, decision) for decision, (fact, _) in _FACTS.items()},
        neutral=NOTHING,
        repeated=False,
        shown=shown,
    )
    groups = {
        grouping: {group: _group(test).to_json() for group, test in tests.items()}
        for grouping, tests in document["groups"].items()
    }
    kept = {name: document[name] for name in ("better", "worse", "clipped", "without_value", "looks")}
    return {"test": test.to_json(), "groups": groups, "flips": None, "tasks": sequence.count, **kept}


def _group(state: Mapping[str, Any]) -> GroupTest:
    sequence = ConfidenceSequence.from_json(state)
    better, worse = (_bets(state, sequence, decision) for decision in _FACTS)
    return GroupTest(sequence=sequence, better=better, worse=worse)


def _bets(state: Mapping[str, Any], sequence: ConfidenceSequence, decision: Decision) -> OneSidedBets:
    """Return the bets of a side against a mean of 0; ``state``: stored, of a test of then, with this ``sequence``."""
    side = _FACTS[decision][1]
    at = sequence.plan.resolution
    bets = OneSidedBets(null=0.0, threshold=sequence.plan.log_threshold, pairs=sequence.plan.pairs)
    if not sequence.count:
        return bets
    capital = np.array(sequence.log_capital).reshape(2, 2 * at + 1, len(FRACTIONS))[side, at]
    return replace(
        bets,
        count=sequence.count,
        total=sequence.total if side == 0 else -sequence.total,
        log_capital=tuple(capital.tolist()),
        peak=state["peaks"][side],
        shown_at=state["decided_at"] if state["decided"] == decision.value else None,
    )
