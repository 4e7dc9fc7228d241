"""Retries: a new simulation inherits successful results by reference, without copying their bytes."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from common.errors import Conflict
from core.domain.access.scopes import PLATFORM
from core.store import leases, results, simulations
from core.store.database import Connection, Database
from core.store.leases import Segment
from datasets.objectstore.base import ObjectStore


class _TaskStatus(msgspec.Struct):
    status: str


_decoder = msgspec.json.Decoder(_TaskStatus)


@dataclass(frozen=True, slots=True)
class Inheritance:
    """Segments that a new simulation inherits from ``source``, in task order; all their results are ``ok``."""

    source: str
    kept: list[Segment]

    def apply(self, c: Connection, simulation: str, total: int) -> None:
        """Insert the inherited segments as done ranges, and the gaps between them as pending ranges.

        Raise Conflict if the source or one of the objects has been removed since ``inherit`` read them.
        """
        stage = f"{simulation}.0"
        simulations.hold(c, PLATFORM, self.source)
        results.hold_objects(c)
        for key in {segment.object for segment in self.kept}:
            if not results.needed(c, key):
                raise Conflict("The results to inherit have been moved meanwhile. Try again.")
        position = 0
        for start, stop in _runs(self.kept):
            if position < start:
                leases.lay(c, stage, position, start, done=False)
            leases.lay(c, stage, start, stop, done=True)
            results.inherit_artifacts(c, self.source, simulation, start, stop)
            position = stop
        if position < total:
            leases.lay(c, stage, position, total, done=False)
        for segment in self.kept:
            leases.record(c, stage, segment)
        leases.all_cut(c, stage)


def inherit(database: Database, store: ObjectStore, simulation: str) -> Inheritance:
    """Return the results that can be inherited from a simulation that has ended."""
    kept: list[Segment] = []
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
    position, first, begin = 0, 0, 0
    for number, line in enumerate([*lines, b""]):
        if line and _decoder.decode(line).status == "ok":
            position += len(line)
            continue
        if number > first:
            run = b"".join(lines[first:number])
            yield Segment(
                start=segment.start + first,
                stop=segment.start + number,
                object=segment.object,
                offset=segment.offset + begin,
                bytes=len(run),
                crc32=zlib.crc32(run),
                failed=0,
            )
        position += len(line)
        first, begin = number + 1, position


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
