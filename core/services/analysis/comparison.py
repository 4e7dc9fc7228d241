"""Comparison of two simulations on the same scenarios: paired differences with intervals, and verdicts."""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from common.errors import Invalid
from core.domain.access.scopes import Caller
from core.domain.comparisons.claims import Design, Method, method_of
from core.domain.comparisons.compared_results import ComparedResults
from core.domain.comparisons.flips import FlipTally, flips_of
from core.domain.comparisons.margins import checked_margin
from core.domain.comparisons.metric_scale import MetricScale, declared_width
from core.domain.comparisons.pair_verdicts import StandingQuestion, verdict_members
from core.domain.results.declared_results import declared_results
from core.domain.results.paired_metrics import paired
from core.domain.results.rates import declared_rates
from core.domain.results.score import judged_metric, others_with_direction
from core.domain.submissions.model_labels import told_apart
from core.domain.submissions.records import Simulation
from core.domain.submissions.trusted_runs import trusted_notice
from core.services.analysis.paired_results import read_pairs
from core.services.datasets.catalogue import played
from core.services.simulations.results import Results
from core.services.simulations.simulations import Simulations

#: Comparisons of simulations that have ended that a process keeps, some tens of kilobytes each.
KEPT = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What is asked of two simulations. ``metric``: of the verdict, the dataset's score if None.

    ``bound`` and ``margin``: in its unit; None for the declared range, and for the default.
    """

    metric: str | None = None
    bound: float | None = None
    margin: float | None = None
    design: Design = Design.POPULATION
    method: Method | None = None
    error_rate: float = 0.05


class Comparison:
    """Pairs results by scenario and repetition. The answers that were asked for last are kept."""

    def __init__(self, simulations: Simulations, results: Results) -> None:
        self._simulations = simulations
        self._results = results
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str, Asked], dict[str, object]] = OrderedDict()

    def compare(self, caller: Caller, id: str, to: str, asked: Asked) -> dict[str, object]:
        """Return, for each metric, both means, the mean of the paired differences and its 95 % interval; and verdicts.

        A task that is not ``ok`` counts with the metric's worst value, where declared: failing is never an advantage.
        ``verdict`` is None without a metric and a score. Raise Invalid for an unknown metric, for one without a better
        direction, and for a margin or a method that cannot be used.
        """
        first, second = self._simulations.get(caller, id), self._simulations.get(caller, to)
        key = id, to, asked
        with self._lock:
            if (kept := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                return kept
        document = self._compare(caller, first, second, asked)
        if first.final and second.final:  # their results do not change any more
            with self._lock:
                self._kept[key] = document
                if len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
        return document

    def flips(self, caller: Caller, id: str, to: str, *, broke: bool) -> list[dict[str, object]]:
        """Return all scenarios that broke, or that were fixed, by number."""
        definition = _common_definition(self._simulations.get(caller, id), self._simulations.get(caller, to))
        _, _, both = read_pairs(caller, self._results, (id, to), definition)
        return [flip.document((id, to)) for flip in flips_of(both.pairs) if flip.broke == broke]

    def _compare(self, caller: Caller, first: Simulation, second: Simulation, asked: Asked) -> dict[str, object]:
        definition = _common_definition(first, second)
        mine, other, both = read_pairs(caller, self._results, (first.id, second.id), definition)
        results = declared_results(definition)
        declared = {metric.name: metric for metric in results.metrics}
        rates = declared_rates(results.metrics)
        indexes = [pair.index for pair in both.pairs]
        metrics = {
            name: compared | {"better": declared[name].better if name in declared else None} | _never(name, mine, other)
            for name in [*declared, *sorted((mine.metrics & other.metrics) - declared.keys())]
            if (
                compared := paired(
                    indexes,
                    mine.values(name)[both.here],
                    other.values(name)[both.there],
                    rates.get(name),
                    declared_width(declared[name]) if name in declared else None,
                )
            )
            is not None
        }
        document: dict[str, object] = {
            "simulation": first.id,
            "to": second.id,
            "dataset": first.dataset.name,
            "models": [first.model.name, second.model.name],
            "trusted": [first.trusted, second.trusted],
            "notice": trusted_notice(first.trusted, second.trusted),
            "metrics": metrics,
            "unpaired": {"here": len(mine.tasks) - len(both.pairs), "to": len(other.tasks) - len(both.pairs)},
            "flips": FlipTally().extend(both.pairs, (first.id, second.id)).document(),
        }
        judged = judged_metric(results, asked.metric)
        if judged is None:
            return document | {"verdict": None, "groups": {}, "scenarios": {"better": [], "worse": []}}
        try:
            question = StandingQuestion(
                metric=judged,
                models=told_apart(first.model, second.model),
                bound=asked.bound,
                margin=checked_margin(judged, MetricScale.of(judged, asked.bound), asked.margin),
                design=asked.design,
                method=method_of(asked.design, asked.method),
                error_rate=asked.error_rate,
                ended=first.final and second.final,
                other_seeds=both.other_seeds,
            )
        except ValueError as error:
            raise Invalid(f"{error}{others_with_direction(judged, results)}") from None
        numbers = mine.numbers(judged.name)[both.here], other.numbers(judged.name)[both.there]
        return document | verdict_members(both.pairs, numbers, question)


def _common_definition(first: Simulation, second: Simulation) -> Mapping[str, object]:
    """Return the definition of the dataset that both simulations used; raise Invalid if it is not the same one."""
    if first.dataset.digest != second.dataset.digest:
        used = [f"{each.dataset.name}@{each.dataset.version}" for each in (first, second)]
        raise Invalid(
            f"The two simulations did not use the same version of the same dataset, but {used[0]} and {used[1]}:"
            " run one of them again on that of the other."
        )
    return played(first.provenance.dataset).definition


def _never(name: str, mine: ComparedResults, other: ComparedResults) -> dict[str, int]:
    """Return how often a metric has the value for "never" on both sides, if it has one."""
    counts = {"never": mine.never[name], "to_never": other.never[name]}
    return counts if any(counts.values()) else {}
