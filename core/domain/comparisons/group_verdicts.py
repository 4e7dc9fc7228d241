"""Verdicts of a comparison for each group of scenarios, corrected for the number of groups.

Each group has any-time evidence for two claims: the first model is better there by more than the margin, or worse. The
procedure e-BH (Wang and Ramdas, "False discovery rate control with e-values", JRSS-B 84, 2022) accepts the k claims
with the largest e-values, for the largest k whose e-values all reach (number of claims) / (error rate k). At most the
error rate is then the expected share of false claims among the accepted, whatever the dependence between groups, and at
whatever pair the comparison stops. E-values are those of the last pair, not their maxima, which are not e-values.

- **regressed**, **improved**: the claim is accepted.
- **suspect**: it is not, but the group by itself would be decided as worse (its e-value for worse reaches 2 / error
  rate), or at least three quarters of its interval are below minus the margin. For a symmetric interval and no margin
  that is a mean of half its half-width below 0, which about 5 % of groups without a difference have.
- **held**: otherwise. It comes with the smallest difference that would have been accepted with 80 % power, as the next
  claim after the accepted ones.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Self

import numpy as np

from core.domain.comparisons.claims import Decision
from core.domain.comparisons.confidence_sequence import ConfidenceSequence, Plan
from core.domain.comparisons.difference_cells import HALF, NOTHING, Floats
from core.domain.comparisons.metric_scale import MetricScale
from core.domain.comparisons.one_sided_bets import OneSidedBets, standing_bound
from core.domain.comparisons.quantities import interval_words, number_of_scenarios, quantity
from core.domain.comparisons.smallest_difference import smallest_difference

#: Share of the interval on the worse side from which a group is suspect.
MOSTLY = 0.75
#: Means on each side of 0 in the grids of groups, of which there are many, each with its state.
RESOLUTION = 20


class Verdict(StrEnum):
    """How the first model does in a group, beside the second."""

    REGRESSED = "regressed"
    SUSPECT = "suspect"
    IMPROVED = "improved"
    HELD = "held"


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupEvidence:
    """What is known of a group. ``mean``, ``std``, ``low`` and ``high``: of its differences, in the metric's unit.

    ``log_better`` and ``log_worse``: logarithms of the e-values against a difference within the ``margin``. ``pairs``:
    length of the list whose mean is meant, None for a population.
    """

    count: int
    mean: float
    std: float
    low: float
    high: float
    log_better: float
    log_worse: float
    bound: float
    margin: float
    pairs: int | None = None

    def smallest(self, log_threshold: float) -> float | None:
        """Return the smallest difference that would have reached the threshold; None if none would."""
        found = smallest_difference(self.count, self.std / self.bound, log_threshold=log_threshold, pairs=self.pairs)
        return None if found is None else self.bound * found + self.margin


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupTest:
    """Any-time test of a group, continued batch by batch. ``better`` and ``worse``: bets against the margin."""

    sequence: ConfidenceSequence
    better: OneSidedBets
    worse: OneSidedBets
    margin: float = 0.0

    @classmethod
    def begin(cls, plan: Plan, margin: float) -> Self:
        """Return the state before the first pair."""
        bets = OneSidedBets(null=margin / plan.bound, threshold=plan.log_threshold, pairs=plan.pairs)
        return cls(
            sequence=ConfidenceSequence(plan=replace(plan, resolution=RESOLUTION)),
            better=bets,
            worse=bets,
            margin=margin,
        )

    def extend(self, differences: Floats) -> Self:
        """Return the state after further differences, in the metric's unit."""
        shares = np.clip(differences / self.sequence.plan.bound, -1.0, 1.0)
        return replace(
            self,
            sequence=self.sequence.extend(differences),
            better=self.better.extend(shares),
            worse=self.worse.extend(-shares),
        )

    @property
    def evidence(self) -> GroupEvidence:
        """Return what is known of the group."""
        test = self.sequence
        low, high = test.interval
        return GroupEvidence(
            count=test.count,
            mean=test.mean,
            std=test.std,
            low=low,
            high=high,
            log_better=self.better.log_evidence,
            log_worse=self.worse.log_evidence,
            bound=test.plan.bound,
            margin=self.margin,
            pairs=test.plan.pairs,
        )


def standing_evidence(differences: Floats, *, bound: float, margin: float, error_rate: float) -> GroupEvidence:
    """Return what a whole sample of a group shows, whatever its order; shape (n,), in the metric's unit."""
    shares = np.clip(differences / bound, -1.0, 1.0)
    threshold = math.log(2 / error_rate)
    values, counts = NOTHING.extend(shares).sample()
    low, high = (max(-1.0, standing_bound(sign * values, counts, threshold) - HALF) for sign in (1.0, -1.0))
    bets = OneSidedBets(null=margin / bound, threshold=threshold)
    return GroupEvidence(
        count=len(shares),
        mean=float(differences.mean()) if len(shares) else 0.0,
        std=float(differences.std(ddof=1)) if len(shares) > 1 else 0.0,
        low=bound * low,
        high=-bound * high,
        log_better=bets.extend(shares).log_evidence,
        log_worse=bets.extend(-shares).log_evidence,
        bound=bound,
        margin=margin,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupVerdict:
    """Verdict on a group. ``smallest``: the smallest difference that would have been shown; None if none would."""

    group: str
    verdict: Verdict
    evidence: GroupEvidence
    smallest: float | None = field(default=None)


def accepted_claims(log_evidence: Mapping[tuple[str, Decision], float], error_rate: float) -> set[tuple[str, Decision]]:
    """Return the claims that e-BH accepts, by group and direction; ``log_evidence``: of all claims that are tested."""
    ordered = sorted(log_evidence.items(), key=lambda item: -item[1])
    accepted = 0
    for rank, (_, value) in enumerate(ordered, start=1):
        if value >= _log_threshold(len(ordered), rank, error_rate):
            accepted = rank
    return {claim for claim, _ in ordered[:accepted]}


def group_verdicts(groups: Mapping[str, GroupEvidence], error_rate: float = 0.05) -> list[GroupVerdict]:
    """Return the verdict on each group, in the order of ``groups``."""
    log_evidence: dict[tuple[str, Decision], float] = {}
    for group, evidence in groups.items():
        log_evidence[group, Decision.BETTER] = evidence.log_better
        log_evidence[group, Decision.WORSE] = evidence.log_worse
    accepted = accepted_claims(log_evidence, error_rate)
    next_rank = min(len(accepted) + 1, max(1, len(log_evidence)))
    threshold = _log_threshold(max(1, len(log_evidence)), next_rank, error_rate)
    return [
        GroupVerdict(
            group=group,
            verdict=_verdict(group, evidence, accepted, error_rate),
            evidence=evidence,
            smallest=evidence.smallest(threshold),
        )
        for group, evidence in groups.items()
    ]


def _log_threshold(claims: int, rank: int, error_rate: float) -> float:
    return math.log(claims / (error_rate * rank))


def _verdict(group: str, evidence: GroupEvidence, accepted: set[tuple[str, Decision]], error_rate: float) -> Verdict:
    if (group, Decision.WORSE) in accepted:
        return Verdict.REGRESSED
    if (group, Decision.BETTER) in accepted:
        return Verdict.IMPROVED
    low, high = evidence.low, evidence.high
    below = -evidence.margin - min(low, -evidence.margin)
    mostly_worse = high > low and below >= MOSTLY * (high - low) and evidence.count > 0
    return Verdict.SUSPECT if evidence.log_worse >= math.log(2 / error_rate) or mostly_worse else Verdict.HELD


def described_groups(
    groups: Mapping[str, GroupEvidence], scale: MetricScale, error_rate: float
) -> list[dict[str, object]]:
    """Return the verdicts on the groups of one grouping, for clients, in the order of ``groups``."""
    return [
        {
            "group": verdict.group,
            "verdict": verdict.verdict.value,
            "sentence": group_sentence(verdict, scale, groups=len(groups), error_rate=error_rate),
            "count": verdict.evidence.count,
            "mean": verdict.evidence.mean if verdict.evidence.count else None,
            "low": verdict.evidence.low,
            "high": verdict.evidence.high,
            "smallest": verdict.smallest,
        }
        for verdict in group_verdicts(groups, error_rate)
    ]


def group_sentence(verdict: GroupVerdict, scale: MetricScale, *, groups: int, error_rate: float = 0.05) -> str:
    """Return the verdict on a group in words; ``groups``: how many groups were tested."""
    evidence, group = verdict.evidence, verdict.group
    scenarios = number_of_scenarios(evidence.count)
    if verdict.verdict is Verdict.HELD:
        if not evidence.count:
            return f"{group}: no scenario was played."
        return f"{group}: held; no difference was shown in {scenarios}{_power(verdict.smallest, scale)}."
    beyond = f" by more than {quantity(evidence.margin, scale)}" if evidence.margin else ""
    kind = f"{verdict.verdict}{beyond if verdict.verdict is not Verdict.SUSPECT else ''}"
    sign = -1.0 if evidence.mean < 0 else 1.0
    words = interval_words(sign * evidence.mean, sorted((sign * evidence.low, sign * evidence.high)), scale, error_rate)
    direction = "worse" if evidence.mean < 0 else "better"
    ending = f", which is not enough among {groups} groups" if verdict.verdict is Verdict.SUSPECT and groups > 1 else ""
    return f"{group}: {kind}; {direction} by {words}, in {scenarios}{ending}."


def _power(smallest: float | None, scale: MetricScale) -> str:
    if smallest is None:
        return ", too few for any"
    return f"; a difference of {quantity(smallest, scale)} would have been shown with 80 % power" if smallest else ""


def largest_groups(sizes: Mapping[str, int], most: int) -> Sequence[str]:
    """Return the groups with the most scenarios, by name."""
    return sorted(sorted(sizes, key=lambda group: (-sizes[group], group))[:most])
