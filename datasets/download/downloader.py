"""Downloads: files from object storage to this machine, in parallel, verified, retried, resumed where they broke off.

Small files from a bucket are fetched by one thread with many requests at once (`curl_multi`). Large ranges, ranges
that the cache service may have and objects of a store without an S3 endpoint are fetched by a group of threads, each
with one connection.
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

from common.errors import Corrupt, Invalid, NotFound, OriginRefused
from datasets.download.curl_multi import SMALL_REQUEST, CurlMulti
from datasets.download.partial_tree import CorruptDownload, ExcessBytes, PartialTree, RangeWriter, is_intact
from datasets.download.range_coalescing import CoalescedRange, batches, coalesce
from datasets.download.range_fetch import RangeFetch, pause
from datasets.objectstore.base import ObjectStore
from datasets.objectstore.connections import Connection, check
from datasets.objectstore.s3_reader import ObjectLocation, ReadError, RetryLimits, S3Connection
from datasets.scs_client.client import CacheClient
from datasets.versions.manifest import ManifestEntry

__all__ = ["PROGRESS_INTERVAL", "THREADS", "DownloadCounts", "DownloadProgress", "Downloader", "RetryLimits", "pause"]

logger = logging.getLogger(__name__)

THREADS = 8
#: Average bytes of a pack's files from which a separate request per file to the cache service is worthwhile.
CACHED_FILE_SIZE = 256 << 10
#: Concurrent small requests per thread of ``threads``.
CONCURRENCY = 4
#: Seconds between two progress reports.
PROGRESS_INTERVAL = 0.5
#: Requests per batch at most, where they are small and many.
BATCH = 16


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """Progress of a download. ``rate`` in bytes/s; ``cached``: bytes that did not come from the origin."""

    files: int
    bytes: int
    total_files: int
    total_bytes: int
    rate: float
    cached: int


@runtime_checkable
class BucketStore(Protocol):
    """An object store whose objects can also be read directly from a bucket, without its adapter."""

    connection: Connection
    bucket: str
    prefix: str


class DownloadStopped(Exception):
    """Raised in a thread to end it after another thread of the same download failed."""


class DownloadCounts:
    """Files and bytes downloaded so far; thread-safe."""

    def __init__(self, total_files: int, total_bytes: int) -> None:
        self._lock = threading.Lock()
        self.total_files = total_files
        self.total_bytes = total_bytes
        self._files = self._bytes = self._cached = 0
        self._last_sample: tuple[float, int] = (time.monotonic(), 0)

    def add_downloaded(self, size: int, files: int) -> None:
        """Count bytes from the origin, and files that are complete by them."""
        with self._lock:
            self._bytes += size
            self._files += files

    def add_cached(self, size: int) -> None:
        """Count a file that need not be downloaded from the origin."""
        with self._lock:
            self._files += 1
            self._bytes += size
            self._cached += size

    def progress(self) -> DownloadProgress:
        """Return the current progress; its rate covers the time since the last call."""
        now = time.monotonic()
        with self._lock:
            last_time, last_bytes = self._last_sample
            self._last_sample = now, self._bytes
            rate = (self._bytes - last_bytes) / max(now - last_time, 1e-3)
            return DownloadProgress(
                files=self._files,
                bytes=self._bytes,
                total_files=self.total_files,
                total_bytes=self.total_bytes,
                rate=rate,
                cached=self._cached,
            )


class ObjectLocator:
    """Resolves the sources of manifest entries; checks once per bucket that a connection may read it."""

    def __init__(self, store: ObjectStore, connections: Mapping[str, Connection]) -> None:
        self._bucket_store = store if isinstance(store, BucketStore) else None
        # The platform's own bucket must not be read through a user's connection.
        self._own = [(self._bucket_store.connection, self._bucket_store.bucket)] if self._bucket_store else []
        self._connections = connections
        self._checked: set[tuple[str, str]] = set()

    def locate(self, source: str) -> ObjectLocation | str:
        """Return an object's location in a bucket, or its key in a store that only its adapter can read."""
        kind, _, rest = source.partition(":")
        if kind == "store":
            if self._bucket_store is None:
                return rest
            return ObjectLocation(
                self._bucket_store.connection, self._bucket_store.bucket, self._bucket_store.prefix + rest
            )
        name, _, rest = rest.partition("/")
        bucket, _, key = rest.partition("/")
        if kind != "s3" or not key:
            raise OriginRefused(f"{source} does not name an object.")
        if name not in self._connections:
            raise OriginRefused(f"s3://{bucket}/{key}: there is no connection {name} on this node.")
        if (name, bucket) not in self._checked:
            self._check(name, bucket, key)
        return ObjectLocation(self._connections[name], bucket, key)

    def _check(self, name: str, bucket: str, key: str) -> None:
        """Check that a connection still allows a bucket: the operator may have restricted it since registration."""
        try:
            check(self._connections[name], bucket, own=self._own)
        except Invalid as error:
            raise OriginRefused(f"s3://{bucket}/{key}: no connection may read it. {error.detail}") from None
        self._checked.add((name, bucket))


class Downloader:
    """Downloads entries' files into a partial tree: from the cache service if it has them, else from the origin."""

    def __init__(
        self,
        store: ObjectStore,
        connections: Mapping[str, Connection],
        *,
        cache_client: CacheClient | None = None,
        threads: int = THREADS,
        retry_limits: RetryLimits | None = None,
    ) -> None:
        self._store = store
        self._connections = connections
        self._cache_client = cache_client
        self._threads = threads
        self._retry_limits = retry_limits or RetryLimits()

    def fetch(
        self,
        entries: Iterable[ManifestEntry],
        partial: PartialTree,
        counts: DownloadCounts,
        on_progress: Callable[[DownloadProgress], None],
    ) -> None:
        """Return when every file is downloaded and verified. Raise the error of the first file that fails.

        ``entries`` is iterated lazily, and ``on_progress`` is called, in this thread.
        """
        locator = ObjectLocator(self._store, self._connections)
        group = _ThreadGroup()
        large = _WorkQueue(group, self._threads, lambda work: self._fetch_large(work, locator, partial, counts))
        small = _WorkQueue(
            group, 1, lambda work: self._fetch_small(work, locator, partial, counts), room=2 * self._threads
        )
        try:
            reported_at = time.monotonic()
            most = max(1, min(BATCH, counts.total_files // (4 * self._threads)))  # spread few files over all threads
            for batch in batches(coalesce(entries), most):
                parts: dict[_WorkQueue, list[CoalescedRange]] = {small: [], large: []}
                for range in batch:
                    parts[small if self._is_small(range, locator) else large].append(range)
                for work, part in parts.items():
                    while part and not work.offer(part, PROGRESS_INTERVAL):
                        reported_at = _report_progress(reported_at, counts, on_progress)
                reported_at = _report_progress(reported_at, counts, on_progress)
            for work in (small, large):
                work.close()
                while not work.finish(PROGRESS_INTERVAL):
                    reported_at = _report_progress(reported_at, counts, on_progress)
        finally:
            group.stop.set()
            for work in (small, large):
                work.end()
        group.raise_failure()

    def _is_small(self, range: CoalescedRange, locator: ObjectLocator) -> bool:
        """Tell whether a range is fetched by the thread for small requests."""
        if not 0 < range.stop - range.start <= SMALL_REQUEST:
            return False
        if self._cache_client is not None and _worth_asking_cache(range):
            return False
        return isinstance(locator.locate(range.source), ObjectLocation)

    # -- small ranges: one thread, many requests

    def _fetch_small(
        self, work: "_WorkQueue", locator: ObjectLocator, partial: PartialTree, counts: DownloadCounts
    ) -> None:
        def begin(range: CoalescedRange) -> RangeFetch:
            return self._begin_fetch(range, locator, partial, counts)

        multi = CurlMulti(
            begin,
            work.batches,
            work.batch_done,
            concurrency=self._threads * CONCURRENCY,
            retry_limits=self._retry_limits,
            stop=work.group.stop,
        )
        try:
            multi.run()
        finally:
            multi.close()

    def _begin_fetch(
        self, range: CoalescedRange, locator: ObjectLocator, partial: PartialTree, counts: DownloadCounts
    ) -> RangeFetch:
        try:
            writer = RangeWriter(range, partial, counts.add_downloaded)
        except CorruptDownload:
            raise Corrupt(f"An empty file of {range.source} has the wrong digest; it was not used.") from None
        return RangeFetch(range, locator.locate(range.source), writer, self._retry_limits)

    # -- large ranges: one connection per thread

    def _fetch_large(
        self, work: "_WorkQueue", locator: ObjectLocator, partial: PartialTree, counts: DownloadCounts
    ) -> None:
        connection = S3Connection(self._retry_limits, work.group.stop)
        try:
            while (batch := work.batches.get()) is not None and not work.group.stop.is_set():
                for range in batch:
                    self._fetch_range(range, locator, partial, counts, connection, work.group.stop)
                work.batch_done()
        finally:
            connection.close()

    def _fetch_range(
        self,
        range: CoalescedRange,
        locator: ObjectLocator,
        partial: PartialTree,
        counts: DownloadCounts,
        connection: S3Connection,
        stop: threading.Event,
    ) -> None:
        if self._cache_client is None or not _worth_asking_cache(range):
            return self._run_fetch(self._begin_fetch(range, locator, partial, counts), connection, stop)
        missing = []
        for entry in range.entries:
            if stop.is_set():
                raise DownloadStopped
            if entry.size and self._fetch_from_cache(self._cache_client, entry, partial):
                counts.add_cached(entry.size)
            else:
                missing.append(entry)
        for rest in coalesce(missing):
            self._run_fetch(self._begin_fetch(rest, locator, partial, counts), connection, stop)
            for entry in rest.entries:
                if entry.size:
                    self._cache_client.put(entry.digest, Path(partial.path(entry)))

    @staticmethod
    def _fetch_from_cache(cache_client: CacheClient, entry: ManifestEntry, partial: PartialTree) -> bool:
        with os.fdopen(partial.open(entry), "w+b") as file:
            hit = cache_client.get(entry.digest, entry.size, file)
        if not hit:
            return False
        if is_intact(Path(partial.path(entry)), entry.size, entry.digest):
            return True
        logger.warning("the cache service returned wrong bytes for %s; downloading from the origin", entry.digest)
        return False

    def _run_fetch(self, fetch: RangeFetch, connection: S3Connection, stop: threading.Event) -> None:
        def write(data: bytes) -> None:
            if stop.is_set():
                raise DownloadStopped
            fetch.writer.write(data)

        try:
            while not fetch.done:
                if stop.is_set():
                    raise DownloadStopped
                failure: Exception | None = None
                try:
                    self._read(fetch, write, connection)
                except (CorruptDownload, ExcessBytes, ReadError) as error:
                    failure = error
                if not fetch.done and stop.wait(fetch.request_ended(failure, random.random())):
                    raise DownloadStopped
        finally:
            fetch.writer.close()

    def _read(self, fetch: RangeFetch, write: Callable[[bytes], None], connection: S3Connection) -> None:
        location, start, stop = fetch.location, fetch.writer.position, fetch.range.stop
        if isinstance(location, ObjectLocation):
            return connection.read(location, start, stop, fetch.range.etag, write)
        try:
            for chunk in self._store.get(location, start, stop - start):
                write(chunk)
        except NotFound:
            raise OriginRefused(f"{location} is not in the object store any more.") from None


def _report_progress(
    reported_at: float, counts: DownloadCounts, on_progress: Callable[[DownloadProgress], None]
) -> float:
    """Report the progress if PROGRESS_INTERVAL has passed; return the time of the last report."""
    now = time.monotonic()
    if now - reported_at < PROGRESS_INTERVAL:
        return reported_at
    on_progress(counts.progress())
    return now


class _ThreadGroup:
    """All threads of a download: the first failure stops the others."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._failures: list[BaseException] = []

    def fail(self, error: BaseException) -> None:
        """Record a thread's failure, and stop the other threads."""
        if not isinstance(error, DownloadStopped):
            self._failures.append(error)
        self.stop.set()

    def raise_failure(self) -> None:
        """Raise the first recorded failure, if there is any."""
        if self._failures:
            raise self._failures[0]


class _WorkQueue:
    """A bounded queue of batches, and the threads that consume it; they are started with the first batch."""

    def __init__(
        self, group: _ThreadGroup, threads: int, work: Callable[["_WorkQueue"], None], *, room: int | None = None
    ) -> None:
        self.group = group
        self.batches: queue.Queue[list[CoalescedRange] | None] = queue.Queue()
        self._room = threading.Semaphore(room or 2 * threads)
        self._work = work
        self._thread_count = threads
        self._threads: list[threading.Thread] = []

    def offer(self, batch: list[CoalescedRange], timeout: float) -> bool:
        """Enqueue a batch; False if the queue stays full for ``timeout`` seconds. Raise a thread's failure."""
        if not self._threads:
            self._threads = [
                threading.Thread(target=self._run, name=f"transfer-{number}") for number in range(self._thread_count)
            ]
            for thread in self._threads:
                thread.start()
        acquired = self._room.acquire(timeout=timeout)
        if self.group.stop.is_set():
            self.group.raise_failure()
        if acquired:
            self.batches.put(batch)
        return acquired

    def batch_done(self) -> None:
        """Make room for another batch."""
        self._room.release()

    def close(self) -> None:
        """Let every thread end once the queued batches are processed."""
        for _ in self._threads:
            self.batches.put(None)

    def finish(self, timeout: float) -> bool:
        """Wait for the threads to end; False if some still run after ``timeout`` seconds."""
        if self._threads:
            self._threads[-1].join(timeout)
        while self._threads and not self._threads[-1].is_alive():
            self._threads.pop()
        return not self._threads

    def end(self) -> None:
        """Wait for the remaining threads; the group's ``stop`` must be set before."""
        self.close()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        try:
            self._work(self)
        except BaseException as error:
            self.group.fail(error)
            self._room.release()


def _worth_asking_cache(range: CoalescedRange) -> bool:
    """Tell whether to ask the cache service: there each file is a request, while the origin needs one for all."""
    sizes = [entry.size for entry in range.entries if entry.size]
    return len(sizes) == 1 or sum(sizes) >= CACHED_FILE_SIZE * max(1, len(sizes))
