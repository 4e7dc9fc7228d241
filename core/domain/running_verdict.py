"""Running verdict of a comparison: the sequential tests of its scenarios and of each group, batch after batch.

The unit that is drawn is a scenario: its difference is the mean over its repetitions and swept combinations, which are
played together. A pair without a number on one side, although both tasks are `ok`, counts as no difference: left out,
it would shorten the list by an amount that is unknown before its end.

The JSON form of the state continues with the very same numbers, so that a comparison that is interrupted between two
batches has the verdict of one that is not.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np

from core.domain.fixed_design import Saving, saving
from core.domain.metric_scale import MetricScale
from core.domain.pair_verdicts import (
    CLAIM,
    GROUPS,
    SCENARIOS,
    Floats,
    Pair,
    described_groups,
    estimate,
    scenario_differences,
)
from core.domain.sequential_test import Decision, Design, Plan, SequentialTest
from core.domain.smallest_difference import smallest_difference
from core.domain.verdicts import sentence

LIST_CLAIM = "The verdict is about the mean over the {scenarios:,} scenarios of this comparison, not over others."
#: Means on each side of 0 in the grids of groups, of which there are many, each with its state.
GROUP_RESOLUTION = 20
#: Tests of a grouping by group.
Tests = Mapping[str, SequentialTest]


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What a comparison asks, fixed before its first pair.

    ``metric``: of the dataset's definition. ``bound``: of the differences, in the metric's unit; None for the declared
    range. ``scenarios``: how many there are. ``groups``: number of scenarios by grouping and group.
    """

    metric: Mapping[str, Any]
    bound: float | None
    design: Design
    error_rate: float
    scenarios: int
    groups: Mapping[str, Mapping[str, int]]

    @property
    def scale(self) -> MetricScale:
        """Return the scale of the metric; raise ValueError as `MetricScale.of` does."""
        return MetricScale.of(self.metric, self.bound)

    def new_test(self, scenarios: int, resolution: int | None = None) -> SequentialTest:
        """Return the test of this many scenarios before its first pair."""
        pairs = scenarios if self.design is Design.LIST else None
        plan = Plan(bound=self.scale.bound, pairs=pairs, error_rate=self.error_rate)
        return SequentialTest(plan=plan if resolution is None else replace(plan, resolution=resolution))

    @property
    def claim(self) -> str:
        """Return the subject of the verdict, in words."""
        return CLAIM if self.design is Design.POPULATION else LIST_CLAIM.format(scenarios=self.scenarios)


def group_sizes(groups: Sequence[Mapping[str, str]]) -> dict[str, dict[str, int]]:
    """Return the number of scenarios by grouping and group, of each grouping the GROUPS largest groups, by name.

    ``groups``: of each scenario, by grouping.
    """
    sizes: dict[str, dict[str, int]] = {}
    for of_scenario in groups:
        for grouping, group in of_scenario.items():
            counted = sizes.setdefault(grouping, {})
            counted[group] = counted.get(group, 0) + 1
    largest = {name: sorted(sizes[name], key=lambda group: (-sizes[name][group], group))[:GROUPS] for name in sizes}
    return {name: {group: sizes[name][group] for group in sorted(largest[name])} for name in sorted(sizes)}


@dataclass(frozen=True, kw_only=True, slots=True)
class PlayedBatch:
    """Pairs of the scenarios of one batch. ``scenarios``: their indexes in the order of play.

    ``first`` and ``second``: numbers of the metric, shape (n,) as ``pairs``; NaN for none, and for tasks that are not
    `ok`. ``simulations``: that played the first model, and the second.
    """

    scenarios: Sequence[int]
    pairs: Sequence[Pair]
    first: Floats
    second: Floats
    simulations: tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningVerdict:
    """State after some batches. ``looks``: pairs, mean, and interval after each batch.

    ``better`` and ``worse``: the pairs that differ most, described for clients, the largest difference first.
    ``clipped`` and ``without_value``: numbers of pairs.
    """

    test: SequentialTest
    groups: Mapping[str, Tests]
    better: Sequence[Mapping[str, Any]] = ()
    worse: Sequence[Mapping[str, Any]] = ()
    clipped: int = 0
    without_value: int = 0
    looks: Sequence[Sequence[float]] = ()

    @classmethod
    def begin(cls, question: Question) -> Self:
        """Return the state before the first pair."""
        return cls(
            test=question.new_test(question.scenarios),
            groups={
                grouping: {group: question.new_test(size, GROUP_RESOLUTION) for group, size in sizes.items()}
                for grouping, sizes in question.groups.items()
            },
        )

    def extend(self, question: Question, batch: PlayedBatch) -> Self:
        """Return the state after a further batch."""
        scale = question.scale
        differences, clipped = scale.differences(batch.first, batch.second)
        ok = np.array([[status == "ok" for status in pair.statuses] for pair in batch.pairs], np.bool_).reshape(-1, 2)
        missing = (np.isnan(batch.first) & ok[:, 0]) | (np.isnan(batch.second) & ok[:, 1])
        differences = np.where(missing, 0.0, differences)
        positions: dict[int, list[int]] = {}
        for position, pair in enumerate(batch.pairs):
            positions.setdefault(pair.index, []).append(position)
        means = np.array([differences[positions[index]].mean() for index in batch.scenarios], np.float64)
        test = self.test.extend(means)
        known = [batch.pairs[position] for position in np.flatnonzero(~missing).tolist()]
        largest = scenario_differences(known, batch.first[~missing], batch.second[~missing], scale)
        names = dict(zip(("simulation", "to_simulation"), batch.simulations, strict=True))
        return replace(
            self,
            test=test,
            groups={
                grouping: _extended(tests, grouping, batch, positions, means) for grouping, tests in self.groups.items()
            },
            better=_largest([*self.better, *({**names, **pair} for pair in largest["better"])], sign=1.0),
            worse=_largest([*self.worse, *({**names, **pair} for pair in largest["worse"])], sign=-1.0),
            clipped=self.clipped + clipped,
            without_value=self.without_value + int(missing.sum()),
            looks=[*self.looks, [test.count, test.mean, *test.interval]],
        )

    @property
    def decided(self) -> bool:
        """Return whether the verdict holds, so that the rest need not be played."""
        return self.test.decision is not Decision.UNDECIDED

    def described(self, question: Question, models: tuple[str, str]) -> dict[str, Any]:
        """Return the verdict, its course, those on groups, and the pairs that differ most; ``models``: names."""
        test, scale, metric = self.test, question.scale, str(question.metric["name"])
        pairs = question.scenarios
        in_words = sentence(test, scale, metric=metric, first=models[0], second=models[1], pairs=pairs)
        return {
            "verdict": {
                "metric": metric,
                "design": question.design.value,
                "decision": test.decision.value,
                "sentence": in_words,
                "claim": question.claim,
                "message": scale.message(self.clipped),
                "error_rate": question.error_rate,
                **estimate(test),
                "p_better": test.p_values[0],
                "p_worse": test.p_values[1],
                "pairs": pairs,
                "without_value": self.without_value,
                "decided_at": test.decided_at,
                "smallest": smallest_difference(test),
                "scale": {"kind": scale.kind.value, "bound": scale.bound, "unit": scale.unit},
                "saving": self._saving(question),
            },
            "looks": [dict(zip(("count", "mean", "low", "high"), look, strict=True)) for look in self.looks],
            "groups": {
                grouping: described_groups(tests, scale, question.error_rate) for grouping, tests in self.groups.items()
            },
            "scenarios": {"better": list(self.better), "worse": list(self.worse)},
        }

    def _saving(self, question: Question) -> dict[str, Any] | None:
        """Return what was not played, beside a test of a fixed number of pairs; None below two pairs."""
        test = self.test
        if test.count < 2:
            return None
        saved = saving(
            played=test.count, pairs=question.scenarios, mean=test.mean, std=test.std, error_rate=question.error_rate
        )
        return asdict(saved) | {"share": saved.share, "sentence": saving_sentence(saved)}

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values; ``from_json`` gives the very same numbers."""
        groups = {
            grouping: {group: test.to_json() for group, test in tests.items()}
            for grouping, tests in self.groups.items()
        }
        members = {name: getattr(self, name) for name in ("clipped", "without_value")}
        lists = {name: list(getattr(self, name)) for name in ("better", "worse", "looks")}
        return {"test": self.test.to_json(), "groups": groups, **members, **lists}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the state of ``to_json``; raise ValueError if it was computed with other bets."""
        members = {name: document[name] for name in ("better", "worse", "clipped", "without_value", "looks")}
        groups = {
            grouping: {group: SequentialTest.from_json(test) for group, test in tests.items()}
            for grouping, tests in document["groups"].items()
        }
        return cls(test=SequentialTest.from_json(document["test"]), groups=groups, **members)


def saving_sentence(saved: Saving) -> str:
    """Return in words what a comparison has not played."""
    unplayed = saved.pairs - saved.played
    words = f"{saved.played:,} of {saved.pairs:,} pairs were played"
    words += f"; {unplayed:,} ({100 * saved.share:.0f} %) were saved." if unplayed else "; none were saved."
    if saved.needed is not None:
        words += f" A fixed design for the difference found, which is unknown before, needs {saved.needed:,}."
    return words


def _extended(
    tests: Tests, grouping: str, batch: PlayedBatch, positions: Mapping[int, Sequence[int]], means: Floats
) -> dict[str, SequentialTest]:
    """Return the tests of a grouping after a batch; ``positions``: of the pairs of each scenario."""
    of_group: dict[str, list[int]] = {}
    for number, index in enumerate(batch.scenarios):
        group = batch.pairs[positions[index][0]].groups.get(grouping)
        if group is not None and group in tests:
            of_group.setdefault(group, []).append(number)
    return {group: test.extend(means[of_group[group]]) if group in of_group else test for group, test in tests.items()}


def _largest(pairs: Sequence[Mapping[str, Any]], *, sign: float) -> list[Mapping[str, Any]]:
    """Return the SCENARIOS pairs with the largest differences in a direction, of equal ones those played first."""

    def size(pair: Mapping[str, Any]) -> float:
        return math.inf if pair["difference"] is None else sign * float(pair["difference"])

    return sorted(pairs, key=size, reverse=True)[:SCENARIOS]
