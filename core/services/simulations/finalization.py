"""Finalization: a simulation's final state is written with its summary, after its small objects are compacted."""

import logging
import secrets
from collections.abc import Iterator
from dataclasses import replace

import msgspec

from common.errors import Conflict, UnknownSimulation, UnreadableRow
from core.domain.access.scopes import PLATFORM
from core.domain.results.outcomes import outcome_of
from core.domain.scheduling.states import FINAL, State
from core.domain.submissions.declared_outputs import declared_outputs, failures_of
from core.domain.submissions.submission_spec import spec_of
from core.notifications.notifier import Notifier
from core.services.claims import claimed
from core.services.simulations.headlines import summary_columns
from core.services.simulations.results import SEGMENTS, Results
from core.services.simulations.simulation_outputs import SimulationOutputs
from core.services.simulations.summaries import SimulationSummary, summarize
from core.store import comparisons, leases, pipelines, results, simulations
from core.store.database import Connection, Database
from datasets.objectstore.base import ObjectStore

logger = logging.getLogger(__name__)

#: Compaction merges more than ``FEW`` objects of less than ``SMALL`` bytes on average to objects of ``PIECE`` bytes.
SMALL, FEW, PIECE = 1 << 20, 16, 32 << 20


class _SpecChanged(Exception):
    """The simulation's specification has changed meanwhile."""


class Finalization:
    """Finalizes simulations. Idempotent, also after a crash at any point."""

    def __init__(
        self,
        database: Database,
        store: ObjectStore,
        notifier: Notifier,
        read: Results,
        outputs: SimulationOutputs,
        *,
        compact_above: int = FEW,
    ) -> None:
        self._database = database
        self._store = store
        self._notifier = notifier
        self._read = read
        self.outputs = outputs
        self._compact_above = compact_above

    def collect(self, id: str) -> None:
        """Write a simulation's summary and final state in one transaction, unless another job does or it is not due.

        It is due when its stages are done, or when an early end has been decided (``simulations.conclude``, a
        cancellation). Does nothing for a simulation that has been deleted.
        """
        with self._database.read() as c:
            try:
                row = simulations.find(c, PLATFORM, id)
            except UnknownSimulation:
                return
        state = State(row.state)
        if state in FINAL:
            if row.summary is None:  # ended by an earlier version
                try:
                    columns = self._summary_of(row).columns()
                except UnreadableRow:
                    columns = self._counts_of(row)
                self._database.write(lambda c: simulations.describe(c, id, **columns))
                self._notifier.publish(id)
        else:
            with claimed(self._database, id, state) as acquired:
                if acquired:
                    self._collect(id, state)

    def explain(self, id: str, reason: str) -> None:
        """Record why a simulation that runs no more has not ended yet."""
        logger.warning("simulation %s: %s", id, reason)
        self._database.write(lambda c: simulations.explain(c, id, reason))
        self._notifier.publish(id)

    def _collect(self, id: str, state: State) -> None:
        with self._database.read() as c:
            row = simulations.find(c, PLATFORM, id)
            if State(row.state) is not state or leases.open_stage(c, id) is not None:
                return
        decided = State.CANCELLED if state is State.CANCELLING else State(row.outcome) if row.outcome else None
        if decided is None and state is not State.RUNNING:
            return
        try:
            spec = spec_of(row.spec)
            declared = declared_outputs(spec.outputs)
            summary = self._summary_of(row)
        except UnreadableRow as error:
            self._end_unreadable(row, decided or State.ERRORED, row.reason if decided else error.detail)
            return
        if decided is None:
            tasks = summary.tasks
            if tasks.done != tasks.total:
                raise Conflict(f"Simulation {id} has {tasks.done} results for {tasks.total} tasks.")
            final_state, reason = outcome_of(spec.max_failures, tasks.done, tasks.failed, summary.errors)
            self.compact(self._stage_of(id))
        else:
            final_state, reason = decided, row.reason
        outputs: str | None = None
        if declared and decided is None:
            if (made := self.outputs.make(row.caller, id, declared)) is None:
                self.explain(id, "its results are complete; one of its outputs is being registered as a dataset")
                return  # due again, as long as it has not ended
            outputs, reason = msgspec.json.encode(made).decode(), reason or failures_of(made)

        def end(c: Connection) -> None:
            now = self._database.now(c)
            simulations.move(c, id, state, final_state, now, reason=reason, outputs=outputs, **summary.columns())
            if simulations.find(c, PLATFORM, id).spec != row.spec:
                raise _SpecChanged

        while True:
            try:
                self._database.write(end)
                break
            except _SpecChanged:  # the specification is part of the archive, whose size was computed
                with self._database.read() as c:
                    row = simulations.find(c, PLATFORM, id)
                was = summary.archive
                archive = self._read.describe_archive(
                    row.caller, row, summary.statistics, was.bytes, was.crc32, was.extras
                )
                summary = replace(summary, archive=archive)
        self._announce_end(id)

    def _end_unreadable(self, row: simulations.SimulationRow, state: State, reason: str | None) -> None:
        """End a simulation whose results cannot be summed up, because its row cannot be read."""
        columns = self._counts_of(row)

        def end(c: Connection) -> None:
            now = self._database.now(c)
            simulations.move(c, row.id, State(row.state), state, now, reason=reason, **columns)

        self._database.write(end)
        self._announce_end(row.id)

    def _counts_of(self, row: simulations.SimulationRow) -> dict[str, str]:
        """Return the columns of a summary that has the numbers of tasks alone."""
        with self._database.read() as c:
            total, done, failed = simulations.counts(c, row.id)
        return summary_columns({"tasks": {"total": total, "done": done, "failed": failed}, "metrics": {}})

    def _announce_end(self, id: str) -> None:
        self._notifier.publish(id)
        self._notifier.wake("dispatch")
        with self._database.read() as c:
            comparison, pipeline = comparisons.comparison_of(c, id), pipelines.pipeline_of(c, id)
        if comparison is not None:
            self._notifier.enqueue("compare", comparison)
        if pipeline is not None:
            self._notifier.enqueue("pipeline", pipeline)

    def _summary_of(self, row: simulations.SimulationRow) -> SimulationSummary:
        """Summarize a simulation's present results."""
        with self._database.read() as c:
            total, _, _ = simulations.counts(c, row.id)
        return summarize(row.caller, self._read, row, self._read.stage_lines(self._stage_of(row.id), 0, None), total)

    def _stage_of(self, id: str) -> str:
        with self._database.read() as c:
            return results.newest_stage(c, id)

    def compact(self, stage: str) -> None:
        """Merge small objects to large ones, in task order; rows are updated before the old objects are deleted."""
        with self._database.read() as c:
            objects = _objects(c, stage)
        if len(objects) <= self._compact_above or sum(size for _, size in objects) > SMALL * len(objects):
            return
        position = 0
        while position < len(objects):
            piece, end = [objects[position]], position + 1
            total = objects[position][1]
            while end < len(objects) and total < PIECE:
                piece.append(objects[end])
                total += objects[end][1]
                end += 1
            self._merge(stage, [key for key, _ in piece])
            position = end

    def _merge(self, stage: str, keys: list[str]) -> None:
        if len(keys) < 2:
            return
        new = f"results/{stage.partition('.')[0]}/all-{secrets.token_hex(6)}"
        shifts: list[int] = []

        def bodies() -> Iterator[bytes]:
            position = 0
            for key in keys:
                shifts.append(position)
                for chunk in self._store.get(key):
                    position += len(chunk)
                    yield chunk

        self._store.put(new, bodies())

        def repoint(c: Connection) -> None:
            results.move_objects(c)
            for key, shift in zip(keys, shifts, strict=True):
                results.repoint(c, key, new, shift)

        self._database.write(repoint)
        for key in keys:
            self._store.delete(key)


def _objects(c: Connection, stage: str) -> list[tuple[str, int]]:
    """Return (key, size in bytes) of the objects of a stage, in task order."""
    sizes: dict[str, int] = {}
    after = -1
    while True:
        page = results.segments_in(c, stage, after=after, limit=SEGMENTS)
        for segment in page:
            after = segment.start
            sizes[segment.object] = max(sizes.get(segment.object, 0), segment.offset + segment.bytes)
        if len(page) < SEGMENTS:
            return list(sizes.items())
