"""Leaderboard of a dataset's version: the pooled simulations of each model by the mean of the score over all tasks.

Only simulations of equal tasks are compared: of all scenarios, with the default parameters and without a sweep. Seeds
and repetitions may differ. A model is shown with all its simulations of one plan, which differ in their seeds: the best
of them would be a selection, and the more seeds a model has played, the better it would look.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import msgspec

from core.domain.results.intervals import normal_interval
from core.domain.results.metric_statistics import MetricStatistics


@dataclass(frozen=True, kw_only=True, slots=True)
class PlayedScore:
    """The score of a simulation: its mean over all tasks, with the 95 % interval. ``ended_at``: seconds (UTC).

    ``low`` and ``high``: NaN without an interval. ``repeat``: repetitions of each scenario. ``seed``: of the
    simulation. ``pooled``: number of simulations, of which ``id`` is the first. ``trusted``: whether any of these is.
    """

    id: str
    model: str
    digest: str
    version: int | None
    repeat: int
    seed: int
    tasks: Mapping[str, int]
    ended_at: float
    mean: float
    low: float
    high: float
    pooled: int = 1
    trusted: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A place. ``better``: whether its interval does not overlap that of the next place; None if one has none.

    The last place has no next one.
    """

    score: PlayedScore
    better: bool | None


class _Selected(msgspec.Struct):
    """The selected scenarios of a plan, in one of three ways."""

    range: list[int] | None = None
    tasks: list[int] | None = None
    sample: int | None = None


class _PlayedPlan(msgspec.Struct):
    """Members of a task plan that tell whether simulations are comparable."""

    select: _Selected | None = None
    sweep: Mapping[str, object] | None = None
    params: Mapping[str, object] | None = None


def plays_all(plan: Mapping[str, object], scenarios: int, defaults: Mapping[str, object]) -> bool:
    """Return whether a simulation's task plan has all scenarios of its dataset, with the default parameters.

    ``scenarios``: number of the dataset's scenarios.
    """
    played = msgspec.convert(plan, _PlayedPlan)
    select = played.select
    if select is None:
        return False
    if select.range is not None:
        everything = select.range == [0, scenarios]
    elif select.tasks is not None:
        everything = len(select.tasks) >= scenarios and set(select.tasks) == set(range(scenarios))
    else:
        everything = select.sample == scenarios
    return everything and not played.sweep and (played.params or {}) == defaults


def penalised(
    statistics: MetricStatistics, failed: int, worst: float | None, repeat: int
) -> tuple[float, float, float] | None:
    """Return the mean of a metric over all tasks with its 95 % interval, NaN without one; None if it has no mean.

    ``statistics``: of the ``ok`` tasks, from a summary. ``failed``: tasks that are not ``ok``, each with the value
    ``worst``. ``repeat``: repetitions of a scenario. Summaries of earlier versions have no interval of this mean:
    without repetitions it is that of the summary, or with failed tasks the normal one of all values.
    """
    mean = statistics.mean_penalised
    if mean is None:
        return None
    if (interval := statistics.interval(penalised=True)) is not None:
        return mean, *interval
    if repeat > 1:
        return mean, math.nan, math.nan
    count = statistics.count
    if not failed and (interval := statistics.interval(penalised=False)) and not any(map(math.isnan, interval)):
        return mean, *interval
    deviations = 0.0
    if count:
        std, mean_ok = statistics.std, statistics.mean_ok
        if std is None or mean_ok is None:
            return None
        between = 0.0 if worst is None else count * failed / (count + failed) * (mean_ok - worst) ** 2
        deviations = std * std * (count - 1) + between
    return mean, *normal_interval(count + failed, mean, deviations)


def places(scores: Iterable[PlayedScore], *, lower_is_better: bool) -> list[Place]:
    """Return the pooled score of each model, by name, the best first; of equal ones that which ended first."""
    sign = -1.0 if lower_is_better else 1.0
    by_model: defaultdict[str, list[PlayedScore]] = defaultdict(list)
    for score in scores:
        by_model[score.model].append(score)
    shown = map(shown_score, by_model.values())
    ordered = sorted(shown, key=lambda score: (-sign * score.mean, score.ended_at, score.id))
    return [
        Place(score=score, better=_beyond(score, following, sign) if following is not None else None)
        for score, following in zip_longest(ordered, ordered[1:])
    ]


def shown_score(scores: Iterable[PlayedScore]) -> PlayedScore:
    """Return the score that a model is shown with: of its newest version, of the plan with the most tasks, pooled.

    None of this depends on the scores. Of simulations with equal seeds, which are the same twice, the first counts, an
    isolated one before a trusted one.
    """
    in_order = sorted(scores, key=lambda score: (score.trusted, score.ended_at, score.id))
    newest = max(in_order, key=lambda score: (score.version or 0, score.ended_at)).digest
    first: dict[tuple[int, int], PlayedScore] = {}
    for score in in_order:
        if score.digest == newest:
            first.setdefault((score.repeat, score.seed), score)
    tasks: Counter[int] = Counter()
    for score in first.values():
        tasks[score.repeat] += score.tasks.get("total", 0)
    repeat = max(tasks, key=lambda repeat: tasks[repeat])
    return pooled([score for score in first.values() if score.repeat == repeat])


def pooled(scores: Sequence[PlayedScore]) -> PlayedScore:
    """Return the score of simulations of the same scenarios with other seeds.

    The deviation of a mean of means is at most the mean of their deviations, and as large if scenarios are all that
    differs: other seeds of the same scenarios do not make the interval narrower than one simulation's.
    """
    count = len(scores)
    if count == 1:  # to the last bit
        return scores[0]
    mean = sum(score.mean for score in scores) / count
    tasks: Counter[str] = Counter()
    for score in scores:
        tasks.update(score.tasks)
    return replace(
        scores[0],
        tasks=dict(tasks),
        ended_at=max(score.ended_at for score in scores),
        mean=mean,
        low=mean - sum(score.mean - score.low for score in scores) / count,
        high=mean + sum(score.high - score.mean for score in scores) / count,
        pooled=count,
        trusted=any(score.trusted for score in scores),
    )


def _beyond(score: PlayedScore, following: PlayedScore, sign: float) -> bool | None:
    if math.isnan(score.low) or math.isnan(following.low):
        return None
    return score.low > following.high if sign > 0 else score.high < following.low
