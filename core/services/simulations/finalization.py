"""Finalization: one pass over a simulation's results in task order, for summary, digest, archive and compaction."""

import hashlib
import json
import logging
import secrets
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from core.domain.states import FINAL, State
from core.domain.statistics import MetricTally
from core.notifications.notifier import Notifier
from core.services.claims import claimed
from core.services.datasets.catalogue import played
from core.services.scheduling.progress import too_many
from core.services.simulations.results import Results
from core.store import leases, results, simulations
from core.store.database import Connection, Database
from datasets.objectstore.base import ObjectStore
from errors import Conflict

logger = logging.getLogger(__name__)

#: Compaction merges more than ``FEW`` objects of less than ``SMALL`` bytes on average to objects of ``PIECE`` bytes.
SMALL, FEW, PIECE = 1 << 20, 16, 32 << 20


class _TimedResult(msgspec.Struct):
    status: str
    scenario: dict[str, Any]
    metrics: dict[str, Any]
    timing: dict[str, Any] = {}


_result_decoder = msgspec.json.Decoder(_TimedResult)


class _SpecChanged(Exception):
    """The simulation's specification has changed meanwhile."""


class Finalization:
    """Finalizes simulations. Idempotent, also after a crash at any point."""

    def __init__(
        self, database: Database, store: ObjectStore, notifier: Notifier, read: Results, *, compact_above: int = FEW
    ) -> None:
        self._database = database
        self._store = store
        self._notifier = notifier
        self._read = read
        self._compact_above = compact_above

    def collect(self, id: str) -> None:
        """Finalize a simulation whose stages are done, unless another job does; or summarize one that ended early."""
        with self._database.read() as c:
            if State(simulations.find(c, id).state) in FINAL:
                return self._summarize_early(id)
        with claimed(self._database, id, State.RUNNING) as acquired:
            if acquired:
                self._collect(id)

    def _collect(self, id: str) -> None:
        with self._database.read() as c:
            row = simulations.find(c, id)
            stage = results.stage_ids(c, id)[-1]
            if leases.open_stage(c, id) is not None:
                return
        summary = self._summarize(row, stage)
        total = summary["tasks"]["total"]
        if (expected := self._expected(id)) != total:
            raise Conflict(f"Simulation {id} has {total} results for {expected} tasks.")
        reason = too_many(json.loads(row.spec), summary["tasks"]["failed"])
        final_state = State.SUCCEEDED if reason is None else State.FAILED
        self.compact(stage)

        def end(c: Connection) -> None:
            now = self._database.now(c)
            simulations.move(c, id, State.RUNNING, final_state, now, summary=json.dumps(summary), reason=reason)
            if simulations.find(c, id).spec != row.spec:
                raise _SpecChanged

        while True:
            try:
                self._database.write(end)
                break
            except _SpecChanged:  # the specification is part of the archive, whose size was computed
                with self._database.read() as c:
                    row = simulations.find(c, id)
                archive = summary["archive"]
                summary["archive"] = self._read.describe_archive(row, summary, archive["bytes"], archive["crc32"])
        self._notifier.publish(id)
        self._notifier.wake("dispatch")

    def _summarize_early(self, id: str) -> None:
        """Store the summary of a simulation that ended before all tasks had results."""
        with self._database.read() as c:
            row = simulations.find(c, id)
            stage = results.stage_ids(c, id)[-1]
            total, _, _ = simulations.counts(c, id)
        if row.summary is not None:
            return
        summary = self._summarize(row, stage, total)
        self._database.write(lambda c: simulations.set_summary(c, id, summary))
        self._notifier.publish(id)

    def _expected(self, id: str) -> int:
        with self._database.read() as c:
            return simulations.counts(c, id)[0]

    def _summarize(self, row: Any, stage: str, total: int | None = None) -> dict[str, Any]:
        """Summarize the present results; ``total``: number of tasks, if not all have a result."""
        definition = played(json.loads(row.provenance)["dataset"]).definition
        tally = MetricTally(definition["metrics"], definition.get("group_by", ()))
        digest = hashlib.sha256()
        crc = size = 0
        for body in self._bodies(stage):
            crc = zlib.crc32(body, crc)
            size += len(body)
            for line in body.splitlines():
                result = _result_decoder.decode(line)
                tally.add(result.status, result.scenario, result.metrics)
                tally.clock(result.timing)
                # Without `timing`, the last member of a line and the only one that may differ between two runs.
                digest.update(line[: line.rindex(b',"timing":')] + b"}\n")
        summary = tally.summary() | {"results_digest": "sha256:" + digest.hexdigest()}
        summary["score"] = definition.get("score")
        if total is not None:
            summary["tasks"]["total"] = total
        return summary | {"archive": self._read.describe_archive(row, summary, size, crc)}

    def _bodies(self, stage: str) -> Iterator[bytes]:
        return self._read._lines(stage, 0, None)

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
            for key, shift in zip(keys, shifts, strict=True):
                results.repoint(c, key, new, shift)

        self._database.write(repoint)
        for key in keys:
            self._store.delete(key)

    # -- deletion

    def remove_deleted(self, id: str) -> None:
        """Remove the objects and rows of a deleted simulation; objects that a retry inherited stay with it."""
        with self._database.read() as c:
            keys = results.objects_of(c, id)
        self._database.write(lambda c: results.forget(c, id))
        for key in keys:
            with self._database.read() as c:
                if results.needed(c, key):
                    continue
            self._store.delete(key)
        for prefix in (f"logs/{id}/", f"results/{id}/", f"replays/{id}/"):
            for key in list(self._store.list(prefix)):
                with self._database.read() as c:
                    if not results.needed(c, key):
                        self._store.delete(key)


def _objects(c: Connection, stage: str) -> list[tuple[str, int]]:
    """Return (key, size in bytes) of the objects of a stage, in task order."""
    sizes: dict[str, int] = {}
    after = -1
    while page := results.segments_in(c, stage, after=after):
        for segment in page:
            after = segment.start
            sizes[segment.object] = max(sizes.get(segment.object, 0), segment.offset + segment.bytes)
    return list(sizes.items())
