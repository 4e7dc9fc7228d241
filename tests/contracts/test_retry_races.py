"""A retry that inherits results while another retry compacts the same objects: no row refers to an object in vain."""

import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sqlalchemy import select

from common.errors import Conflict
from core.notifications.local_notifier import LocalNotifier
from core.services.simulations.finalization import Finalization
from core.services.simulations.inheritance import inherit
from core.store import leases, results, simulations
from core.store.database import Connection, Database
from core.store.leases import Segment
from core.store.tables import segments
from datasets.objectstore.filesystem import FilesystemStore

TASKS = 4


def add_simulation(c: Connection, id: str) -> None:
    row: dict[str, Any] = dict.fromkeys(("project", "dataset", "runtime", "model", "digest"), "x")
    row |= {"id": id, "state": "queued", "spec": "{}", "provenance": "{}", "created_at": 0.0}
    stage = {"id": f"{id}.0", "simulation_id": id, "ordinal": 0, "total": TASKS, "state": "open"}
    simulations.add(c, row, stage)


def test_results_that_are_inherited_while_another_retry_compacts_them_stay_readable(
    database: Database, tmp_path: Path
) -> None:
    store = FilesystemStore(tmp_path / "objects")
    finalization = Finalization(database, store, LocalNotifier(), None, None, compact_above=1)  # type: ignore[arg-type]

    def prepare(c: Connection) -> None:
        add_simulation(c, "first")
        for task in range(TASKS):
            line = b'{"task":%d,"status":"ok"}\n' % task
            store.put(f"results/first/{task}", (line,))
            segment = Segment(task, task + 1, f"results/first/{task}", 0, len(line), zlib.crc32(line), 0)
            leases.record(c, "first.0", segment)

    database.write(prepare)
    one, other = (inherit(database, store, "first") for _ in range(2))

    def retry(c: Connection, id: str, inheritance: Any) -> None:
        add_simulation(c, id)
        inheritance.apply(c, id, TASKS)

    database.write(lambda c: retry(c, "one", one))
    with ThreadPoolExecutor(1) as pool:
        compaction: Future[None] | None = None

        def crossing(c: Connection) -> None:
            """Inherit, and let the compaction of the first retry run before this transaction commits."""
            nonlocal compaction
            retry(c, "other", other)
            if compaction is None:
                compaction = pool.submit(finalization.compact, "one.0")
                assert not done_within(compaction, 0.5), "the compaction waits for this transaction"

        database.write(crossing)
        assert compaction is not None
        compaction.result(30)
    for stage in ("first.0", "one.0", "other.0"):
        with database.read() as c:
            found = results.segments_in(c, stage)
        assert len(found) == TASKS
        for segment in found:
            line = b"".join(store.get(segment.object, segment.offset, segment.bytes))
            assert zlib.crc32(line) == segment.crc32
    assert len(list(store.list("results/"))) == 1
    try:  # results that were read before the compaction
        database.write(lambda c: retry(c, "late", other))
    except Conflict:
        pass
    else:
        raise AssertionError("the objects of this inheritance do not exist any more")
    with database.read() as c:
        assert c.execute(select(segments.c.start).where(segments.c.stage_id == "late.0")).first() is None


def done_within(future: "Future[None]", seconds: float) -> bool:
    try:
        future.result(seconds)
    except TimeoutError:
        return False
    return True
