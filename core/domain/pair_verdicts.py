"""Verdicts on two simulations that were played: of all pairs, of each group, and the scenarios that differ most.

The design is that of a population: the scenarios count as a random sample, and the claim is about the mean over all
there could be. About the finite list nothing is left to test, since its mean is known. Pairs are tested in an order
that is random by a fixed seed, so that a simulation that is compared twice has one verdict.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.domain.fixed_design import saving
from core.domain.intervals import normal_interval
from core.domain.metric_scale import MetricScale
from core.domain.play_order import play_order
from core.domain.sequential_test import Decision, Design, Plan, SequentialTest
from core.domain.smallest_difference import smallest_difference
from core.domain.verdicts import group_sentence, group_verdicts, sentence
from core.domain.whole_sample import sample_test

Floats = NDArray[np.float64]

#: Seed of the order in which pairs are tested.
SEED = 0
#: Most groups of a grouping: those with the most pairs.
GROUPS = 200
#: Most scenarios of each direction.
SCENARIOS = 20
CLAIM = (
    "The scenarios count as a random sample: the verdict is about the mean over all scenarios that there could be, not"
    " over those that were played."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A scenario that both simulations played, with equal repetition and swept parameters.

    ``tasks`` and ``statuses``: of the first simulation, and of the other.
    """

    index: int
    repeat: int
    tasks: tuple[int, int]
    statuses: tuple[str, str]
    name: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)


def verdict_members(
    pairs: Sequence[Pair],
    numbers: tuple[Floats, Floats],
    metric: Mapping[str, Any],
    models: tuple[str, str],
    *,
    bound: float | None = None,
) -> dict[str, Any]:
    """Return ``verdict``, ``groups`` and ``scenarios`` of pairs. Raise ValueError as `MetricScale.of` does.

    ``numbers``: of the metric in both simulations, shape (n,) each; NaN for a task that is not ``ok``, and for one
    without a number, whose pair is left out. ``metric``: of the dataset's definition. ``bound``: of the differences,
    in the metric's unit.
    """
    scale = MetricScale.of(metric, bound)
    missing = np.zeros(len(pairs), np.bool_)
    for side, values in enumerate(numbers):
        missing |= np.isnan(values) & np.array([pair.statuses[side] == "ok" for pair in pairs], np.bool_)
    known = [pairs[position] for position in np.flatnonzero(~missing).tolist()]
    first, second = (values[~missing] for values in numbers)
    order = np.array(play_order(SEED, [_identity(pair) for pair in known]), np.int64)
    differences, clipped = scale.differences(first[order], second[order])
    test = sample_test(Plan(bound=scale.bound), differences)
    name = metric["name"]
    verdict = {
        "metric": name,
        "design": Design.POPULATION.value,
        "decision": test.decision.value,
        "sentence": sentence(test, scale, metric=name, first=models[0], second=models[1], pairs=len(known)),
        "claim": CLAIM,
        "message": scale.message(clipped),
        **estimate(test),
        "pairs": len(known),
        "without_value": len(pairs) - len(known),
        "decided_at": test.decided_at,
        "smallest": smallest_difference(test),
        "scale": {"kind": scale.kind.value, "bound": scale.bound, "unit": scale.unit},
        "fixed": _fixed(test, len(known)),
    }
    shuffled = [known[position] for position in order.tolist()]
    return {
        "verdict": verdict,
        "groups": _groups(shuffled, differences, scale),
        "scenarios": scenario_differences(known, first, second, scale),
    }


def _identity(pair: Pair) -> str:
    return f"{pair.index}/{pair.repeat}/{pair.params}"


def estimate(test: SequentialTest) -> dict[str, Any]:
    """Return the number of pairs, the mean difference and its interval."""
    low, high = test.interval
    return {"count": test.count, "mean": test.mean if test.count else None, "low": low, "high": high}


def _fixed(test: SequentialTest, pairs: int) -> dict[str, Any] | None:
    """Return the result of a paired test of a number of pairs that was fixed before, and the saving beside it."""
    if test.count < 2:
        return None
    low, high = normal_interval(test.count, test.mean, test.std**2 * (test.count - 1))
    decision = Decision.BETTER if low > 0 else Decision.WORSE if high < 0 else Decision.UNDECIDED
    played = test.decided_at or test.count
    saved = saving(played=played, pairs=pairs, mean=test.mean, std=test.std, error_rate=test.plan.error_rate)
    return {"decision": decision.value, "low": low, "high": high, "saving": asdict(saved) | {"share": saved.share}}


def _groups(pairs: Sequence[Pair], differences: Floats, scale: MetricScale) -> dict[str, list[dict[str, Any]]]:
    """Return the verdicts on the groups of each grouping, which e-BH corrects for their number."""
    positions: dict[str, dict[str, list[int]]] = {}
    for position, pair in enumerate(pairs):
        for grouping, group in pair.groups.items():
            positions.setdefault(grouping, {}).setdefault(group, []).append(position)
    plan = Plan(bound=scale.bound)
    documents = {}
    for grouping, of_group in positions.items():
        largest = sorted(of_group, key=lambda group: (-len(of_group[group]), group))[:GROUPS]
        tests = {group: sample_test(plan, differences[of_group[group]]) for group in sorted(largest)}
        documents[grouping] = described_groups(tests, scale)
    return documents


def described_groups(
    tests: Mapping[str, SequentialTest], scale: MetricScale, error_rate: float = 0.05
) -> list[dict[str, Any]]:
    """Return the verdicts on the groups of one grouping, for clients, in the order of ``tests``."""
    return [
        {
            "group": verdict.group,
            "verdict": verdict.verdict.value,
            "sentence": group_sentence(verdict, scale, groups=len(tests)),
            **estimate(verdict.test),
            "smallest": verdict.smallest,
        }
        for verdict in group_verdicts(tests, error_rate)
    ]


def scenario_differences(
    pairs: Sequence[Pair], first: Floats, second: Floats, scale: MetricScale
) -> dict[str, list[dict[str, Any]]]:
    """Return the pairs in which the first model is better, and those in which it is worse, by most."""
    differences = _unbounded_differences(first, second, scale)
    order = sorted(range(len(pairs)), key=lambda position: (-differences[position], pairs[position].tasks[0]))
    better = [position for position in order[:SCENARIOS] if differences[position] > 0]
    worst_first = sorted(order[-SCENARIOS:], key=lambda position: (differences[position], pairs[position].tasks[0]))
    worse = [position for position in worst_first if differences[position] < 0]
    value_of = _counted_value(scale)

    def described(position: int) -> dict[str, Any]:
        pair, difference = pairs[position], float(differences[position])
        document: dict[str, Any] = {
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


def _unbounded_differences(first: Floats, second: Floats, scale: MetricScale) -> Floats:
    """Return the differences in the metric's unit, positive where the first model is better; beyond the bound, too.

    Without a declared worst value, a task that is not ``ok`` is infinitely worse than each that is.
    """
    sign = 1.0 if scale.higher_is_better else -1.0
    worst = -math.inf * sign if scale.worst is None else scale.worst
    values = [np.where(np.isnan(side), worst, side) for side in (first, second)]
    with np.errstate(invalid="ignore", over="ignore"):
        difference: Floats = np.where(values[0] == values[1], 0.0, sign * (values[0] - values[1]))
    return difference


def _counted_value(scale: MetricScale) -> Callable[[float], float | None]:
    """Return the function to the value that a task counts: of one that is not ``ok`` the worst, None if undeclared."""
    return lambda value: scale.worst if math.isnan(value) else value
