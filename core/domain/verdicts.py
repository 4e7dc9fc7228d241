"""Verdicts of a comparison for each group of scenarios, corrected for the number of groups, and in words.

Each group has a sequential test of its own, and two claims: the first model is better there, or worse. The procedure
e-BH (Wang and Ramdas, "False discovery rate control with e-values", JRSS-B 84, 2022) accepts the k claims with the
largest e-values, for the largest k whose e-values all reach (number of claims) / (error rate k). At most the error rate
is then the expected share of false claims among the accepted, whatever the dependence between groups, and at whatever
pair the comparison stops. E-values are those of the last pair, not their maxima, which are not e-values.

- **regressed**, **improved**: the claim is accepted.
- **suspect**: it is not, but the group by itself would be decided as worse (its e-value for worse reaches 2 / error
  rate), or at least three quarters of its interval are on the worse side. For a symmetric interval that is a mean of
  half its half-width below 0, which about 5 % of groups without a difference have.
- **held**: otherwise. It comes with the smallest difference that would have been accepted with 80 % power, as the next
  claim after the accepted ones.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from core.domain.metric_scale import MetricScale, ScaleKind
from core.domain.sequential_test import Decision, SequentialTest
from core.domain.smallest_difference import smallest_difference

#: Share of the interval on the worse side from which a group is suspect.
MOSTLY = 0.75


class Verdict(StrEnum):
    """How the first model does in a group, beside the second."""

    REGRESSED = "regressed"
    SUSPECT = "suspect"
    IMPROVED = "improved"
    HELD = "held"


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupVerdict:
    """Verdict on a group. ``smallest``: the smallest difference that would have been shown; None if none would."""

    group: str
    verdict: Verdict
    test: SequentialTest
    smallest: float | None


def accepted_claims(log_evidence: Mapping[tuple[str, Decision], float], error_rate: float) -> set[tuple[str, Decision]]:
    """Return the claims that e-BH accepts, by group and direction; ``log_evidence``: of all claims that are tested."""
    ordered = sorted(log_evidence.items(), key=lambda item: -item[1])
    accepted = 0
    for rank, (_, value) in enumerate(ordered, start=1):
        if value >= _log_threshold(len(ordered), rank, error_rate):
            accepted = rank
    return {claim for claim, _ in ordered[:accepted]}


def group_verdicts(tests: Mapping[str, SequentialTest], error_rate: float = 0.05) -> list[GroupVerdict]:
    """Return the verdict on each group, in the order of ``tests``."""
    log_evidence: dict[tuple[str, Decision], float] = {}
    for group, test in tests.items():
        log_evidence[group, Decision.BETTER], log_evidence[group, Decision.WORSE] = test.log_evidence
    accepted = accepted_claims(log_evidence, error_rate)
    next_rank = min(len(accepted) + 1, max(1, len(log_evidence)))
    threshold = _log_threshold(max(1, len(log_evidence)), next_rank, error_rate)
    return [
        GroupVerdict(
            group=group,
            verdict=_verdict(group, test, accepted, error_rate),
            test=test,
            smallest=smallest_difference(test, log_threshold=threshold),
        )
        for group, test in tests.items()
    ]


def _log_threshold(claims: int, rank: int, error_rate: float) -> float:
    return math.log(claims / (error_rate * rank))


def _verdict(group: str, test: SequentialTest, accepted: set[tuple[str, Decision]], error_rate: float) -> Verdict:
    if (group, Decision.WORSE) in accepted:
        return Verdict.REGRESSED
    if (group, Decision.BETTER) in accepted:
        return Verdict.IMPROVED
    _, worse = test.log_evidence
    low, high = test.interval
    mostly_worse = high > low and -min(low, 0.0) >= MOSTLY * (high - low) and test.count > 0
    return Verdict.SUSPECT if worse >= math.log(2 / error_rate) or mostly_worse else Verdict.HELD


def group_sentence(verdict: GroupVerdict, scale: MetricScale, *, groups: int) -> str:
    """Return the verdict on a group in words; ``groups``: how many groups were tested."""
    test, group = verdict.test, verdict.group
    if verdict.verdict is Verdict.HELD:
        if not test.count:
            return f"{group}: no pair was played."
        return f"{group}: held; no difference was shown in {_pairs(test.count)}{_power(verdict.smallest, scale)}."
    direction = "worse" if test.mean < 0 else "better"
    ending = f", which is not enough among {groups} groups" if verdict.verdict is Verdict.SUSPECT and groups > 1 else ""
    return f"{group}: {verdict.verdict}; {direction} by {_estimate(test, scale)}{ending}."


def sentence(test: SequentialTest, scale: MetricScale, *, metric: str, first: str, second: str, pairs: int) -> str:
    """Return the verdict of a comparison in words; ``pairs``: how many there are to be played."""
    if not test.count:
        return f"No pair of {first} and {second} was played."
    after = f"after {test.count:,} of {_pairs(pairs)}"
    if test.complete and test.decision is Decision.UNDECIDED:
        return f"{first} and {second} have the same mean {metric} on all {_pairs(pairs)}."
    if test.decision is Decision.UNDECIDED:
        smallest = smallest_difference(test)
        return (
            f"Undecided between {first} and {second} {after}: the difference in {metric} is"
            f" {_estimate(test, scale, signed=True, count=False)}{_power(smallest, scale)}."
        )
    certainty = "known" if math.inf in test.log_evidence else f"error rate {100 * test.plan.error_rate:g} %"
    return (
        f"{first} is {test.decision} than {second} in {metric} by {_estimate(test, scale, count=False)}, {after}"
        f" ({certainty})."
    )


def quantity(value: float, scale: MetricScale) -> str:
    """Return a difference with its unit; of signs, the share of the pairs."""
    return f"{_number(value, scale)} {_unit(scale)}".rstrip()


def _number(value: float, scale: MetricScale) -> str:
    return f"{value * (100 if scale.kind is ScaleKind.SIGN else 1) + 0.0:.3g}"


def _unit(scale: MetricScale) -> str:
    return "% of the pairs" if scale.kind is ScaleKind.SIGN else scale.unit


def _estimate(test: SequentialTest, scale: MetricScale, *, signed: bool = False, count: bool = True) -> str:
    """Return the mean difference and its interval; unless ``signed``, in the direction of the mean."""
    sign = -1.0 if test.mean < 0 and not signed else 1.0
    mean = quantity(sign * test.mean, scale)
    if test.complete:
        return mean
    low, high = sorted(sign * end for end in test.interval)
    pairs = f"; {_pairs(test.count)}" if count else ""
    return (
        f"{mean} ({100 * (1 - test.plan.error_rate):g} % interval {_number(low, scale)} to"
        f" {quantity(high, scale)}{pairs})"
    )


def _power(smallest: float | None, scale: MetricScale) -> str:
    if smallest is None:
        return ", too few for any"
    return f"; a difference of {quantity(smallest, scale)} would have been shown with 80 % power" if smallest else ""


def _pairs(count: int) -> str:
    return f"{count:,} pair" if count == 1 else f"{count:,} pairs"
