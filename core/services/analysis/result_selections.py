"""Selections of a simulation's results, and what its tables need to know of them."""

from collections.abc import Callable, Iterator, Mapping

import msgspec

from common.errors import Invalid
from core.domain.access.scopes import Caller
from core.domain.results.result_conditions import ResultFilter
from core.domain.results.result_selection import (
    PAGE,
    WORST,
    Page,
    Selection,
    SortKey,
    check_sort,
    filtered,
    first_task,
    names_parameter,
    page_of,
    parameter_key,
    sort_key,
    worst_key,
)
from core.domain.results.score import Score
from core.domain.scheduling.states import FINAL, State
from core.domain.submissions.provenance import dataset_of
from core.domain.submissions.stored_documents import decode_document
from core.services.analysis.result_tables import ResultTables
from core.services.datasets.catalogue import played
from core.services.simulations.results import Results
from core.store import simulations
from core.store.database import Database


class _ArchivedResults(msgspec.Struct):
    """Size and CRC of the results in an archive, which tell them from others."""

    bytes: int
    crc32: int


class _SummaryOfTables(msgspec.Struct):
    """Members of a summary that are about tables. ``columns``: their kinds, absent of earlier versions."""

    archive: _ArchivedResults
    columns: Mapping[str, str] | None = None


class ResultSelections:
    """Reads selections of results."""

    def __init__(self, database: Database, results: Results, tables: ResultTables) -> None:
        self._database = database
        self._results = results
        self._tables = tables

    def selected(self, caller: Caller, id: str, selection: Selection) -> Iterator[bytes]:
        """Yield the present result lines of a selection, in task order, in chunks. Raise Invalid for a condition."""
        conditions = self._filter(caller, id, selection)
        return filtered(
            self._results.lines(caller, id, selection.start, selection=selection), selection.statuses, conditions
        )

    def page(self, caller: Caller, id: str, selection: Selection) -> Page:
        """Return a page of result lines. Raise Invalid for a sort without a limit, and for an unknown name."""
        key_of = None
        if selection.sort is not None:
            key_of = self._sort_key(caller, id, selection.sort)
            if selection.limit is None:
                with self._database.read() as c:
                    _, done, _ = simulations.counts(c, id)
                if done > PAGE:
                    raise Invalid(
                        f"This simulation has {done:,} results; sorted results have at most {PAGE:,} a page. Add"
                        f" `limit={PAGE}`, and continue with the address in `Link`."
                    )
        first = selection.start if selection.count else first_task(selection)
        lines = self._results.lines(caller, id, first, selection=selection)
        return page_of(lines, selection, self._filter(caller, id, selection), key_of)

    def _filter(self, caller: Caller, id: str, selection: Selection) -> ResultFilter | None:
        if not selection.where:
            return None
        columns, _ = self.columns(caller, id)
        return ResultFilter(
            selection.where,
            parameters=lambda: self._tables.parameters(caller, id),
            definition=self._definition(caller, id),
            columns=columns,
        )

    def _sort_key(self, caller: Caller, id: str, sort: str) -> Callable[[bytes], SortKey]:
        if sort == WORST:
            return worst_key(Score.of(self._definition(caller, id)))
        if names_parameter(sort):
            return parameter_key(sort, self._tables.parameters(caller, id))
        columns, _ = self.columns(caller, id)
        check_sort(sort, columns)
        return sort_key(sort)

    def _definition(self, caller: Caller, id: str) -> Mapping[str, object]:
        with self._database.read() as c:
            row = simulations.find(c, caller.reading, id)
        return played(dataset_of(row.provenance)).definition

    def columns(self, caller: Caller, id: str) -> tuple[Mapping[str, str] | None, str]:
        """Return the kinds of the columns of a simulation's tables, and a version of its results.

        (None, "") while results can still arrive, and for results of earlier versions.
        """
        with self._database.read() as c:
            row = simulations.find(c, caller.reading, id)
        if State(row.state) not in FINAL or row.summary is None:
            return None, ""
        summary = decode_document(row.summary, _SummaryOfTables)
        return summary.columns, f"{summary.archive.bytes:x}-{summary.archive.crc32:08x}"
