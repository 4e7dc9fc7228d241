"""Node cache: download each dataset and model to this node once, and keep it while a simulation pins it.

The threads and processes of a node coordinate by locks and files alone, so that any of them may die at any moment.
"""

import contextlib
import hashlib
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from common.errors import (
    Corrupt,
    NodeFull,
)
from datasets.download.downloader import (
    THREADS,
    DownloadCounts,
    Downloader,
    DownloadProgress,
    RetryLimits,
)
from datasets.download.partial_tree import PartialTree, is_intact
from datasets.nodecache.disk_cache import DEFAULT_POLICY, CacheUse, DiskCache
from datasets.nodecache.entry_lock import EntryLock, ProgressReporter, disk_full_as_node_full
from datasets.nodecache.locks import locked
from datasets.objectstore.base import ObjectStore
from datasets.objectstore.connections import Connection
from datasets.scs_client.client import CacheClient
from datasets.versions import manifest
from datasets.versions.manifest import ManifestEntry

__all__ = ["DownloadProgress", "NodeCache"]

logger = logging.getLogger(__name__)

#: Source of the files of a derived tree, in its manifest.
DERIVED = "derived"
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

    def object_path(self, digest: str) -> Path:
        """Return the path of an object, which exists if the object is complete on this node."""
        return self._disk.object(_id(digest))

    def use(self) -> CacheUse | None:
        """Return what the cache holds, and its counts of hits, misses and evictions; None if it was never used."""
        return self._disk.use()

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Return the number and the bytes of what is cached, by kind: datasets, models, and installed environments."""
        kinds = {"datasets": (0, 0), "models": (0, 0), "environments": (0, 0)}
        for id, is_tree, size in self._disk.sizes():
            kind = ("environments" if self._is_derived(id) else "datasets") if is_tree else "models"
            entries, total = kinds[kind]
            kinds[kind] = entries + 1, total + size
        return kinds

    def _is_derived(self, id: str) -> bool:
        """Return whether a tree was made on this node; if not, it was downloaded."""
        with contextlib.suppress(FileNotFoundError):
            first = next(_read_manifest(self._disk.manifest(id)), None)
            return first is not None and first.source == DERIVED
        return False

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
            self._disk.count(hit=True)
            return path
        with EntryLock(self._disk, id, ignore_progress):
            self._disk.count(hit=(present := path.exists()))  # another process may have downloaded it meanwhile
            if not present:
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
        return self._complete(
            digest, lambda id: self._download_tree(id, digest, entries, on_progress), holder, on_progress
        )

    def derived(
        self,
        digest: str,
        make: Callable[[Path, Callable[[DownloadProgress], None]], None],
        *,
        size: int,
        holder: str,
        on_progress: Callable[[DownloadProgress], None] = ignore_progress,
    ) -> Path:
        """Return a read-only folder that ``make`` fills once on this node; pinned for ``holder`` until released.

        ``digest`` names the inputs of ``make``, which has the same result wherever it is called with them. ``make``
        gets an empty folder, and a callback for its progress. ``size``: bytes to reserve while it works, if known.
        """
        return self._complete(digest, lambda id: self._derive(id, make, size, on_progress), holder, on_progress)

    def _complete(
        self,
        digest: str,
        build: Callable[[str], Path],
        holder: str,
        on_progress: Callable[[DownloadProgress], None],
    ) -> Path:
        """Return a complete tree, pinned for ``holder``; ``build`` makes it if no other process has."""
        self.hold(digest, holder)
        if (path := self.ready(digest)) is not None:
            self._disk.count(hit=True)
            return path
        id = _id(digest)
        with EntryLock(self._disk, id, on_progress):
            path = self.ready(digest)
            self._disk.count(hit=path is not None)  # another process may have made it meanwhile
            if path is None:
                path = build(id)
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

    def _download_object(self, id: str, key: str, digest: str) -> None:
        entry = ManifestEntry(id, self._store.size(key), digest, f"store:{key}")
        partial = PartialTree(self._disk.partial(id, "object"))
        self._disk.reserve(id, entry.size)
        try:
            with disk_full_as_node_full():
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
        with disk_full_as_node_full():
            files, size = self._copy_manifest(id, digest, entries())
            self._disk.reserve(id, size)
        try:
            with disk_full_as_node_full():
                partial = PartialTree(folder)
                counts = DownloadCounts(files, size)
                reporter = ProgressReporter(self._disk.partial(id, "progress"), on_progress)
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

    def _derive(
        self,
        id: str,
        make: Callable[[Path, Callable[[DownloadProgress], None]], None],
        size: int,
        on_progress: Callable[[DownloadProgress], None],
    ) -> Path:
        self._disk.resume_partial(id)
        folder = self._disk.partial(id, "tree")
        PartialTree(folder).discard()  # of a process that was killed
        self._disk.reserve(id, size)
        partial = PartialTree(folder)
        try:
            with disk_full_as_node_full():
                make(folder, ProgressReporter(self._disk.partial(id, "progress"), on_progress))
                manifest_path = self._disk.partial(id, "manifest")
                files, written = _write_manifest(folder, manifest_path)
                self._disk.reserve(id, written)
                partial.make_read_only()
                return self._disk.publish(id, folder, manifest_path, files, written)
        finally:
            partial.discard()
            self._disk.release_reservation(id)

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
            logger.warning("node cache: tree %s is damaged in %d files, first %r", digest, len(names), names[0])
            self._disk.invalidate(id)
            if damaged[0].source == DERIVED:
                return names  # it is made again when it is needed
            self._replace(id, damaged)
            self._disk.write_marker(id, marker)
        return [entry.path for entry in damaged]

    def _replace(self, id: str, entries: list[ManifestEntry]) -> None:
        """Replace damaged files by downloaded ones; a process that has a damaged file open keeps the old inode."""
        tree = self._disk.tree(id)
        partial = PartialTree(self._disk.partial(id, "mended"))
        try:
            counts = DownloadCounts(len(entries), sum(entry.size for entry in entries))
            with disk_full_as_node_full():
                self._downloader.fetch(entries, partial, counts, ignore_progress)
            for entry in entries:
                target = tree / entry.path
                with _writable(target.parent):
                    os.replace(partial.path(entry), target)
        finally:
            partial.discard()


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


def _write_manifest(folder: Path, path: Path) -> tuple[int, int]:
    """Write the manifest of a folder's files, for later verification; return their number and bytes."""
    files = size = 0
    with open(path, "wb") as file:
        for above, _, names in sorted(os.walk(folder)):
            for name in sorted(names):
                member = Path(above, name)
                if member.is_symlink():  # it has no bytes of its own, and packages leave some that lead nowhere
                    continue
                with open(member, "rb") as content:
                    digest = "sha256:" + hashlib.file_digest(content, "sha256").hexdigest()
                entry = ManifestEntry(str(member.relative_to(folder)), member.stat().st_size, digest, DERIVED)
                file.write(manifest.encode(entry))
                files, size = files + 1, size + entry.size
    return files, size


def _read_manifest(path: Path) -> Iterator[ManifestEntry]:
    with open(path, "rb") as file:
        for line in file:
            yield manifest.decode(line)


def _fsync(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
