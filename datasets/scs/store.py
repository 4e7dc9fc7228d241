"""Object store: a file per object in 256 folders, written aside and renamed, with a row in the object index."""

import errno
import fcntl
import hashlib
import logging
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from common.full_disks import is_disk_full
from common.group_commit import is_corruption
from datasets.scs.block_checksums import BlockHasher
from datasets.scs.config import Bucket, Config
from datasets.scs.object_index import Condition, Full, ObjectIndex, ObjectTooLarge, Row, Unmet, name_of

__all__ = ["BadDigest", "Cut", "Full", "ObjectTooLarge", "Store", "StoredObject", "Unmet", "etag_of", "http_date"]

logger = logging.getLogger(__name__)
#: Free bytes that the object index needs to open.
_INDEX_ROOM = 2 << 20
#: Entries cached in memory so that a read costs no query; a full cache is cleared.
#: Objects with longer targets are not cached, which keeps the cache below some 60 MB, and as many bytes of checksums.
_CACHE_SIZE, _MAX_CACHED_TARGET, _MAX_CACHED_CHECKSUMS = 65_536, 512, 64 << 20


class Cut(Exception):
    """The connection failed or the body ended before its Content-Length."""


class BadDigest(Exception):
    """The body does not match its Content-Digest."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """What a read needs of an object, precomputed; ``modified`` in seconds since 1970."""

    name: bytes
    path: str
    size: int
    etag: bytes
    modified: int
    bucket: Bucket
    #: Head of a 200 response, up to the Date header.
    head: bytes
    #: Of its blocks; absent if an earlier version has stored it.
    checksums: bytes


class Store:
    """Folder of objects. Any number of processes may open the same folder, with the same configuration."""

    def __init__(self, config: Config, *, clock: Callable[[], float] = time.time) -> None:
        self.config, self._clock = config, clock
        self.folder = config.directory.resolve()
        self.process = secrets.token_hex(6)
        self._cache: dict[bytes, StoredObject] = {}
        self._cached_checksums = 0
        self._used: dict[bytes, float] = {}
        for part in ("temp", "processes", *(f"{number:02x}" for number in range(256))):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        if self.folder.stat().st_uid == os.geteuid():
            self.folder.chmod(0o700)  # the root of a volume belongs to the kubelet, and only this pod sees it
        with open(self.folder / "gate", "w") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)  # processes open one at a time, so that the first knows that it is alone
            self._alive_lock = open(self.folder / "alive", "w")  # locked until close()
            alone = try_lock(self._alive_lock.fileno())
            self._process_lock = open(self.folder / "processes" / self.process, "w")  # locked until close()
            fcntl.flock(self._process_lock, fcntl.LOCK_EX)
            if alone:
                self._free_disk_for_index()
            self.index = self._open_and_recover() if alone else self._open_index()
            fcntl.flock(self._alive_lock, fcntl.LOCK_SH)

    def close(self) -> None:
        """Record the uses that are still in memory, and release the folder."""
        with suppress(sqlite3.DatabaseError):  # a full disk or a corrupt index must not prevent the exit
            self.record(self.take_uses(), {})
        self.index.close()
        (self.folder / "processes" / self.process).unlink(missing_ok=True)
        self._process_lock.close()
        self._alive_lock.close()

    # -- reading

    def find(self, bucket: Bucket, key: bytes, target: bytes) -> StoredObject | None:
        """Return an object, None if absent; ``target``, the request's target, is the key in the cache."""
        stored = self._cache.get(target)
        if stored is not None:
            return stored
        row = self.index.get_row(name_of(bucket.name, key))
        if row is None:
            return None
        stored = _object(row, bucket, f"{self.folder}/{row.file}")
        self.remember(target, stored)
        return stored

    def remember(self, target: bytes, stored: StoredObject) -> None:
        """Cache an object that the index has."""
        if len(self._cache) >= _CACHE_SIZE or self._cached_checksums > _MAX_CACHED_CHECKSUMS:
            self._cache.clear()
            self._cached_checksums = 0
        if len(target) <= _MAX_CACHED_TARGET:
            self._cache[target] = stored
            self._cached_checksums += len(stored.checksums)

    def cached(self, target: bytes) -> StoredObject | None:
        """Return an object from the cache."""
        return self._cache.get(target)

    def revalidate(self, stored: StoredObject, key: bytes, target: bytes) -> StoredObject | None:
        """Return the object if its file still exists, else its replacement, if any: for responses that open no file."""
        if os.access(stored.path, os.F_OK):
            return stored
        self.mark_missing(stored, target, "its file is missing")
        return self.find(stored.bucket, key, target)

    def mark_missing(self, stored: StoredObject, target: bytes, reason: str) -> bool:
        """Drop a cached entry whose file failed; if the index still refers to that file, delete the damaged object.

        Return whether it was deleted.
        """
        self._cache.pop(target, None)
        return self.drop(stored, reason)

    def drop(self, stored: StoredObject, reason: str) -> bool:
        """Delete a damaged object, if the index still refers to its file; return whether it does."""
        row = self.index.get_row(stored.name)
        if row is None or f"{self.folder}/{row.file}" != stored.path:
            return False
        self.drop_damaged(row, reason)
        return True

    def touch(self, stored: StoredObject, now: float) -> None:
        """Remember in memory that an object was used; `record` writes it later."""
        self._used[stored.name] = now

    # -- writing

    def put(
        self,
        bucket: Bucket,
        key: bytes,
        size: int,
        body: Callable[[], Iterable[bytes | memoryview]],
        *,
        digest: bytes | None = None,
        condition: Condition | None = None,
    ) -> tuple[StoredObject, int]:
        """Store an object; return it, and the number of evicted objects.

        ``body`` is called once there is room. Raises Full, ObjectTooLarge, Unmet, Cut or BadDigest; then nothing has
        changed except for the evictions.
        """
        name = name_of(bucket.name, key)
        hexadecimal = name.hex()
        file = f"{hexadecimal[:2]}/{hexadecimal[2:]}.{secrets.token_hex(6)}"
        temp, final = self.folder / "temp" / file.replace("/", ""), self.folder / file
        try:
            evicted = self.index.reserve(bucket, name, file, size, self._clock(), self._disk_shortfall)
        except sqlite3.OperationalError as error:
            raise Full(f"the object index cannot be written: {error}") from error
        try:
            self._unlink(evicted)
            computed, checksums = self._write(temp, size, body())
            if digest is not None and digest != computed:
                raise BadDigest
            os.rename(temp, final)
            if self.config.fsync:
                _sync_folder(final.parent)
            row = Row(name, file, size, computed, self._clock(), checksums)
            old = self.index.commit_object(bucket, key, row, condition)
        except BaseException as error:
            for path in (temp, final):
                path.unlink(missing_ok=True)
            self.index.cancel_intent(file)
            if is_disk_full(error) or isinstance(error, sqlite3.OperationalError):
                raise Full("the disk is full") from error
            raise
        if old is not None:
            self._unlink([old])
        return _object(row, bucket, str(final)), len(evicted)

    def _write(self, temp: Path, size: int, body: Iterable[bytes | memoryview]) -> tuple[bytes, bytes]:
        """Write a file; return the SHA-256 of the body and the checksums of its blocks."""
        hasher, blocks = hashlib.sha256(), BlockHasher()
        received = 0
        descriptor = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            for chunk in body:
                received += len(chunk)
                if received > size:
                    raise Cut
                hasher.update(chunk)
                blocks.update(chunk)
                rest = memoryview(chunk)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
            if received != size:
                raise Cut
            if self.config.fsync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return hasher.digest(), blocks.checksums()

    def _disk_shortfall(self, size: int, intents: Iterable[tuple[str, int]]) -> int:
        """Return the bytes missing on the disk so that KeepFree stays free; ``intents``: files and their bytes.

        The part of a pending body that is not written yet is not in the file system's count, so it is added.
        """
        disk = os.statvfs(self.folder)
        keep = self.config.free
        if keep is None:
            keep = min(1 << 30, disk.f_blocks * disk.f_frsize // 64)
        announced = sum(max(0, each - self._bytes_on_disk(file)) for file, each in intents)
        return max(0, size + announced + keep - disk.f_bavail * disk.f_frsize)

    def _bytes_on_disk(self, file: str) -> int:
        """Return the bytes of disk space that the file of an intent has by now."""
        for path in (self.folder / "temp" / file.replace("/", ""), self.folder / file):
            with suppress(OSError):
                return os.stat(path).st_blocks * 512
        return 0

    def _unlink(self, files: Iterable[str]) -> None:
        for file in files:
            (self.folder / file).unlink(missing_ok=True)

    # -- maintenance

    def take_uses(self) -> dict[bytes, float]:
        """Return and clear the recorded uses (object name: time); call it on the thread that calls `touch`."""
        used, self._used = self._used, {}
        return used

    def record(self, used: dict[bytes, float], metric_values: dict[tuple[str, str], float]) -> None:
        """Write uses and counters; retry writes that a full disk deferred; undo the intents of dead processes."""
        self.index.retry_deferred()
        self.index.record(used, metric_values)
        for process in self.index.other_processes():
            self._undo_dead_process(process)

    def _undo_dead_process(self, process: str) -> None:
        lock_file = self.folder / "processes" / process
        try:
            with open(lock_file) as lock:
                if not try_lock(lock.fileno()):
                    return
        except FileNotFoundError:
            logger.warning("process %s left no lock file in processes/", process)
        for file in self.index.undo_intents(process):
            (self.folder / "temp" / file.replace("/", "")).unlink(missing_ok=True)
            # an object that it committed has no intent any more, so no row refers to this file
            (self.folder / file).unlink(missing_ok=True)
        lock_file.unlink(missing_ok=True)

    def _free_disk_for_index(self) -> None:
        """Delete objects until a full disk has the space without which the object index cannot be opened."""
        for rest in (self.folder / "temp").iterdir():
            rest.unlink()
        for file, _ in self.files():
            disk = os.statvfs(self.folder)
            if disk.f_bavail * disk.f_frsize >= _INDEX_ROOM:
                break
            (self.folder / file).unlink()  # its row is deleted when rows and files are reconciled

    def _open_index(self) -> ObjectIndex:
        return ObjectIndex(self.folder / "ledger.db", self.config, self.process)

    def _open_and_recover(self) -> ObjectIndex:
        """Open the index and reconcile it with the files; an empty index replaces a corrupt one: this is a cache."""
        try:
            return self._reconcile(self._open_index())
        except sqlite3.DatabaseError as error:
            if not is_corruption(error):
                raise
            logger.error("object index ledger.db is corrupt (%s): starting with an empty cache", error)
        for end in ("", "-wal", "-shm"):
            (self.folder / f"ledger.db{end}").unlink(missing_ok=True)
        return self._reconcile(self._open_index())

    def _reconcile(self, index: ObjectIndex) -> ObjectIndex:
        try:
            index.check_integrity()
            orphans = list(index.reconcile(self.files))
        except BaseException:
            index.close()
            raise
        for lock_file in (self.folder / "processes").iterdir():
            if lock_file.name != self.process:
                lock_file.unlink()
        self._unlink(orphans)
        if orphans:
            logger.warning("deleted %d files without a row in the object index", len(orphans))
        return index

    def files(self) -> Iterator[tuple[str, int]]:
        """Yield every object's file, relative to the folder, and its size."""
        for number in range(256):
            with os.scandir(self.folder / f"{number:02x}") as entries:
                for entry in entries:
                    yield f"{number:02x}/{entry.name}", entry.stat(follow_symlinks=False).st_size

    def drop_damaged(self, row: Row, reason: str) -> None:
        """Delete a damaged object; the next client that misses it fetches it from its origin."""
        logger.error("object %s is damaged (%s) and was dropped", row.file, reason)
        self.index.delete(row.name, row.file)
        self._unlink([row.file])


def is_unreadable(error: OSError) -> bool:
    """Tell whether the file itself cannot be opened or read, as opposed to a lack of descriptors or memory."""
    return error.errno not in {errno.EMFILE, errno.ENFILE, errno.ENOMEM}


def _object(row: Row, bucket: Bucket, path: str) -> StoredObject:
    etag = etag_of(row.digest)
    modified = int(row.added)
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\nETag: %b\r\n"
        b"Last-Modified: %b\r\nAccept-Ranges: bytes\r\n" % (row.size, etag, http_date(modified))
    )
    return StoredObject(row.name, path, row.size, etag, modified, bucket, head, row.checksums)


def etag_of(digest: bytes) -> bytes:
    """Return the entity tag of a SHA-256 digest."""
    return b'"' + digest.hex().encode() + b'"'


def http_date(seconds: float) -> bytes:
    """Return a time, in seconds since 1970, in the format of HTTP."""
    return time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(seconds)).encode()


def try_lock(descriptor: int) -> bool:
    """Lock a file for this process alone; return whether that was possible at once."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
