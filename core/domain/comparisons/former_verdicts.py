"""Running verdicts of comparisons that began before claims were kept: their state as that of today.

They go on by the rules with which they began: the any-time sequence with the whole error rate, no margin, and on a list
the sign of its mean at the end. Their flips were not counted while they ran; they are in the pages that are computed
from the results.
"""

from collections.abc import Mapping
from dataclasses import replace

import msgspec
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


class _FormerTest(msgspec.Struct):
    """Members of a test of then besides its sequence. ``peaks``: of the capital of better and of worse."""

    decided_at: int | None
    decided: Decision | None
    peaks: tuple[float, float]


def is_former(state: object) -> bool:
    """Return whether the stored state of a test is one of then."""
    return isinstance(state, dict) and "sequence" not in state


def present_test(state: object, plan: TestPlan) -> PairedTest:
    """Return the test of all scenarios that goes on with the same numbers."""
    sequence, former = msgspec.convert(state, ConfidenceSequence), msgspec.convert(state, _FormerTest)
    shown: dict[Fact, Shown] = {}
    if former.decided_at is not None and former.decided is not None:
        shown[_FACTS[former.decided][0]] = Shown(count=former.decided_at, test="anytime")
    return PairedTest(
        plan=plan,
        sequence=sequence,
        bets={fact: _bets(former, sequence, decision) for decision, (fact, _) in _FACTS.items()},
        neutral=NOTHING,
        repeated=False,
        shown=shown,
    )


def present_group(state: object) -> GroupTest:
    """Return the test of a group that goes on with the same numbers."""
    sequence, former = msgspec.convert(state, ConfidenceSequence), msgspec.convert(state, _FormerTest)
    better, worse = (_bets(former, sequence, decision) for decision in _FACTS)
    return GroupTest(sequence=sequence, better=better, worse=worse)


def _bets(former: _FormerTest, sequence: ConfidenceSequence, decision: Decision) -> OneSidedBets:
    """Return the bets of a side against a mean of 0; ``sequence``: of this test."""
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
        peak=former.peaks[side],
        shown_at=former.decided_at if former.decided is decision else None,
    )
