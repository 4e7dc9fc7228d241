"""Results of two simulations as columns, paired by scenario, repetition and swept parameters."""

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from core.domain.comparisons.pair_verdicts import Floats, Pair
from core.domain.results.result_table import NUMBERS
from core.domain.results.score import number_of

#: Scenario, repetition and swept parameters: tasks of two simulations with equal ones are a pair.
Key = tuple[int, int, str]


class _Result(msgspec.Struct):
    task: int
    status: str
    scenario: dict[str, Any]
    metrics: dict[str, Any]

    @property
    def key(self) -> Key:
        """Identity of the scenario."""
        return self.scenario["index"], self.scenario.get("repeat", 0), str(self.scenario.get("params", ""))


_decoder = msgspec.json.Decoder(_Result)


class _Column:
    """Numbers of a metric, with the positions of the results that have them."""

    __slots__ = ("positions", "values")

    def __init__(self) -> None:
        self.positions = array("q")
        self.values = array("d")


class ComparedResults:
    """The results of one simulation, by position. ``penalties``: the value of each task that is not ``ok``, by metric.

    ``definition``: of the dataset, which says what an outcome and a failure are. ``never``: values that stand for
    "never", by metric, which are no numbers and are counted. ``scenarios``: name, parameters and the groups of
    ``group_by``; none are kept if that is None.
    """

    def __init__(
        self,
        penalties: Mapping[str, float],
        definition: Mapping[str, Any],
        group_by: Sequence[str] | None = None,
        never: Mapping[str, float] | None = None,
    ) -> None:
        self._group_by = group_by
        self._never = never or {}
        #: Number of results in which a metric has the value that stands for "never", by metric.
        self.never: Counter[str] = Counter()
        self._failure: Mapping[str, Any] = definition.get("failure") or {"metric": None, "in": ()}
        self._step = definition.get("dt")
        self.outcomes: list[str] = []
        self.failed: list[bool] = []
        self.ends: list[float | None] = []
        self._penalties = penalties
        self._columns: dict[str, _Column] = {}
        self.positions: dict[Key, int] = {}
        self.tasks: list[int] = []
        self.seeds: list[Any] = []
        self.statuses: list[str] = []
        self.scenarios: list[Mapping[str, Any]] = []

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
        outcome = result.metrics.get(self._failure["metric"]) if result.status == "ok" else result.status
        self.failed.append(result.status != "ok" or outcome in self._failure["in"])
        self.outcomes.append("ok" if outcome is None else str(outcome))
        self.ends.append(_end(result.metrics, self._step))
        if result.status == "ok":
            for name, value in result.metrics.items():
                if type(value) in NUMBERS and value == self._never.get(name):
                    self.never[name] += 1
                elif type(value) in NUMBERS:
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
        if (penalty := self._penalties.get(metric)) is not None:
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
            **mine.scenarios[first],
        )
        for (index, repeat, _), first, second in zip(shared, here, there, strict=True)
    ]
    other_seeds = sum(mine.seeds[first] != other.seeds[second] for first, second in zip(here, there, strict=True))
    return PairedResults(pairs, np.array(here, np.int64), np.array(there, np.int64), other_seeds)


def _end(metrics: Mapping[str, Any], step: float | None) -> float | None:
    """Return the seconds after which a task ended, on its own clock; ``step``: seconds of a step, None if unknown.

    A task says it by the metric `seconds`, or by `length`, its number of steps, as episodes of Gymnasium do.
    """
    seconds, length = number_of(metrics.get("seconds")), number_of(metrics.get("length"))
    return seconds if seconds is not None or step is None or length is None else step * length


def _labels(scenario: Mapping[str, Any], group_by: Sequence[str]) -> Mapping[str, Any]:
    groups = {name: str(scenario[name]) for name in group_by if scenario.get(name) is not None}
    return {"name": scenario.get("name"), "params": scenario.get("params") or {}, "groups": groups}
