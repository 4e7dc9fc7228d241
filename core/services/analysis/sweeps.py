"""Sweeps: the statistics of each combination of swept parameters, for any number of combinations."""

from collections.abc import Callable, Iterator, Mapping

import msgspec

from core.domain.access.scopes import Caller
from core.domain.results.result_columns import TaskResult
from core.domain.results.result_tally import SWEPT, ResultTally
from core.services.datasets.catalogue import played
from core.services.simulations.plan_units import units_of_plan
from core.services.simulations.results import Results
from core.services.simulations.simulations import Simulations
from core.services.simulations.summaries import blocks_of
from datasets.catalogue.never_values import never_values
from runtimes.harness.evaluator.tasks import TaskPlan

_result_decoder = msgspec.json.Decoder(TaskResult)
#: Members of a row that are those of a summary.
_MEMBERS = ("tasks", "statuses", "outcomes", "metrics")


class Sweeps:
    """Reads the combinations of simulations that have ended."""

    def __init__(self, simulations: Simulations, results: Results) -> None:
        self._simulations = simulations
        self._results = results

    def sweep(self, caller: Caller, id: str) -> tuple[list[str], Iterator[Mapping[str, object]]]:
        """Return the swept parameters, and a row for each combination in task order.

        A simulation without a sweep has one combination. Rows that the summary does not have are computed from the
        results as they are read. Raise NotFinished until the simulation has ended.
        """
        summary = self._simulations.summary(caller, id)
        provenance = self._simulations.get(caller, id).provenance
        plan = provenance.play.tasks
        parameters = list(plan.get("sweep") or ())
        if not parameters:
            return [], iter([{"params": {}} | {name: summary[name] for name in _MEMBERS}])
        sweep = summary.get("sweep")
        if isinstance(sweep, dict) and sweep["complete"]:
            return parameters, iter(sweep["rows"])
        definition = played(provenance.dataset).definition
        per_combination, units = TaskPlan(plan).per_combination, units_of_plan(plan)

        def tally() -> ResultTally:
            return ResultTally(definition["metrics"], (), parameters, per_combination, units, never_values(definition))

        return parameters, self._computed(caller, id, tally, SWEPT * per_combination)

    def _computed(
        self, caller: Caller, id: str, empty: Callable[[], ResultTally], window: int
    ) -> Iterator[Mapping[str, object]]:
        """Yield the rows of all combinations, those of ``window`` tasks at a time. ``empty``: makes a tally."""
        tally, current = empty(), 0
        for body in self._results.lines(caller, id):
            for block in blocks_of(body):
                results = list(map(_result_decoder.decode, block))
                while results:
                    number = results[0].task // window
                    if number != current:
                        yield from tally.sweep()["rows"]
                        tally, current = empty(), number
                    inside = [result for result in results if result.task < (number + 1) * window]
                    tally.add(inside)
                    results = results[len(inside) :]
        yield from tally.sweep()["rows"]
