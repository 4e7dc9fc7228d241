"""Comparison of two simulations on the same scenarios: paired differences with intervals, and verdicts."""

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from core.domain.near_names import near_names, suggestion
from core.domain.pair_verdicts import Floats, Pair, verdict_members
from core.domain.records import ModelRef
from core.domain.result_table import NUMBERS
from core.domain.statistics import paired
from core.services.datasets.catalogue import played
from core.services.simulations.results import Results
from core.services.simulations.simulations import Simulations
from errors import Invalid

#: Scenario, repetition and swept parameters: tasks of two simulations with equal ones are a pair.
Key = tuple[int, int, str]


class _ComparedResult(msgspec.Struct):
    task: int
    status: str
    scenario: dict[str, Any]
    metrics: dict[str, Any]

    @property
    def key(self) -> Key:
        """Identity of the scenario."""
        return self.scenario["index"], self.scenario.get("repeat", 0), str(self.scenario.get("params", ""))


_result_decoder = msgspec.json.Decoder(_ComparedResult)


class _Column:
    """Numbers of a metric, with the positions of the results that have them."""

    __slots__ = ("positions", "values")

    def __init__(self) -> None:
        self.positions = array("q")
        self.values = array("d")


class _Side:
    """The results of one simulation, by position. ``penalties``: the value of each task that is not ``ok``, by metric.

    ``scenarios``: name, parameters and groups, which are kept of one side.
    """

    def __init__(self, penalties: Mapping[str, float]) -> None:
        self._penalties = penalties
        self._columns: dict[str, _Column] = {}
        self.positions: dict[Key, int] = {}
        self.tasks: list[int] = []
        self.statuses: list[str] = []
        self.scenarios: list[Mapping[str, Any]] = []

    @property
    def metrics(self) -> set[str]:
        """Metrics with a number."""
        return set(self._columns)

    def add(self, result: _ComparedResult) -> bool:
        """Add a result; return False for a scenario that the simulation has already, which is ignored."""
        position = len(self.tasks)
        if self.positions.setdefault(result.key, position) != position:
            return False
        self.tasks.append(result.task)
        self.statuses.append(result.status)
        if result.status == "ok":
            for name, value in result.metrics.items():
                if type(value) in NUMBERS:
                    column = self._columns.get(name)
                    if column is None:
                        column = self._columns[name] = _Column()
                    column.positions.append(position)
                    column.values.append(value)
        return True

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


class Comparison:
    """Pairs results by scenario and repetition."""

    def __init__(self, simulations: Simulations, results: Results) -> None:
        self._simulations = simulations
        self._results = results

    def compare(self, id: str, to: str, *, metric: str | None = None, bound: float | None = None) -> dict[str, Any]:
        """Return, for each metric, both means, the mean of the paired differences and its 95 % interval; and verdicts.

        A task that is not ``ok`` counts with the metric's worst value, where declared: failing is never an advantage.
        ``metric``: that of the verdict, the dataset's score by default; ``verdict`` is None if there is neither.
        ``bound``: of its differences. Raise Invalid for an unknown metric, and for one without a better direction.
        """
        first, second = self._simulations.get(id), self._simulations.get(to)
        if first.dataset.digest != second.dataset.digest:
            raise Invalid("The two simulations did not use the same version of the same dataset.")
        definition = played(first.provenance["dataset"]).definition
        judged = _judged_metric(definition, metric)
        worst = {declared["name"]: declared.get("worst") for declared in definition["metrics"]}
        penalties = {name: float(value) for name, value in worst.items() if value is not None}
        mine = self._side(id, penalties, definition.get("group_by") or ())
        other = self._side(to, penalties)
        shared = sorted(mine.positions.keys() & other.positions.keys())
        here = np.array([mine.positions[key] for key in shared], np.int64)
        there = np.array([other.positions[key] for key in shared], np.int64)
        metrics = {
            name: compared
            for name in [*worst, *sorted((mine.metrics & other.metrics) - worst.keys())]
            if (compared := paired(mine.values(name)[here], other.values(name)[there])) is not None
        }
        document: dict[str, Any] = {
            "simulation": id,
            "to": to,
            "dataset": first.dataset.name,
            "models": [first.model.name, second.model.name],
            "metrics": metrics,
            "unpaired": {"here": len(mine.tasks) - len(shared), "to": len(other.tasks) - len(shared)},
        }
        if judged is None:
            return document | {"verdict": None, "groups": {}, "scenarios": {"better": [], "worse": []}}
        try:
            return document | verdict_members(
                _pairs(shared, mine, other),
                (mine.numbers(judged["name"])[here], other.numbers(judged["name"])[there]),
                judged,
                _told_apart(first.model, second.model),
                bound=bound,
            )
        except ValueError as error:
            raise Invalid(f"{error} {_with_direction(definition)}") from None

    def _side(self, id: str, penalties: Mapping[str, float], group_by: Sequence[str] | None = None) -> _Side:
        """Return the results of one side; ``group_by``: None to keep no scenarios."""
        side = _Side(penalties)
        for body in self._results.lines(id):
            for result in _result_decoder.decode_lines(body):
                if side.add(result) and group_by is not None:
                    side.scenarios.append(_scenario(result.scenario, group_by))
        return side


def _scenario(scenario: Mapping[str, Any], group_by: Sequence[str]) -> Mapping[str, Any]:
    groups = {name: str(scenario[name]) for name in group_by if scenario.get(name) is not None}
    return {"name": scenario.get("name"), "params": scenario.get("params") or {}, "groups": groups}


def _pairs(shared: Sequence[Key], mine: _Side, other: _Side) -> list[Pair]:
    pairs = []
    for key in shared:
        here, there = mine.positions[key], other.positions[key]
        index, repeat, _ = key
        pairs.append(
            Pair(
                index=index,
                repeat=repeat,
                tasks=(mine.tasks[here], other.tasks[there]),
                statuses=(mine.statuses[here], other.statuses[there]),
                **mine.scenarios[here],
            )
        )
    return pairs


def _judged_metric(definition: Mapping[str, Any], name: str | None) -> Mapping[str, Any] | None:
    """Return the metric of the verdict: that of a name, else the score's if it has a better direction."""
    declared: dict[str, Mapping[str, Any]] = {metric["name"]: metric for metric in definition["metrics"]}
    if name is None:
        score = declared.get((definition.get("score") or {}).get("metric", ""))
        return score if score is not None and score.get("better") in ("higher", "lower") else None
    if name not in declared:
        near = near_names(name, declared)
        raise Invalid(
            f"The dataset declares no metric {name[:100]!r}. " + suggestion(near, _with_direction(definition)),
            nearest=near,
        )
    return declared[name]


def _with_direction(definition: Mapping[str, Any]) -> str:
    names = [metric["name"] for metric in definition["metrics"] if metric.get("better") in ("higher", "lower")]
    return f"Metrics with a better direction: {', '.join(names)}." if names else "No metric has a better direction."


def _told_apart(first: ModelRef, second: ModelRef) -> tuple[str, str]:
    """Return the names of two models for sentences, which differ: by their versions, or as the first and the second."""
    names = first.name, second.name
    if names[0] == names[1] and first.version != second.version:
        names = f"{first.name}@{first.version}", f"{second.name}@{second.version}"
    return names if names[0] != names[1] else (f"{names[0]} (first)", f"{names[1]} (second)")
