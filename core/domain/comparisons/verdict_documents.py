"""Verdict of a comparison for clients: its members, its sentence, and the notes that belong to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.domain.comparisons.claims import Claim, Decision, Design, Method
from core.domain.comparisons.detectable import Detectable, detectable
from core.domain.comparisons.fixed_design import saving
from core.domain.comparisons.metric_scale import MetricScale, ScaleKind
from core.domain.comparisons.paired_test import PairedTest
from core.domain.comparisons.quantities import interval_words, number_of_scenarios, quantity

SUBJECTS: Mapping[Design, str] = {
    Design.POPULATION: (
        "The scenarios count as a random sample: the verdict is about the mean over all scenarios that there could be,"
        " with their seeds, not only over those that were played."
    ),
    Design.LIST: (
        "The verdict is about these {scenarios}: about the mean of the differences that are expected over their seeds."
    ),
    Design.EXACT: (
        "The verdict is about these {scenarios} with these seeds, not about others, nor about other seeds of these."
    ),
}
ONCE = (
    "Each scenario was played once, so that the noise of its seed cannot be told from the difference between scenarios:"
    " the interval is that of a sample. Two or more repetitions tell them apart."
)
NORMAL_METHOD = (
    "The method `normal` estimates the variance from the differences. It is wrong more often than the error rate says"
    " if failures are rare: a sample that never saw one has a small variance."
)
SEEDS = (
    "The end of the list is decided by the variance between the repetitions of its scenarios, which is estimated: a"
    " failure that is rare in each scenario is not in it."
)
BIASED = "A difference at an early stop is overestimated on average; the interval allows for it."


@dataclass(frozen=True, kw_only=True, slots=True)
class VerdictContext:
    """What a verdict is said about. ``models``: names of the two.

    ``tasks``, ``clipped`` and ``unknown``: numbers of pairs of tasks. ``over``: whether nothing more is played.
    ``other_seeds``: of pairs whose tasks had different seeds. ``family``: what the error rates of several models amount
    to, in words; None for one model.
    """

    metric: str
    models: tuple[str, str]
    tasks: int
    clipped: int
    unknown: int
    over: bool
    other_seeds: int = 0
    family: str | None = None


def verdict_document(test: PairedTest, scale: MetricScale, context: VerdictContext) -> dict[str, object]:
    """Return the members of a verdict that both kinds of comparison have."""
    plan, decision, decisive = test.plan, test.decision, test.decisive
    low, high = test.interval
    p_values = test.deciding_p_values
    shows = detectable(test)
    return {
        "metric": context.metric,
        "design": plan.design.value,
        "method": plan.method.value,
        "decision": decision.value,
        "claims": {claim.value: holds for claim, holds in test.claims.items()},
        "refuted": {claim.value: holds for claim, holds in test.refuted.items()},
        "sentence": sentence(test, scale, context, shows),
        "claim": SUBJECTS[plan.design].format(scenarios=number_of_scenarios(plan.scenarios)),
        "message": " ".join(notes(test, scale, context)) or None,
        "error_rate": plan.error_rate,
        "margin": plan.margin,
        "count": test.count,
        "mean": test.mean if test.count else None,
        "low": low,
        "high": high,
        "p_better": p_values[0] if p_values else None,
        "p_worse": p_values[1] if p_values else None,
        "pairs": plan.scenarios,
        "tasks": context.tasks,
        "without_value": context.unknown,
        "decided_at": decisive.count if decisive else None,
        "decided_by": decisive.test if decisive else None,
        "biased": is_biased(test),
        "smallest": shows.difference,
        "smallest_margin": shows.margin,
        "pairs_for_margin": shows.scenarios,
        "scale": {"kind": scale.kind.value, "bound": scale.bound, "unit": scale.difference_unit},
        "saving": _saving(test, scale, over=context.over),
    }


def is_biased(test: PairedTest) -> bool:
    """Return whether the difference is that of a comparison which stopped because of it."""
    ended_early = test.count < test.plan.scenarios
    return ended_early and test.decision in (Decision.BETTER, Decision.WORSE) and not test.plan.standing


def sentence(test: PairedTest, scale: MetricScale, context: VerdictContext, shows: Detectable) -> str:
    """Return the verdict in words."""
    first, second = context.models
    plan, metric = test.plan, context.metric
    if not test.count:
        return f"No scenario has been played with both {first} and {second}."
    after = f"after {test.count:,} of {number_of_scenarios(plan.scenarios)}"
    words = _estimate(test, scale)
    if test.known:
        certainty = "known"
    else:
        certainty = f"error rate {100 * plan.error_rate:g} %"
    margin = quantity(plan.margin, scale)
    match test.decision:
        case Decision.EQUIVALENT:
            also = next((f", and {claim.value}" for claim in (Claim.BETTER, Claim.WORSE) if test.claims[claim]), "")
            claim = f"{first} is equivalent to {second} in {metric} within {margin}{also}: the difference is {words}"
            claim += _sign(scale, first)
        case Decision.BETTER | Decision.WORSE:
            side = test.decision
            if _contradicts(test):
                claim = f"{first} was shown to be {side} than {second} in {metric}, {_contradiction(test, scale)}"
            else:
                claim = f"{first} is {side} than {second} in {metric} by {_estimate(test, scale, towards=side)}"
        case Decision.NOT_WORSE:
            claim = f"{first} is not worse than {second} in {metric} by {margin} or more: the difference is {words}"
            claim += _sign(scale, first)
        case _:
            return _undecided(test, scale, context, after, shows)
    return f"{claim}, {after} ({certainty})."


def _undecided(test: PairedTest, scale: MetricScale, context: VerdictContext, after: str, shows: Detectable) -> str:
    first, second = context.models
    if context.unknown == context.tasks:
        return (
            f"Undecided between {first} and {second} {after}: no pair of tasks has a result with both, so that nothing"
            " was learnt about their difference."
        )
    if test.known and test.mean == 0:
        return f"{first} and {second} have the same mean {context.metric} on all {number_of_scenarios(test.count)}."
    words = f"Undecided between {first} and {second} {after}: the difference in {context.metric} is"
    words += f" {_estimate(test, scale)}{_sign(scale, first)}"
    if shows.difference is not None:
        end = "" if test.complete else f" once all {test.plan.scenarios:,} are played"
        words += f"; a difference of {quantity(shows.difference, scale)} would be shown with 80 % power{end}"
    if test.plan.margin and shows.margin is not None:
        words += f", and models that are equal would be equivalent at a margin of {quantity(shows.margin, scale)}"
        if shows.scenarios is not None and shows.scenarios > test.plan.scenarios:
            words += f"; at {quantity(test.plan.margin, scale)} with about {number_of_scenarios(shows.scenarios)}"
    elif test.plan.margin and not test.known:
        words += "; these scenarios are too few for any margin"
    return words + "."


def _sign(scale: MetricScale, first: str) -> str:
    """Return what the sign of a difference means, where it is not that of the metric's values."""
    return "" if scale.higher_is_better else f", above 0 if {first} is better"


def notes(test: PairedTest, scale: MetricScale, context: VerdictContext) -> Sequence[str]:
    """Return what a reader has to know besides: the scale, the method, pairs without a result, bias."""
    plan = test.plan
    claimed = any(test.claims[claim] for claim in (Claim.EQUIVALENT, Claim.NOT_WORSE)) and plan.margin > 0
    lines = [scale.message(context.clipped)]
    if claimed and scale.kind is ScaleKind.CLIPPED:
        lines.append("Equivalent and not worse are claims about these clipped differences.")
    if context.unknown and plan.margin:
        share = f"{context.unknown:,} of {context.tasks:,} pairs of tasks have no result to compare"
        lines.append(f"{share}: for equivalent and not worse each counts as the worst difference.")
    elif context.unknown:
        lines.append(
            f"{context.unknown:,} of {context.tasks:,} pairs of tasks have no result, and count as no difference."
        )
    if context.other_seeds:
        share = f"{context.other_seeds:,} of {context.tasks:,} pairs of tasks"
        lines.append(f"{share} had different seeds: what chance does on either side is among differences and flips.")
    if plan.design is Design.LIST and test.count:
        lines.append(ONCE if not test.repeated else SEEDS if test.complete else None)
    if plan.method is Method.NORMAL:
        lines.append(NORMAL_METHOD)
    if not plan.ended:
        lines.append("A simulation still runs: the sequence that may be read at any time decides alone until it ends.")
    if is_biased(test):
        lines.append(BIASED)
    if context.family:
        lines.append(context.family)
    return [line for line in lines if line]


def _contradicts(test: PairedTest) -> bool:
    """Return whether the mean of all pairs is on the other side of a claim that was shown before."""
    side = {Decision.BETTER: 1, Decision.WORSE: -1}.get(test.decision, 0)
    return side * test.sequence.sign < 0


def _contradiction(test: PairedTest, scale: MetricScale) -> str:
    shown = test.decisive
    at = f"after {number_of_scenarios(shown.count)}" if shown else ""
    return f"{at}, but the difference over all that were played, {quantity(test.mean, scale)}, contradicts it"


def _estimate(test: PairedTest, scale: MetricScale, *, towards: Decision | None = None) -> str:
    """Return the mean difference and its interval; of a decision, in its direction."""
    sign = -1.0 if towards is Decision.WORSE else 1.0
    low, high = sorted(sign * end for end in test.interval)
    if test.known and low == high:
        return quantity(sign * test.mean, scale)
    return interval_words(sign * test.mean, (low, high), scale, test.plan.error_rate)


def _saving(test: PairedTest, scale: MetricScale, *, over: bool) -> dict[str, object] | None:
    """Return what was not played, once nothing more is, beside a test of a fixed number of pairs; None before."""
    if not over or test.count < 2:
        return None
    saved = saving(
        played=test.count,
        pairs=test.plan.scenarios,
        interval=test.interval,
        mean=test.mean,
        std=test.std,
        signs=scale.kind is ScaleKind.SIGN,
        error_rate=test.plan.error_rate,
    )
    return saved.document()
