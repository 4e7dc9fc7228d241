"""Comparison of two simulations on the same scenarios: paired differences with intervals, and verdicts."""

import threading
from collections import OrderedDict
from typing import Any

from core.domain.compared_results import ComparedResults, paired_results
from core.domain.model_labels import told_apart
from core.domain.pair_verdicts import verdict_members
from core.domain.rates import declared_rates
from core.domain.records import Simulation
from core.domain.score import judged_metric, metrics_with_direction
from core.domain.statistics import paired
from core.services.datasets.catalogue import played
from core.services.simulations.results import Results
from core.services.simulations.simulations import Simulations
from errors import Invalid

#: Comparisons of simulations that have ended that a process keeps, some tens of kilobytes each.
KEPT = 64


class Comparison:
    """Pairs results by scenario and repetition. The answers that were asked for last are kept."""

    def __init__(self, simulations: Simulations, results: Results) -> None:
        self._simulations = simulations
        self._results = results
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str, str | None, float | None], dict[str, Any]] = OrderedDict()

    def compare(self, id: str, to: str, *, metric: str | None = None, bound: float | None = None) -> dict[str, Any]:
        """Return, for each metric, both means, the mean of the paired differences and its 95 % interval; and verdicts.

        A task that is not ``ok`` counts with the metric's worst value, where declared: failing is never an advantage.
        ``metric``: that of the verdict, the dataset's score by default; ``verdict`` is None if there is neither.
        ``bound``: of its differences. Raise Invalid for an unknown metric, and for one without a better direction.
        """
        first, second = self._simulations.get(id), self._simulations.get(to)
        key = id, to, metric, bound
        with self._lock:
            if (kept := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                return kept
        document = self._compare(first, second, metric, bound)
        if first.final and second.final:  # their results do not change any more
            with self._lock:
                self._kept[key] = document
                if len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
        return document

    def _compare(
        self, first: Simulation, second: Simulation, metric: str | None, bound: float | None
    ) -> dict[str, Any]:
        if first.dataset.digest != second.dataset.digest:
            raise Invalid("The two simulations did not use the same version of the same dataset.")
        definition = played(first.provenance["dataset"]).definition
        judged = judged_metric(definition, metric)
        worst = {declared["name"]: declared.get("worst") for declared in definition["metrics"]}
        penalties = {name: float(value) for name, value in worst.items() if value is not None}
        rates = declared_rates(definition["metrics"])
        mine = ComparedResults(penalties, definition.get("group_by") or ())
        other = ComparedResults(penalties)
        mine.add(self._results.lines(first.id))
        other.add(self._results.lines(second.id))
        both = paired_results(mine, other)
        metrics = {
            name: compared
            for name in [*worst, *sorted((mine.metrics & other.metrics) - worst.keys())]
            if (compared := paired(mine.values(name)[both.here], other.values(name)[both.there], rates.get(name)))
            is not None
        }
        document: dict[str, Any] = {
            "simulation": first.id,
            "to": second.id,
            "dataset": first.dataset.name,
            "models": [first.model.name, second.model.name],
            "metrics": metrics,
            "unpaired": {"here": len(mine.tasks) - len(both.pairs), "to": len(other.tasks) - len(both.pairs)},
        }
        if judged is None:
            return document | {"verdict": None, "groups": {}, "scenarios": {"better": [], "worse": []}}
        try:
            return document | verdict_members(
                both.pairs,
                (mine.numbers(judged["name"])[both.here], other.numbers(judged["name"])[both.there]),
                judged,
                told_apart(first.model, second.model),
                bound=bound,
            )
        except ValueError as error:
            raise Invalid(f"{error} {metrics_with_direction(definition)}") from None
