"""Running verdict of a comparison: the tests of its scenarios and of each group, batch after batch.

The unit that is drawn is a scenario: its difference is the mean over its repetitions and swept combinations, which are
played together. The JSON form of the state continues with the very same numbers, so that a comparison that is
interrupted between two batches has the verdict of one that is not.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from core.domain.comparisons.claims import Claim, Design, Method, is_over
from core.domain.comparisons.confidence_sequence import Plan
from core.domain.comparisons.flips import FlipTally
from core.domain.comparisons.group_verdicts import GroupTest, described_groups, largest_groups
from core.domain.comparisons.metric_scale import MetricScale
from core.domain.comparisons.pair_verdicts import GROUPS, SCENARIOS, Floats, Pair, differences_of, differing_pairs
from core.domain.comparisons.paired_test import PairedTest, TestPlan
from core.domain.comparisons.verdict_documents import VerdictContext, verdict_document
from core.domain.results.declared_results import DeclaredMetric

#: Tests of a grouping by group.
Tests = Mapping[str, GroupTest]


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What a comparison asks, fixed before its first pair.

    ``metric``: of the dataset's definition. ``bound``: of the differences, in the metric's unit; None for the declared
    range. ``margin``: in the same unit. ``scenarios``: how many there are. ``groups``: number of scenarios by grouping
    and group. ``until``: claim at which it ends, shown or refuted; None: at the first of equivalent, better and worse.
    ``family``: what the error rates of its models amount to, in words.
    """

    metric: DeclaredMetric
    bound: float | None
    design: Design
    error_rate: float
    scenarios: int
    groups: Mapping[str, Mapping[str, int]]
    margin: float = 0.0
    method: Method = Method.JOINED
    until: Claim | None = None
    family: str | None = None

    @property
    def scale(self) -> MetricScale:
        """Return the scale of the metric; raise ValueError as `MetricScale.of` does."""
        return MetricScale.of(self.metric, self.bound)

    @property
    def plan(self) -> TestPlan:
        """Return the plan of the test of all scenarios."""
        return TestPlan(
            bound=self.scale.bound,
            scenarios=self.scenarios,
            design=self.design,
            method=self.method,
            error_rate=self.error_rate,
            margin=self.margin,
        )

    def group_test(self, scenarios: int) -> GroupTest:
        """Return the test of a group of this many scenarios before its first pair."""
        pairs = scenarios if self.design is Design.EXACT else None
        return GroupTest.begin(Plan(bound=self.scale.bound, pairs=pairs, error_rate=self.error_rate), self.margin)


def group_sizes(groups: Sequence[Mapping[str, str]]) -> dict[str, dict[str, int]]:
    """Return the number of scenarios by grouping and group, of each grouping the GROUPS largest groups, by name.

    ``groups``: of each scenario, by grouping.
    """
    sizes: dict[str, dict[str, int]] = {}
    for of_scenario in groups:
        for grouping, group in of_scenario.items():
            counted = sizes.setdefault(grouping, {})
            counted[group] = counted.get(group, 0) + 1
    return {
        name: {group: sizes[name][group] for group in largest_groups(sizes[name], GROUPS)} for name in sorted(sizes)
    }


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
    """State after some batches. ``looks``: scenarios, mean, and interval after each batch.

    ``better`` and ``worse``: the pairs that differ most, described for clients, the largest difference first.
    ``tasks``, ``clipped`` and ``without_value``: numbers of pairs of tasks. ``flips``: scenarios that broke or were
    fixed.
    """

    test: PairedTest
    groups: Mapping[str, Tests]
    better: Sequence[Mapping[str, object]] = ()
    worse: Sequence[Mapping[str, object]] = ()
    tasks: int = 0
    clipped: int = 0
    without_value: int = 0
    flips: FlipTally = field(default_factory=FlipTally)
    looks: Sequence[Sequence[int | float]] = ()

    @classmethod
    def begin(cls, question: Question) -> Self:
        """Return the state before the first pair."""
        return cls(
            test=PairedTest.begin(question.plan),
            groups={
                grouping: {group: question.group_test(size) for group, size in sizes.items()}
                for grouping, sizes in question.groups.items()
            },
        )

    def extend(self, question: Question, batch: PlayedBatch) -> Self:
        """Return the state after a further batch."""
        scale = question.scale
        differences = differences_of(batch.pairs, (batch.first, batch.second), batch.scenarios, scale)
        test = self.test.extend(differences)
        largest = differing_pairs(batch.pairs, batch.first, batch.second, scale)
        names = dict(zip(("simulation", "to_simulation"), batch.simulations, strict=True))
        groups_of = {pair.index: pair.groups for pair in batch.pairs}
        return replace(
            self,
            test=test,
            groups={
                grouping: _extended(
                    tests, [groups_of[index].get(grouping) for index in batch.scenarios], differences.neutral
                )
                for grouping, tests in self.groups.items()
            },
            better=_largest([*self.better, *({**names, **pair} for pair in largest["better"])], sign=1.0),
            worse=_largest([*self.worse, *({**names, **pair} for pair in largest["worse"])], sign=-1.0),
            tasks=self.tasks + differences.tasks,
            clipped=self.clipped + differences.clipped,
            without_value=self.without_value + differences.unknown,
            flips=self.flips.extend(batch.pairs, batch.simulations),
            looks=[*self.looks, [test.count, test.mean, *test.interval]],
        )

    def is_over(self, question: Question) -> bool:
        """Return whether the verdict holds, so that the rest need not be played."""
        return is_over(self.test.decision, self.test.claims, self.test.refuted, question.until)

    def verdict(self, question: Question, models: tuple[str, str], *, over: bool) -> dict[str, object]:
        """Return the verdict for clients. ``models``: names. ``over``: whether nothing more is played."""
        context = VerdictContext(
            metric=question.metric.name,
            models=models,
            tasks=self.tasks,
            clipped=self.clipped,
            unknown=self.without_value,
            over=over,
            family=question.family,
        )
        return verdict_document(self.test, question.scale, context)

    def details(self, question: Question) -> dict[str, object]:
        """Return the course of the verdict, those on groups, and the pairs that differ most."""
        return {
            "looks": [dict(zip(("count", "mean", "low", "high"), look, strict=True)) for look in self.looks],
            "groups": {
                grouping: described_groups(
                    {group: state.evidence for group, state in tests.items()}, question.scale, question.error_rate
                )
                for grouping, tests in self.groups.items()
            },
            "scenarios": {"better": list(self.better), "worse": list(self.worse)},
            "flips": self.flips.document(),
        }


def _extended(tests: Tests, groups: Sequence[str | None], differences: Floats) -> dict[str, GroupTest]:
    """Return the tests of a grouping after a batch; ``groups``: of each of its scenarios, None for none."""
    of_group: dict[str, list[int]] = {}
    for position, group in enumerate(groups):
        if group is not None and group in tests:
            of_group.setdefault(group, []).append(position)
    return {
        group: test.extend(np.asarray(differences[of_group[group]])) if group in of_group else test
        for group, test in tests.items()
    }


def _largest(pairs: Sequence[Mapping[str, object]], *, sign: float) -> list[Mapping[str, object]]:
    """Return the SCENARIOS pairs with the largest differences in a direction, of equal ones those played first."""

    def size(pair: Mapping[str, object]) -> float:
        difference = pair["difference"]
        return sign * difference if isinstance(difference, int | float) else math.inf

    return sorted(pairs, key=size, reverse=True)[:SCENARIOS]
