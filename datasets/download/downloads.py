"""Transfers: files from object storage to this machine, several at a time, verified, retried, resumed where they broke.

Small files from a bucket go through a swarm: one thread, many requests at once. What is large, comes from the cache
that is near or from a store that only its adapter can read, is served by a crew of threads, a line each.
"""

import logging
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from datasets.download.curl_multi import LITTLE, Swarm
from datasets.download.partial_tree import Draft, Mismatch, Pouring, TooLong, sound
from datasets.download.range_coalescing import Stretch, batches, stretches
from datasets.download.range_fetch import Errand, pause
from datasets.objectstore.base import ObjectStore
from datasets.objectstore.connections import Connection, check
from datasets.objectstore.s3_reader import Line, Patience, Place, Trouble
from datasets.scs_client.client import Near
from datasets.versions.manifest import Entry
from errors import Corrupt, Invalid, NotFound, OriginFailed

__all__ = ["PACE", "THREADS", "Patience", "Progress", "Tally", "Transfer", "pause"]

logger = logging.getLogger(__name__)

THREADS = 8
#: Bytes that files of a pack have, on average, if each is worth a request of its own to something near.
ASKED = 256 << 10
#: Small requests at once, for each thread.
WIDTH = 4
#: Seconds between two words on the progress.
PACE = 0.5
#: Requests handed over at once, where they are small and many.
BATCH = 16


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a download is. ``rate`` in bytes/s; ``cached``: bytes that did not come from the origin."""

    files: int
    bytes: int
    total_files: int
    total_bytes: int
    rate: float
    cached: int


@runtime_checkable
class Remote(Protocol):
    """What an object store may be besides: one that a connection leads to, past its adapter."""

    connection: Connection
    bucket: str
    prefix: str


class Stopped(Exception):
    """Another thread failed, so this one need not go on."""


class Tally:
    """What has come so far; several threads add to it."""

    def __init__(self, total_files: int, total_bytes: int) -> None:
        self._lock = threading.Lock()
        self.total_files = total_files
        self.total_bytes = total_bytes
        self._files = self._bytes = self._cached = 0
        self._seen: tuple[float, int] = (time.monotonic(), 0)

    def came(self, size: int, files: int) -> None:
        """Count bytes from the origin, and files that they made whole."""
        with self._lock:
            self._bytes += size
            self._files += files

    def found(self, size: int) -> None:
        """Count a file that need not come from the origin."""
        with self._lock:
            self._files += 1
            self._bytes += size
            self._cached += size

    def progress(self) -> Progress:
        """Return how far it is; the rate is that since the last time."""
        now = time.monotonic()
        with self._lock:
            then, before = self._seen
            self._seen = now, self._bytes
            rate = (self._bytes - before) / max(now - then, 1e-3)
            return Progress(self._files, self._bytes, self.total_files, self.total_bytes, rate, self._cached)


class Places:
    """Says where objects lie; asks once for each bucket whether a connection may lead there at all."""

    def __init__(self, store: ObjectStore, connections: Mapping[str, Connection]) -> None:
        self._remote = store if isinstance(store, Remote) else None
        # what the platform itself keeps is read as its own, never through a connection
        self._own = [(self._remote.connection, self._remote.bucket)] if self._remote else []
        self._connections = connections
        self._checked: set[tuple[str, str]] = set()

    def of(self, source: str) -> Place | str:
        """Return where an object lies: in a bucket, or under a key of a store that only its adapter can read."""
        kind, _, rest = source.partition(":")
        if kind == "store":
            if self._remote is None:
                return rest
            return Place(self._remote.connection, self._remote.bucket, self._remote.prefix + rest)
        name, _, rest = rest.partition("/")
        bucket, _, key = rest.partition("/")
        if kind != "s3" or not key:
            raise OriginFailed(f"{source} names no object.")
        if name not in self._connections:
            raise OriginFailed(f"s3://{bucket}/{key}: there is no connection {name} on this node.")
        if (name, bucket) not in self._checked:
            self._check(name, bucket, key)
        return Place(self._connections[name], bucket, key)

    def _check(self, name: str, bucket: str, key: str) -> None:
        """See that a connection still leads to a bucket: what an operator allows may be less than it was."""
        try:
            check(self._connections[name], bucket, own=self._own)
        except Invalid as error:
            raise OriginFailed(f"s3://{bucket}/{key}: no connection leads to it. {error.detail}") from None
        self._checked.add((name, bucket))


class Transfer:
    """Brings entries' files into a draft: from something near if that has them, else from where they lie."""

    def __init__(
        self,
        store: ObjectStore,
        connections: Mapping[str, Connection],
        *,
        near: Near | None = None,
        threads: int = THREADS,
        patience: Patience | None = None,
    ) -> None:
        self._store = store
        self._connections = connections
        self._near = near
        self._threads = threads
        self._patience = patience or Patience()

    def fetch(self, entries: Iterable[Entry], draft: Draft, tally: Tally, say: Callable[[Progress], None]) -> None:
        """Return when every file is there and verified. Raise what the first of them failed of.

        ``entries`` is read as files are needed, in this thread; ``say`` is called in it, too.
        """
        places = Places(self._store, self._connections)
        crew = _Crew()
        large = _Lane(crew, self._threads, lambda lane: self._serve_all(lane, places, draft, tally))
        small = _Lane(crew, 1, lambda lane: self._swarm(lane, places, draft, tally), room=2 * self._threads)
        try:
            said = time.monotonic()
            most = max(1, min(BATCH, tally.total_files // (4 * self._threads)))  # few files are for all threads
            for batch in batches(stretches(entries), most):
                parts: dict[_Lane, list[Stretch]] = {small: [], large: []}
                for stretch in batch:
                    parts[small if self._is_little(stretch, places) else large].append(stretch)
                for lane, part in parts.items():
                    while part and not lane.offer(part, PACE):
                        said = _say_at_times(said, tally, say)
                said = _say_at_times(said, tally, say)
            for lane in (small, large):
                lane.close()
                while not lane.finish(PACE):
                    said = _say_at_times(said, tally, say)
        finally:
            crew.stop.set()
            for lane in (small, large):
                lane.end()
        crew.reckon()

    def _is_little(self, stretch: Stretch, places: Places) -> bool:
        """Tell whether it is for the swarm."""
        if not 0 < stretch.stop - stretch.start <= LITTLE or (self._near is not None and _worth_asking(stretch)):
            return False
        return isinstance(places.of(stretch.source), Place)

    # -- the swarm

    def _swarm(self, lane: "_Lane", places: Places, draft: Draft, tally: Tally) -> None:
        def begin(stretch: Stretch) -> Errand:
            return self._errand(stretch, places, draft, tally)

        stop = lane.crew.stop
        swarm = Swarm(begin, lane.waiting, lane.taken, wide=self._threads * WIDTH, patience=self._patience, stop=stop)
        try:
            swarm.run()
        finally:
            swarm.close()

    def _errand(self, stretch: Stretch, places: Places, draft: Draft, tally: Tally) -> Errand:
        try:
            pouring = Pouring(stretch, draft, tally.came)
        except Mismatch:
            raise Corrupt(f"An empty file of {stretch.source} has the digest of another; it was not used.") from None
        return Errand(stretch, places.of(stretch.source), pouring, self._patience)

    # -- the crew

    def _serve_all(self, lane: "_Lane", places: Places, draft: Draft, tally: Tally) -> None:
        line = Line(self._patience, lane.crew.stop)
        try:
            while (batch := lane.waiting.get()) is not None and not lane.crew.stop.is_set():
                for stretch in batch:
                    self._serve(stretch, places, draft, tally, line, lane.crew.stop)
                lane.taken()
        finally:
            line.close()

    def _serve(
        self, stretch: Stretch, places: Places, draft: Draft, tally: Tally, line: Line, stop: threading.Event
    ) -> None:
        if self._near is None or not _worth_asking(stretch):
            return self._pour(self._errand(stretch, places, draft, tally), line, stop)
        missing = []
        for entry in stretch.entries:
            if stop.is_set():
                raise Stopped
            if entry.size and self._from_near(self._near, entry, draft):
                tally.found(entry.size)
            else:
                missing.append(entry)
        for rest in stretches(missing):
            self._pour(self._errand(rest, places, draft, tally), line, stop)
            for entry in rest.entries:
                if entry.size:
                    self._near.put(entry.digest, Path(draft.path(entry)))

    @staticmethod
    def _from_near(near: Near, entry: Entry, draft: Draft) -> bool:
        with os.fdopen(draft.open(entry), "w+b") as file:
            came = near.get(entry.digest, entry.size, file)
        if not came:
            return False
        if sound(Path(draft.path(entry)), entry.size, entry.digest):
            return True
        logger.warning("the cache gave wrong bytes for %s; they come from the origin", entry.digest)
        return False

    def _pour(self, errand: Errand, line: Line, stop: threading.Event) -> None:
        def take(data: bytes) -> None:
            if stop.is_set():
                raise Stopped
            errand.pouring.write(data)

        try:
            while not errand.done:
                if stop.is_set():
                    raise Stopped
                problem: Exception | None = None
                try:
                    self._read(errand, take, line)
                except (Mismatch, TooLong, Trouble) as error:
                    problem = error
                if not errand.done and stop.wait(errand.ended(problem, random.random())):
                    raise Stopped
        finally:
            errand.pouring.close()

    def _read(self, errand: Errand, take: Callable[[bytes], None], line: Line) -> None:
        place, start, stop = errand.place, errand.pouring.position, errand.stretch.stop
        if isinstance(place, Place):
            return line.read(place, start, stop, errand.stretch.etag, take)
        try:
            for chunk in self._store.get(place, start, stop - start):
                take(chunk)
        except NotFound:
            raise OriginFailed(f"{place} is not in the object store any more.") from None


def _say_at_times(said: float, tally: Tally, say: Callable[[Progress], None]) -> float:
    now = time.monotonic()
    if now - said < PACE:
        return said
    say(tally.progress())
    return now


class _Crew:
    """All threads of a download: when the first of them fails, the others stop."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._failures: list[BaseException] = []

    def fail(self, error: BaseException) -> None:
        """Note what a thread failed of."""
        if not isinstance(error, Stopped):
            self._failures.append(error)
        self.stop.set()

    def reckon(self) -> None:
        """Raise what the first thread failed of."""
        if self._failures:
            raise self._failures[0]


class _Lane:
    """A queue of batches, and the threads that serve it; they begin when there is something to do."""

    def __init__(self, crew: _Crew, threads: int, work: Callable[["_Lane"], None], *, room: int | None = None) -> None:
        self.crew = crew
        self.waiting: queue.Queue[list[Stretch] | None] = queue.Queue()
        self._room = threading.Semaphore(room or 2 * threads)
        self._work = work
        self._wanted = threads
        self._threads: list[threading.Thread] = []

    def offer(self, batch: list[Stretch], seconds: float) -> bool:
        """Hand stretches over; False if nobody could take them in this time. Raise what a thread has failed of."""
        if not self._threads:
            self._threads = [threading.Thread(target=self._run, name=f"transfer-{n}") for n in range(self._wanted)]
            for thread in self._threads:
                thread.start()
        taken = self._room.acquire(timeout=seconds)
        if self.crew.stop.is_set():
            self.crew.reckon()
        if taken:
            self.waiting.put(batch)
        return taken

    def taken(self) -> None:
        """Make room for another batch."""
        self._room.release()

    def close(self) -> None:
        """Let every thread end when all that was handed over is served."""
        for _ in self._threads:
            self.waiting.put(None)

    def finish(self, seconds: float) -> bool:
        """Wait for that; False if it has not come in this time."""
        if self._threads:
            self._threads[-1].join(seconds)
        while self._threads and not self._threads[-1].is_alive():
            self._threads.pop()
        return not self._threads

    def end(self) -> None:
        """Have the threads that are still there end, now that they are to stop, and wait for them."""
        self.close()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        try:
            self._work(self)
        except BaseException as error:
            self.crew.fail(error)
            self._room.release()


def _worth_asking(stretch: Stretch) -> bool:
    """Tell whether something near is asked: there each file is a request of its own, here they may be one."""
    sizes = [entry.size for entry in stretch.entries if entry.size]
    return len(sizes) == 1 or sum(sizes) >= ASKED * max(1, len(sizes))
