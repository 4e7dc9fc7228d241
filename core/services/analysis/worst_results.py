"""Worst results of a simulation so far, in all or in a group, without a pass over all results."""

from collections.abc import Sequence

import msgspec
import numpy as np

from core.domain.access.scopes import Caller
from core.domain.results.result_columns import TaskResult
from core.domain.results.score import Score
from core.domain.results.worst_tasks import worst_rows
from core.domain.submissions.task_parameters import find_parameter
from core.services.analysis.result_tables import ResultTables
from core.services.simulations.results import Results

_decode = msgspec.json.Decoder(TaskResult).decode


class WorstResults:
    """Chooses tasks from result tables, and reads the lines of the chosen tasks only."""

    def __init__(self, tables: ResultTables, results: Results) -> None:
        self._tables = tables
        self._results = results

    def worst(self, caller: Caller, id: str, groups: Sequence[tuple[str, str]], most: int) -> dict[str, object]:
        """Return up to ``most`` tasks with all of these values of parameters, the worst first.

        Raise Invalid for an unknown parameter or value.
        """
        known = self._tables.parameters(caller, id) if groups else {}
        parameters = [(find_parameter(known, name), value) for name, value in groups]
        with self._tables.current(caller, id) as table:
            rows = table.table.rows()
            chosen = np.ones(len(rows.tasks), np.bool_)
            for parameter, value in parameters:
                chosen &= parameter.having(rows.tasks, value)
            score = Score.declared_by(table.declared)
            tasks = worst_rows(rows, chosen, score, most)
            coverage = table.coverage()
        results = {result.task: result for result in map(_decode, self._results.lines_of(caller, id, sorted(tasks)))}
        items = [
            score.described(results[task]) | {"metrics": results[task].metrics}
            for task in tasks
            if task in results  # else it was deleted in the meantime
        ]
        return coverage | {"items": items}
