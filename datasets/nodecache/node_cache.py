"""Node cache: download each dataset and model to this node once, and keep it while a simulation pins it.

The threads and processes of a node coordinate by locks and files alone, so that any of them may die at any moment.
"""

import contextlib
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from core.domain.full_disks import is_disk_full
from datasets.download.downloader import (
    PROGRESS_INTERVAL,
    THREADS,
    DownloadCounts,
    Downloader,
    DownloadProgress,
    RetryLimits,
)
from datasets.download.partial_tree import PartialTree, is_intact
from datasets.nodecache.disk_cache import DEFAULT_POLICY, DiskCache
from datasets.nodecache.locks import locked
from datasets.objectstore.base import ObjectStore
from datasets.objectstore.connections import Connection
from datasets.scs_client.client import CacheClient
from datasets.versions import manifest
from datasets.versions.manifest import ManifestEntry
from errors import (
    BadName,
    Corrupt,
    LargerThanCache,
    NodeFull,
    OriginChanged,
    OriginFailed,
    OriginRefused,
    PlatformError,
    StoreUnavailable,
)

__all__ = ["DownloadProgress", "NodeCache"]

logger = logging.getLogger(__name__)

#: Errors of a failed download that are also raised to the callers that waited for it, so that they do not repeat it.
SHARED_ERRORS = {
    error.slug: error
    for error in (
        OriginFailed,
        OriginRefused,
        OriginChanged,
        Corrupt,
        LargerThanCache,
        NodeFull,
        BadName,
        StoreUnavailable,
    )
}


#: Seconds after which a cached entry is verified again, and the disk bandwidth in bytes/s that a scrub may use.
SCRUB_AGE, SCRUB_BANDWIDTH = 7 * 86_400.0, 200e6


def ignore_progress(progress: DownloadProgress) -> None:
    """Discard a progress report."""


class NodeCache:
    """Trees (one per dataset version) and objects (one per model), complete or absent, named by digest.

    ``capacity`` in bytes; None: as much as the disk holds. ``policy``: name of the eviction policy.
    """

    def __init__(
        self,
        folder: Path,
        store: ObjectStore,
        connections: Mapping[str, Connection] | None = None,
        *,
        capacity: int | None = None,
        policy: str = DEFAULT_POLICY,
        cache_client: CacheClient | None = None,
        retry_limits: RetryLimits | None = None,
    ) -> None:
        self._store = store
        self._disk = DiskCache(folder, capacity, policy)
        self._downloader = Downloader(
            store, connections or {}, cache_client=cache_client, threads=THREADS, retry_limits=retry_limits
        )

    def ready(self, digest: str) -> Path | None:
        """Return a version's tree if it is complete on this node, else None. ``hold`` it before using it."""
        id = _id(digest)
        return self._disk.tree(id) if self._disk.is_complete(id) else None

    def has_object(self, digest: str) -> bool:
        """Return whether an object is complete on this node."""
        return self._disk.object(_id(digest)).exists()

    def hold(self, digest: str, holder: str) -> None:
        """Pin a tree or object, present or not yet, until ``release(holder)``."""
        self._disk.pin(_id(digest), holder)

    def release(self, holder: str) -> None:
        """Remove all pins of a holder."""
        self._disk.release(holder)

    def sweep(self, alive: Callable[[set[str]], set[str]]) -> None:
        """Release the pins of holders that ``alive`` does not return; remove the leftovers of dead processes."""
        holders = self._disk.holders()
        for holder in holders - alive(holders) if holders else ():
            self._disk.release(holder)
        self._disk.sweep()

    def object(self, key: str, digest: str, *, holder: str | None = None) -> Path:
        """Return a read-only file with the content of ``digest`` (``sha256:<hex>``); downloads it if necessary."""
        id = _id(digest)
        path = self._disk.object(id)
        if holder is not None:
            self._disk.pin(id, holder)
        if path.exists():
            if holder is None:
                self._disk.touch(id)
            return path
        with self._entry_lock(id, ignore_progress):
            if not path.exists():
                self._download_object(id, key, digest)
        return path

    def tree(
        self,
        digest: str,
        entries: Callable[[], Iterator[ManifestEntry]],
        *,
        holder: str,
        on_progress: Callable[[DownloadProgress], None] = ignore_progress,
    ) -> Path:
        """Return a version's files as a read-only folder, complete and verified; pinned for ``holder`` until released.

        ``entries`` returns the version's manifest, sorted; it is read once, and checked against ``digest``.
        ``on_progress`` is called a few times a second in this thread, also while another process does the download.
        """
        self.hold(digest, holder)
        if (path := self.ready(digest)) is not None:
            return path
        id = _id(digest)
        with self._entry_lock(id, on_progress):
            if (path := self.ready(digest)) is None:
                path = self._download_tree(id, digest, entries, on_progress)
        return path

    def verify(self, digest: str, *, pace: float | None = None) -> list[str]:
        """Read a whole tree or object, repair damaged files from the origin, and return the names of those files.

        ``pace`` in bytes/s limits the disk bandwidth used. If the origin fails, its error is raised and the tree is
        not ready any more.
        """
        id = _id(digest)
        holder = f"verify-{os.getpid()}-{secrets.token_hex(4)}"
        self._disk.pin(id, holder, use=False)  # not evicted while it is read
        try:
            with locked(self._disk.lock(id)):
                self._disk.record_check(id)
                return self._verify_object(id, digest) + self._verify_tree(id, digest, pace)
        finally:
            self._disk.release(holder)

    def scrub(self, age: float = SCRUB_AGE, *, pace: float | None = SCRUB_BANDWIDTH) -> list[str]:
        """Verify the entry verified least recently, if that was over ``age`` seconds ago; return the damaged names.

        To be called periodically: nothing else detects a bit that flips in a cached file.
        """
        id = self._disk.least_recently_checked(age)
        return [] if id is None else self.verify(f"sha256:{id}", pace=pace)

    # -- under the entry's lock

    def _entry_lock(self, id: str, on_progress: Callable[[DownloadProgress], None]) -> "_EntryLock":
        return _EntryLock(self._disk, id, on_progress)

    def _download_object(self, id: str, key: str, digest: str) -> None:
        entry = ManifestEntry(id, self._store.size(key), digest, f"store:{key}")
        partial = PartialTree(self._disk.partial(id, "object"))
        self._disk.reserve(id, entry.size)
        try:
            with _disk_full_as_node_full():
                self._downloader.fetch([entry], partial, DownloadCounts(1, entry.size), ignore_progress)
                target = self._disk.object(id)
                target.parent.mkdir(parents=True, exist_ok=True)
                _fsync(partial.folder / id)  # an object has no marker with the boot id
                os.rename(partial.folder / id, target)
                self._disk.record_check(id)
                self._disk.record_added(id)
        finally:
            partial.discard()
            self._disk.release_reservation(id)

    def _download_tree(
        self,
        id: str,
        digest: str,
        entries: Callable[[], Iterator[ManifestEntry]],
        on_progress: Callable[[DownloadProgress], None],
    ) -> Path:
        self._disk.resume_partial(id)
        folder = self._disk.partial(id, "tree")
        resumed = folder.exists()
        with _disk_full_as_node_full():
            files, size = self._copy_manifest(id, digest, entries())
            self._disk.reserve(id, size)
        try:
            with _disk_full_as_node_full():
                partial = PartialTree(folder)
                counts = DownloadCounts(files, size)
                reporter = _ProgressReporter(self._disk.partial(id, "progress"), on_progress)
                self._downloader.fetch(self._missing(id, partial, counts, resumed), partial, counts, reporter)
                partial.make_read_only()
                path = self._disk.publish(id, folder, self._disk.partial(id, "manifest"), files, size)
        except NodeFull:
            partial.discard()  # other downloads need the room
            raise
        finally:
            self._disk.release_reservation(id)
        on_progress(counts.progress())
        return path

    def _copy_manifest(self, id: str, digest: str, entries: Iterator[ManifestEntry]) -> tuple[int, int]:
        """Write the manifest beside the partial tree, check its digest, and return its number of files and bytes.

        The download reads this copy, so that it fetches the entries whose digest was checked.
        """
        path = self._disk.partial(id, "manifest")
        path.parent.mkdir(parents=True, exist_ok=True)
        manifest_digest = manifest.Digest()
        files = size = 0
        with open(path, "wb") as file:
            for entry in entries:
                if entry.size < 0 or entry.offset < 0:
                    raise Corrupt("The dataset's manifest has a negative size or offset.")
                manifest_digest.add(entry)
                file.write(manifest.encode(entry))
                files += 1
                size += entry.size
        if str(manifest_digest) != digest:
            raise Corrupt(f"The dataset's manifest does not match its digest {digest}; nothing was downloaded.")
        return files, size

    def _missing(self, id: str, partial: PartialTree, counts: DownloadCounts, resumed: bool) -> Iterator[ManifestEntry]:
        for entry in _read_manifest(self._disk.partial(id, "manifest")):
            if resumed and partial.has_intact(entry):
                counts.add_cached(entry.size)
            else:
                yield entry

    def _verify_object(self, id: str, digest: str) -> list[str]:
        path = self._disk.object(id)
        if not path.exists() or is_intact(path, path.stat().st_size, digest):
            return []
        logger.warning("node cache: object %s is damaged; it is downloaded again when it is needed", digest)
        path.unlink()
        return [digest]

    def _verify_tree(self, id: str, digest: str, pace: float | None) -> list[str]:
        marker = self._disk.marker(id)
        if marker is None or not self._disk.is_complete(id):
            return []
        tree = self._disk.tree(id)
        damaged = []
        for entry in _read_manifest(self._disk.manifest(id)):
            if not is_intact(tree / entry.path, entry.size, entry.digest):
                damaged.append(entry)
            if pace is not None:
                time.sleep(entry.size / pace)
        if damaged:
            names = [entry.path for entry in damaged]
            logger.warning("node cache: dataset %s is damaged in %d files, first %r", digest, len(names), names[0])
            self._disk.invalidate(id)
            self._replace(id, damaged)
            self._disk.write_marker(id, marker)
        return [entry.path for entry in damaged]

    def _replace(self, id: str, entries: list[ManifestEntry]) -> None:
        """Replace damaged files by downloaded ones; a process that has a damaged file open keeps the old inode."""
        tree = self._disk.tree(id)
        partial = PartialTree(self._disk.partial(id, "mended"))
        try:
            counts = DownloadCounts(len(entries), sum(entry.size for entry in entries))
            with _disk_full_as_node_full():
                self._downloader.fetch(entries, partial, counts, ignore_progress)
            for entry in entries:
                target = tree / entry.path
                with _writable(target.parent):
                    os.replace(partial.path(entry), target)
        finally:
            partial.discard()


class _EntryLock:
    """The lock of one tree or object. A caller that waited for a failed download fails with the download's error."""

    def __init__(self, disk: DiskCache, id: str, on_progress: Callable[[DownloadProgress], None]) -> None:
        self._disk = disk
        self._failure = disk.partial(id, "failure")
        self._progress = disk.partial(id, "progress")
        self._on_progress = on_progress
        self._reported_at = time.monotonic()
        self._since = time.time()
        self._lock = locked(disk.lock(id), self._report_while_waiting)

    def __enter__(self) -> None:
        if self._lock.__enter__():
            try:
                self._raise_shared_failure()
            except BaseException:
                self._lock.__exit__(None, None, None)
                raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self._progress.unlink(missing_ok=True)
            if isinstance(error, PlatformError) and error.slug in SHARED_ERRORS:
                with contextlib.suppress(OSError):  # without the file, each waiting caller tries for itself
                    self._failure.parent.mkdir(parents=True, exist_ok=True)
                    self._failure.write_text(json.dumps([time.time(), error.slug, error.detail]))
            else:
                self._failure.unlink(missing_ok=True)
        finally:
            self._lock.__exit__(None, None, None)

    def _report_while_waiting(self) -> None:
        if time.monotonic() - self._reported_at >= PROGRESS_INTERVAL:
            self._reported_at = time.monotonic()
            try:
                self._on_progress(DownloadProgress(**json.loads(self._progress.read_bytes())))
            except (OSError, ValueError, TypeError):
                return

    def _raise_shared_failure(self) -> None:
        try:
            at, slug, detail = json.loads(self._failure.read_bytes())
        except (OSError, ValueError):
            return
        if at >= self._since:
            raise SHARED_ERRORS[slug](detail)


class _ProgressReporter:
    """Reports the progress to a callback, and writes it to a file for the callers that wait for the same entry."""

    def __init__(self, path: Path, on_progress: Callable[[DownloadProgress], None]) -> None:
        self._path = path
        self._on_progress = on_progress

    def __call__(self, progress: DownloadProgress) -> None:
        draft = self._path.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(progress)))
        draft.rename(self._path)
        self._on_progress(progress)


@contextlib.contextmanager
def _disk_full_as_node_full() -> Iterator[None]:
    """Raise NodeFull for an OSError that means that the disk is full."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise NodeFull("This node's disk is full; the unfinished download is not used.") from None
        raise


@contextlib.contextmanager
def _writable(folder: Path) -> Iterator[None]:
    """Allow replacing files of a read-only folder, for processes that are not root."""
    folder.chmod(0o755)
    try:
        yield
    finally:
        folder.chmod(0o555)


def _id(digest: str) -> str:
    id = digest.removeprefix("sha256:")
    if len(id) != 64 or not set(id) <= set("0123456789abcdef"):
        raise ValueError(f"not a digest: {digest!r}")
    return id


def _read_manifest(path: Path) -> Iterator[ManifestEntry]:
    with open(path, "rb") as file:
        for line in file:
            yield manifest.decode(line)


def _fsync(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
