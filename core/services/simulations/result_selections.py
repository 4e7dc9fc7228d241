"""Selections of a simulation's results, and what its tables need to know of them."""

import json
from collections.abc import Iterator, Mapping

from core.domain.result_selection import PAGE, Selection, check_sort, filtered, first_task, page_of
from core.domain.states import FINAL, State
from core.services.simulations.results import Results
from core.store import simulations
from core.store.database import Database
from errors import Invalid


class ResultSelections:
    """Reads selections of results."""

    def __init__(self, database: Database, results: Results) -> None:
        self._database = database
        self._results = results

    def selected(self, id: str, selection: Selection) -> Iterator[bytes]:
        """Yield the present result lines with one of the selection's statuses, in task order, in chunks."""
        return filtered(self._results.lines(id, selection.start, selection=selection), selection.statuses)

    def page(self, id: str, selection: Selection) -> tuple[list[bytes], str | None]:
        """Return a page of result lines, and the cursor of the next page. Raise Invalid for a sort without a limit."""
        if selection.sort is not None:
            columns, _ = self.columns(id)
            check_sort(selection.sort, columns)
            if selection.limit is None:
                with self._database.read() as c:
                    _, done, _ = simulations.counts(c, id)
                if done > PAGE:
                    raise Invalid(
                        f"This simulation has {done:,} results; sorted results have at most {PAGE:,} a page. Add"
                        f" `limit={PAGE}`, and continue with the address in `Link`."
                    )
        return page_of(self._results.lines(id, first_task(selection), selection=selection), selection)

    def columns(self, id: str) -> tuple[Mapping[str, str] | None, str]:
        """Return the kinds of the columns of a simulation's tables, and a version of its results.

        (None, "") while results can still arrive, and for results of earlier versions.
        """
        with self._database.read() as c:
            row = simulations.find(c, id)
        if State(row.state) not in FINAL or row.summary is None:
            return None, ""
        summary = json.loads(row.summary)
        archive = summary["archive"]
        return summary.get("columns"), f"{archive['bytes']:x}-{archive['crc32']:08x}"
