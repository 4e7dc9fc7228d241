"""A retry keeps what succeeded, by reference: the bytes stay where they are, the new rows point at them."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
from sqlalchemy import Connection, insert, text

from core.store import results
from core.store.database import Database
from core.store.ranges import Segment, record
from core.store.tables import ranges
from datasets.stores.base import ObjectStore

_INHERIT_ARTIFACTS = text(
    'INSERT INTO artifacts(simulation_id, task, name, media_type, object, "offset", bytes, crc32)'
    ' SELECT :new, task, name, media_type, object, "offset", bytes, crc32 FROM artifacts'
    " WHERE simulation_id=:old AND task>=:start AND task<:stop"
)
_ALL_CUT = text("UPDATE stages SET next=total WHERE id=:s")


class _Head(msgspec.Struct):
    status: str


_head = msgspec.json.Decoder(_Head)


@dataclass(frozen=True, slots=True)
class Inheritance:
    """What a new simulation takes over from ``source``: segments in task order in which every result is ``ok``."""

    source: str
    kept: list[Segment]

    def apply(self, c: Connection, simulation: str, stage: str, total: int) -> None:
        """Write the kept segments, and the gaps between them as work to be done."""
        at = 0
        for start, stop in _runs(self.kept):
            if at < start:
                _range(c, stage, at, start, "pending")
            _range(c, stage, start, stop, "done")
            c.execute(_INHERIT_ARTIFACTS, {"new": simulation, "old": self.source, "start": start, "stop": stop})
            at = stop
        if at < total:
            _range(c, stage, at, total, "pending")
        for segment in self.kept:
            record(c, stage, segment)
        c.execute(_ALL_CUT, {"s": stage})


def inherit(database: Database, store: ObjectStore, simulation: str) -> Inheritance:
    """Find what can be kept of a simulation that has ended."""
    kept = []
    after = -1
    while True:
        with database.read() as c:
            page = results.segments_of(c, simulation, after=after)
        if not page:
            return Inheritance(simulation, kept)
        for segment in page:
            after = segment.start
            kept += [segment] if segment.failed == 0 else _successes(store, segment)


def _successes(store: ObjectStore, segment: Segment) -> Iterator[Segment]:
    lines = b"".join(store.get(segment.object, segment.offset, segment.bytes)).splitlines(keepends=True)
    at, first, begin = 0, 0, 0
    for number, line in enumerate([*lines, b""]):
        if line and _head.decode(line).status == "ok":
            at += len(line)
            continue
        if number > first:
            run = b"".join(lines[first:number])
            yield Segment(
                segment.start + first,
                segment.start + number,
                segment.object,
                segment.offset + begin,
                len(run),
                zlib.crc32(run),
                0,
            )
        at += len(line)
        first, begin = number + 1, at


def _runs(segments: list[Segment]) -> Iterator[tuple[int, int]]:
    start = stop = None
    for segment in segments:
        if segment.start == stop:
            stop = segment.stop
            continue
        if start is not None and stop is not None:
            yield start, stop
        start, stop = segment.start, segment.stop
    if start is not None and stop is not None:
        yield start, stop


def _range(c: Connection, stage: str, start: int, stop: int, state: str) -> None:
    mark = stop if state == "done" else start
    c.execute(insert(ranges).values(stage_id=stage, start=start, stop=stop, mark=mark, state=state))
