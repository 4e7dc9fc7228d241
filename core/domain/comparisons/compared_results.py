"""Results of two simulations as columns, paired by scenario, repetition and swept parameters."""

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from core.domain.comparisons.pair_verdicts import Floats, Pair
from core.domain.results.declared_results import DeclaredFailure, DeclaredResults
from core.domain.results.result_table import NUMBERS
from core.domain.results.score import number_of

#: Scenario, repetition and swept parameters: tasks of two simulations with equal ones are a pair.
Key = tuple[int, int, str]


class _Result(msgspec.Struct):
    task: int
    status: str
    scenario: dict[str, object]
    metrics: dict[str, object]

    @property
    def key(self) -> Key:
        """Identity of the scenario."""
        index, repeat = self.scenario["index"], self.scenario.get("repeat", 0)
        assert isinstance(index, int) and isinstance(repeat, int)
        return index, repeat, str(self.scenario.get("params", ""))


class _ScenarioLabels(NamedTuple):
    """Labels of a scenario: its name, the swept parameters, and its group of each grouping."""

    name: str | None
    params: Mapping[str, object]
    groups: Mapping[str, str]


_decoder = msgspec.json.Decoder(_Result)


class _Column:
    """Numbers of a metric, with the positions of the results that have them."""

    __slots__ = ("positions", "values")

    def __init__(self) -> None:
        self.positions = array("q")
        self.values = array("d")


class ComparedResults:
    """The results of one simulation, by position.

    ``declared``: by the dataset, which says what an outcome and a failure are. ``never``: values that stand for
    "never", by metric, which are no numbers and are counted. ``labelled``: whether names, parameters and groups of
    the scenarios are kept.
    """

    def __init__(self, declared: DeclaredResults, never: Mapping[str, float], *, labelled: bool) -> None:
        self._group_by = declared.group_by if labelled else None
        self._never = never
        #: Number of results in which a metric has the value that stands for "never", by metric.
        self.never: Counter[str] = Counter()
        self._failure = declared.failure or DeclaredFailure("", ())
        self._step = declared.dt
        self.outcomes: list[str] = []
        self.failed: list[bool] = []
        self.ends: list[float | None] = []
        self._worst = declared.worst_values
        self._columns: dict[str, _Column] = {}
        self.positions: dict[Key, int] = {}
        self.tasks: list[int] = []
        self.seeds: list[object] = []
        self.statuses: list[str] = []
        self.scenarios: list[_ScenarioLabels] = []

    @property
    def metrics(self) -> set[str]:
        """Metrics with a number."""
        return set(self._columns)

    def add(self, chunks: Iterable[bytes]) -> None:
        """Add chunks of result lines; a scenario that the simulation has already is ignored."""
        for lines in chunks:
            for result in _decoder.decode_lines(lines):
                self._add(result)

    def _add(self, result: _Result) -> None:
        position = len(self.tasks)
        if self.positions.setdefault(result.key, position) != position:
            return
        if self._group_by is not None:
            self.scenarios.append(_labels(result.scenario, self._group_by))
        self.tasks.append(result.task)
        self.seeds.append(result.scenario.get("seed"))
        self.statuses.append(result.status)
        outcome = result.metrics.get(self._failure.metric) if result.status == "ok" else result.status
        self.failed.append(result.status != "ok" or outcome in self._failure.outcomes)
        self.outcomes.append("ok" if outcome is None else str(outcome))
        self.ends.append(_end(result.metrics, self._step))
        if result.status == "ok":
            for name, value in result.metrics.items():
                if not isinstance(value, int | float) or type(value) not in NUMBERS:
                    continue
                if value == self._never.get(name):
                    self.never[name] += 1
                else:
                    column = self._columns.get(name)
                    if column is None:
                        column = self._columns[name] = _Column()
                    column.positions.append(position)
                    column.values.append(value)

    def numbers(self, metric: str) -> Floats:
        """Return a metric's number by position; NaN for none, and for tasks that are not ``ok``."""
        numbers = np.full(len(self.tasks), math.nan)
        if (column := self._columns.get(metric)) is not None:
            numbers[np.frombuffer(column.positions, np.int64)] = np.frombuffer(column.values, np.float64)
        return numbers

    def values(self, metric: str) -> Floats:
        """Return a metric's value by position: of tasks that are not ``ok`` the penalty; NaN for none."""
        values = self.numbers(metric)
        if (penalty := self._worst.get(metric)) is not None:
            values[[position for position, status in enumerate(self.statuses) if status != "ok"]] = penalty
        return values


@dataclass(frozen=True, slots=True)
class PairedResults:
    """Pairs in the order of their scenarios. ``here`` and ``there``: positions of each in both results, shape (n,).

    ``other_seeds``: number of pairs whose tasks began with different seeds.
    """

    pairs: list[Pair]
    here: NDArray[np.int64]
    there: NDArray[np.int64]
    other_seeds: int = 0


def paired_results(mine: ComparedResults, other: ComparedResults) -> PairedResults:
    """Return the pairs of results that have scenarios, and others."""
    shared = sorted(mine.positions.keys() & other.positions.keys())
    here = [mine.positions[key] for key in shared]
    there = [other.positions[key] for key in shared]
    pairs = [
        Pair(
            index=index,
            repeat=repeat,
            tasks=(mine.tasks[first], other.tasks[second]),
            statuses=(mine.statuses[first], other.statuses[second]),
            failed=(mine.failed[first], other.failed[second]),
            outcomes=(mine.outcomes[first], other.outcomes[second]),
            ends=(mine.ends[first], other.ends[second]),
            name=labels.name,
            params=labels.params,
            groups=labels.groups,
        )
        for (index, repeat, _), first, second in zip(shared, here, there, strict=True)
        for labels in [mine.scenarios[first]]
    ]
    other_seeds = sum(mine.seeds[first] != other.seeds[second] for first, second in zip(here, there, strict=True))
    return PairedResults(pairs, np.array(here, np.int64), np.array(there, np.int64), other_seeds)


def _end(metrics: Mapping[str, object], step: float | None) -> float | None:
    """Return the seconds after which a task ended, on its own clock; ``step``: seconds of a step, None if unknown.

    A task says it by the metric `seconds`, or by `length`, its number of steps, as episodes of Gymnasium do.
    """
    seconds, length = number_of(metrics.get("seconds")), number_of(metrics.get("length"))
    return seconds if seconds is not None or step is None or length is None else step * length


def _labels(scenario: Mapping[str, object], group_by: Sequence[str]) -> _ScenarioLabels:
    name, params = scenario.get("name"), scenario.get("params")
    groups = {name: str(scenario[name]) for name in group_by if scenario.get(name) is not None}
    return _ScenarioLabels(None if name is None else str(name), params if isinstance(params, dict) else {}, groups)
