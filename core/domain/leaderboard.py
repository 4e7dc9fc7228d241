"""Leaderboard of a dataset's version: the best simulation of each model by the mean of the score over all tasks.

Only simulations of equal tasks are compared: of all scenarios, with the default parameters and without a sweep. Seeds
and repetitions may differ.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from core.domain.intervals import normal_interval


@dataclass(frozen=True, kw_only=True, slots=True)
class PlayedScore:
    """The score of a simulation: its mean over all tasks, with the 95 % interval. ``ended_at``: seconds (UTC).

    ``low`` and ``high``: NaN for the mean of a single task.
    """

    id: str
    model: str
    digest: str
    version: int | None
    tasks: Mapping[str, int]
    ended_at: float
    mean: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A place. ``better``: whether its interval does not overlap that of the next place; None if one has none.

    The last place has no next one.
    """

    score: PlayedScore
    better: bool | None


def plays_all(plan: Mapping[str, Any], scenarios: int, defaults: Mapping[str, Any]) -> bool:
    """Return whether a simulation's task plan has all scenarios of its dataset, with the default parameters.

    ``scenarios``: number of the dataset's scenarios.
    """
    select = plan.get("select") or {"range": []}
    if "range" in select:
        everything = list(select["range"]) == [0, scenarios]
    elif "tasks" in select:
        everything = len(select["tasks"]) >= scenarios and set(select["tasks"]) == set(range(scenarios))
    else:
        everything = select["sample"] == scenarios
    return everything and not plan.get("sweep") and (plan.get("params") or {}) == defaults


def penalised(statistics: Mapping[str, Any], failed: int, worst: float | None) -> tuple[float, float, float] | None:
    """Return the mean of a metric over all tasks with its 95 % interval; None if it has none.

    ``statistics``: of the ``ok`` tasks, from a summary. ``failed``: tasks that are not ``ok``, each with the value
    ``worst``. With such tasks the interval is the normal one of all values; else it is that of the summary.
    """
    mean = statistics.get("mean_penalised")
    if mean is None:
        return None
    low, high = statistics.get("low"), statistics.get("high")
    count = int(statistics["count"])
    if not failed and low is not None and high is not None:
        return mean, low, high
    deviations = 0.0
    if count:
        std, mean_ok = statistics.get("std"), statistics.get("mean_ok")
        if std is None or mean_ok is None:
            return None
        between = 0.0 if worst is None else count * failed / (count + failed) * (mean_ok - worst) ** 2
        deviations = std * std * (count - 1) + between
    return mean, *normal_interval(count + failed, mean, deviations)


def places(scores: Iterable[PlayedScore], *, lower_is_better: bool) -> list[Place]:
    """Return the best score of each model, by name, the best first; of equal ones that which ended first."""
    sign = -1.0 if lower_is_better else 1.0
    best: dict[str, PlayedScore] = {}
    for score in sorted(scores, key=lambda score: (-sign * score.mean, score.ended_at, score.id)):
        best.setdefault(score.model, score)
    ordered = list(best.values())
    return [
        Place(score=score, better=_beyond(score, following, sign) if following is not None else None)
        for score, following in zip_longest(ordered, ordered[1:])
    ]


def _beyond(score: PlayedScore, following: PlayedScore, sign: float) -> bool | None:
    if math.isnan(score.low) or math.isnan(following.low):
        return None
    return score.low > following.high if sign > 0 else score.high < following.low
