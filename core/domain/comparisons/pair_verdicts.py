"""Verdict on two simulations that were played: of all their scenarios, of each group, and the pairs that differ most.

There is one look, at the results of simulations that have ended. While one still runs its results are looked at again
and again, and only evidence that may be read at any time decides.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from core.domain.comparisons.claims import Design, Method
from core.domain.comparisons.confidence_sequence import Plan
from core.domain.comparisons.group_verdicts import (
    GroupEvidence,
    GroupTest,
    described_groups,
    largest_groups,
    standing_evidence,
)
from core.domain.comparisons.metric_scale import MetricScale
from core.domain.comparisons.paired_test import PairedTest, TestPlan
from core.domain.comparisons.scenario_differences import ScenarioDifferences, scenario_differences
from core.domain.comparisons.verdict_documents import VerdictContext, verdict_document
from core.domain.results.declared_results import DeclaredMetric

Floats = NDArray[np.float64]

#: Most groups of a grouping: those with the most scenarios.
GROUPS = 200
#: Most scenarios of each direction.
SCENARIOS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A scenario that both simulations played, with equal repetition and swept parameters.

    ``tasks``, ``statuses``, ``failed``, ``outcomes`` and ``ends``: of the first simulation, and of the other.
    ``failed``: whether the task is not ``ok`` or has an outcome that the dataset counts as a failure. ``ends``: seconds
    at which the task ended, on its own clock; None if unknown.
    """

    index: int
    repeat: int
    tasks: tuple[int, int]
    statuses: tuple[str, str]
    failed: tuple[bool, bool] = (False, False)
    outcomes: tuple[str, str] = ("ok", "ok")
    ends: tuple[float | None, float | None] = (None, None)
    name: str | None = None
    params: Mapping[str, object] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class StandingQuestion:
    """What is asked of two simulations. ``metric``: of the dataset's definition. ``bound`` and ``margin``: in its unit.

    ``ended``: whether both simulations have ended. ``other_seeds``: number of pairs whose tasks had different seeds.
    """

    metric: DeclaredMetric
    models: tuple[str, str]
    bound: float | None = None
    margin: float = 0.0
    design: Design = Design.POPULATION
    method: Method = Method.JOINED
    error_rate: float = 0.05
    ended: bool = True
    other_seeds: int = 0

    def __post_init__(self) -> None:
        if self.other_seeds and self.design is Design.EXACT:
            raise ValueError(
                "`design`: `exact` is about scenarios with their seeds, which differ between the two simulations."
                " Compare as a `population`, or play both with the same `seed`."
            )


def differences_of(
    pairs: Sequence[Pair], numbers: tuple[Floats, Floats], scenarios: Sequence[int], scale: MetricScale
) -> ScenarioDifferences:
    """Return the differences of ``scenarios``; ``numbers``: of the metric on both sides, NaN for none, (pairs,)."""
    ok = np.array([[status == "ok" for status in pair.statuses] for pair in pairs], np.bool_).reshape(-1, 2)
    return scenario_differences(
        scenarios,
        [pair.index for pair in pairs],
        [str(pair.params) for pair in pairs],
        numbers,
        (ok[:, 0], ok[:, 1]),
        scale,
    )


def verdict_members(
    pairs: Sequence[Pair], numbers: tuple[Floats, Floats], asked: StandingQuestion
) -> dict[str, object]:
    """Return ``verdict``, ``groups`` and ``scenarios`` of pairs. Raise ValueError as `MetricScale.of` does.

    ``numbers``: of the metric in both simulations, shape (n,) each; NaN for a task that is not ``ok``, and for one
    without a number.
    """
    scale = MetricScale.of(asked.metric, asked.bound)
    of_scenario: dict[int, Pair] = {}
    for pair in pairs:
        of_scenario.setdefault(pair.index, pair)
    scenarios = sorted(of_scenario)
    differences = differences_of(pairs, numbers, scenarios, scale)
    plan = TestPlan(
        bound=scale.bound,
        scenarios=len(scenarios),
        design=asked.design,
        method=asked.method,
        error_rate=asked.error_rate,
        margin=asked.margin,
        standing=True,
        ended=asked.ended,
    )
    test = PairedTest.begin(plan, resolution=0)
    if scenarios:
        test = test.extend(differences)
    context = VerdictContext(
        metric=asked.metric.name,
        models=asked.models,
        tasks=differences.tasks,
        clipped=differences.clipped,
        unknown=differences.unknown,
        over=False,
        other_seeds=asked.other_seeds,
    )
    by_scenario = dict(zip(scenarios, differences.neutral.tolist(), strict=True))
    return {
        "verdict": verdict_document(test, scale, context),
        "groups": _groups(of_scenario, by_scenario, asked, scale),
        "scenarios": differing_pairs(pairs, *numbers, scale),
    }


def _groups(
    of_scenario: Mapping[int, Pair], differences: Mapping[int, float], asked: StandingQuestion, scale: MetricScale
) -> dict[str, list[dict[str, object]]]:
    """Return the verdicts on the groups of each grouping, which e-BH corrects for their number."""
    members: dict[str, dict[str, list[float]]] = {}
    for index, pair in of_scenario.items():
        for grouping, group in pair.groups.items():
            members.setdefault(grouping, {}).setdefault(group, []).append(differences[index])

    def evidence(differences: Floats) -> GroupEvidence:
        if asked.design is Design.EXACT and asked.ended:  # the mean of each group is known
            plan = Plan(bound=scale.bound, pairs=len(differences), error_rate=asked.error_rate)
            return GroupTest.begin(plan, asked.margin).extend(differences).evidence
        return standing_evidence(differences, bound=scale.bound, margin=asked.margin, error_rate=asked.error_rate)

    return {
        grouping: described_groups(
            {
                group: evidence(np.array(groups[group]))
                for group in largest_groups({group: len(values) for group, values in groups.items()}, GROUPS)
            },
            scale,
            asked.error_rate,
        )
        for grouping, groups in members.items()
    }


def differing_pairs(
    pairs: Sequence[Pair], first: Floats, second: Floats, scale: MetricScale
) -> dict[str, list[dict[str, object]]]:
    """Return the pairs in which the first model is better, and those in which it is worse, by most.

    Pairs in which a task that is `ok` has no number are left out.
    """
    ok = np.array([[status == "ok" for status in pair.statuses] for pair in pairs], np.bool_).reshape(-1, 2)
    known = np.flatnonzero(~(np.isnan(first) & ok[:, 0]) & ~(np.isnan(second) & ok[:, 1])).tolist()
    pairs, first, second = [pairs[position] for position in known], first[known], second[known]
    differences = scale.unbounded_differences(first, second)
    order = sorted(range(len(pairs)), key=lambda position: (-differences[position], pairs[position].tasks[0]))
    better = [position for position in order[:SCENARIOS] if differences[position] > 0]
    worst_first = sorted(order[-SCENARIOS:], key=lambda position: (differences[position], pairs[position].tasks[0]))
    worse = [position for position in worst_first if differences[position] < 0]
    value_of = _counted_value(scale)

    def described(position: int) -> dict[str, object]:
        pair, difference = pairs[position], float(differences[position])
        document: dict[str, object] = {
            "name": pair.name,
            "index": pair.index,
            "repeat": pair.repeat,
            "task": pair.tasks[0],
            "to_task": pair.tasks[1],
            "status": pair.statuses[0],
            "to_status": pair.statuses[1],
            "first": value_of(float(first[position])),
            "second": value_of(float(second[position])),
            "difference": difference if math.isfinite(difference) else None,
        }
        return document | ({"params": pair.params} if pair.params else {})

    return {"better": list(map(described, better)), "worse": list(map(described, worse))}


def _counted_value(scale: MetricScale) -> Callable[[float], float | None]:
    """Return the function to the value that a task counts: of one that is not ``ok`` the worst, None if undeclared."""
    return lambda value: scale.worst if math.isnan(value) else value
