"""Comparison of two simulations on the same scenarios: paired differences with confidence intervals."""

from typing import Any

import msgspec

from core.domain.statistics import paired
from core.services.datasets.catalogue import played
from core.services.simulations.results import Results
from core.services.simulations.simulations import Simulations
from errors import Invalid


class _ComparedResult(msgspec.Struct):
    status: str
    scenario: dict[str, Any]
    metrics: dict[str, Any]


_result_decoder = msgspec.json.Decoder(_ComparedResult)


class Comparison:
    """Pairs results by scenario and repetition."""

    def __init__(self, simulations: Simulations, results: Results) -> None:
        self._simulations = simulations
        self._results = results

    def compare(self, id: str, to: str) -> dict[str, Any]:
        """Return, for each metric, both means, the mean of the paired differences and its 95 % interval.

        A task that is not ``ok`` counts with the metric's worst value, where declared: failing is never an advantage.
        """
        first, second = self._simulations.get(id), self._simulations.get(to)
        if first.dataset.digest != second.dataset.digest:
            raise Invalid("The two simulations did not use the same version of the same dataset.")
        definition = played(first.provenance["dataset"]).definition
        worst = {metric["name"]: metric.get("worst") for metric in definition["metrics"]}
        mine, other = self._values(id, worst), self._values(to, worst)
        metrics = {
            name: compared
            for name in [*worst, *sorted((mine.keys() & other.keys()) - worst.keys())]
            if (compared := paired(mine.get(name, {}), other.get(name, {}))) is not None
        }
        return {
            "simulation": id,
            "to": to,
            "dataset": first.dataset.name,
            "models": [first.model.name, second.model.name],
            "metrics": metrics,
        }

    def _values(self, id: str, worst: dict[str, float | None]) -> dict[str, dict[Any, float]]:
        values: dict[str, dict[Any, float]] = {}
        for body in self._results.lines(id):
            for raw in body.splitlines():
                line = _result_decoder.decode(raw)
                key = (line.scenario["index"], line.scenario.get("repeat", 0), str(line.scenario.get("params", "")))
                if line.status == "ok":
                    numbers = {name: value for name, value in line.metrics.items() if isinstance(value, int | float)}
                else:
                    numbers = {name: value for name, value in worst.items() if value is not None}
                for name, value in numbers.items():
                    values.setdefault(name, {})[key] = float(value)
        return values
