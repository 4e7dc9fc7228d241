"""The objects themselves: files in 256 folders, appearing whole by renaming, each with its row in the ledger."""

import errno
import fcntl
import hashlib
import logging
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from datasets.scs.config import Bucket, Config
from datasets.scs.object_index import Condition, Full, Ledger, Row, TooLarge, Unmet, is_damage, name_of

__all__ = ["BadDigest", "Cut", "Full", "Object", "Store", "TooLarge", "Unmet", "etag_of", "http_date"]

logger = logging.getLogger(__name__)
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_CHUNK = 1 << 20
#: Bytes that the ledger needs at a start.
_ROOM = 2 << 20
#: Entries kept in memory so that a read costs no query; then all are forgotten at once.
#: Longer targets are not remembered: what is remembered stays below some 60 MB.
_HOT, _SHORT = 65_536, 512


class Cut(Exception):
    """The body ended before its announced length."""


class BadDigest(Exception):
    """The body is not what its announced digest says."""


@dataclass(frozen=True, slots=True)
class Object:
    """What the hot path needs of an object, ready made."""

    name: bytes
    path: str
    size: int
    etag: bytes
    modified: int
    bucket: Bucket
    #: The head of a whole answer, up to where a Date belongs.
    head: bytes


class Store:
    """A folder of objects. Any number of processes may open the same one, with the same configuration."""

    def __init__(self, config: Config, *, clock: Callable[[], float] = time.time) -> None:
        self.config, self._clock = config, clock
        self.folder = config.directory.resolve()
        self.process = secrets.token_hex(6)
        self._hot: dict[bytes, Object] = {}
        self._used: dict[bytes, float] = {}
        for part in ("temp", "processes", *(f"{number:02x}" for number in range(256))):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        if self.folder.stat().st_uid == os.geteuid():
            self.folder.chmod(0o700)  # a volume's own root is the kubelet's, and seen by this pod alone
        with open(self.folder / "gate", "w") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)  # one process opens at a time, so that the first knows that it is
            self._alive = open(self.folder / "alive", "w")  # held until close()
            alone = _lock(self._alive.fileno())
            self._mark = open(self.folder / "processes" / self.process, "w")  # held until close()
            fcntl.flock(self._mark, fcntl.LOCK_EX)
            if alone:
                self._make_room()
            self.ledger = self._put_in_order() if alone else self._open()
            fcntl.flock(self._alive, fcntl.LOCK_SH)

    def close(self) -> None:
        """Write down what is still in memory, and let go of the folder."""
        with suppress(sqlite3.DatabaseError):  # a full disk, or a damaged ledger, keeps nobody from ending
            self.note(self.taken(), {})
        self.ledger.close()
        (self.folder / "processes" / self.process).unlink(missing_ok=True)
        self._mark.close()
        self._alive.close()

    # -- reading

    def find(self, bucket: Bucket, key: bytes, target: bytes) -> Object | None:
        """Return an object; ``target``, the request's, is what it is remembered by."""
        found = self._hot.get(target)
        if found is not None:
            return found
        row = self.ledger.look(name_of(bucket.name, key))
        if row is None:
            return None
        if len(self._hot) >= _HOT:
            self._hot.clear()
        found = _object(row, bucket, f"{self.folder}/{row.file}")
        if len(target) <= _SHORT:
            self._hot[target] = found
        return found

    def remembered(self, target: bytes) -> Object | None:
        """Return an object that was found lately."""
        return self._hot.get(target)

    def current(self, found: Object, key: bytes, target: bytes) -> Object | None:
        """Return an object if its file is still there, else what has taken its place: for answers that open no file."""
        if os.access(found.path, os.F_OK):
            return found
        self.lost(found, target, "its file is gone")
        return self.find(found.bucket, key, target)

    def lost(self, found: Object, target: bytes, why: str) -> None:
        """Take note that a file is not what was remembered: replaced by now, or else damaged, and then drop its row."""
        self._hot.pop(target, None)
        row = self.ledger.look(found.name)
        if row is not None and f"{self.folder}/{row.file}" == found.path:
            self.damaged(row, why)

    def touch(self, found: Object, now: float) -> None:
        """Remember that an object was used; written down by `note`, much later."""
        self._used[found.name] = now

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
    ) -> tuple[Object, int]:
        """Store an object; return it, and how many others had to go.

        ``body`` is called once there is room. Raises Full, TooLarge, Unmet, Cut or BadDigest, and then nothing has
        changed but for what had to go.
        """
        name = name_of(bucket.name, key)
        hexadecimal = name.hex()
        file = f"{hexadecimal[:2]}/{hexadecimal[2:]}.{secrets.token_hex(6)}"
        temp, final = self.folder / "temp" / file.replace("/", ""), self.folder / file
        try:
            gone = self.ledger.reserve(bucket, name, file, size, self._clock(), self._lacking)
        except sqlite3.OperationalError as error:
            raise Full(f"the ledger cannot be written: {error}") from error
        try:
            self._unlink(gone)
            found = self._write(temp, size, body())
            if digest is not None and digest != found:
                raise BadDigest
            os.rename(temp, final)
            if self.config.fsync:
                _sync_folder(final.parent)
            row = Row(name, file, size, found, self._clock())
            old = self.ledger.keep(bucket, key, row, condition)
        except BaseException as error:
            for path in (temp, final):
                path.unlink(missing_ok=True)
            self.ledger.forget(file)
            if (isinstance(error, OSError) and error.errno in _NO_ROOM) or isinstance(error, sqlite3.OperationalError):
                raise Full("the disk is full") from error
            raise
        if old is not None:
            self._unlink([old])
        return _object(row, bucket, str(final)), len(gone)

    def _write(self, temp: Path, size: int, body: Iterable[bytes | memoryview]) -> bytes:
        hasher = hashlib.sha256()
        came = 0
        descriptor = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            for chunk in body:
                came += len(chunk)
                if came > size:
                    raise Cut
                hasher.update(chunk)
                rest = memoryview(chunk)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
            if came != size:
                raise Cut
            if self.config.fsync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return hasher.digest()

    def _lacking(self, size: int, coming: Iterable[tuple[str, int]]) -> int:
        """Return the bytes that the disk is short of, beyond what must stay free; ``coming``: files, and their bytes.

        What is announced has no place on the disk yet, as far as it has not come.
        """
        disk = os.statvfs(self.folder)
        keep = self.config.free
        if keep is None:
            keep = min(1 << 30, disk.f_blocks * disk.f_frsize // 64)
        announced = sum(max(0, each - self._came(file)) for file, each in coming)
        return max(0, size + announced + keep - disk.f_bavail * disk.f_frsize)

    def _came(self, file: str) -> int:
        """Return the bytes of the disk that an announced file has by now."""
        for path in (self.folder / "temp" / file.replace("/", ""), self.folder / file):
            with suppress(OSError):
                return os.stat(path).st_blocks * 512
        return 0

    def _unlink(self, files: Iterable[str]) -> None:
        for file in files:
            (self.folder / file).unlink(missing_ok=True)

    # -- keeping in order

    def taken(self) -> dict[bytes, float]:
        """Return what was used since the last time; asked by whoever calls `touch`, in the same thread."""
        used, self._used = self._used, {}
        return used

    def note(self, used: dict[bytes, float], counted: dict[tuple[str, str], float]) -> None:
        """Write down what was used and counted; settle what a full disk left open, and what the dead did."""
        self.ledger.settle()
        self.ledger.note(used, counted)
        for stranger in self.ledger.strangers():
            self._bury(stranger)

    def _bury(self, process: str) -> None:
        mark = self.folder / "processes" / process
        try:
            with open(mark) as held:
                if not _lock(held.fileno()):
                    return
        except FileNotFoundError:
            logger.warning("process %s left no mark", process)
        for file in self.ledger.undo(process):
            (self.folder / "temp" / file.replace("/", "")).unlink(missing_ok=True)
            # what it made an object of is no intent any more, so this is nobody's
            (self.folder / file).unlink(missing_ok=True)
        mark.unlink(missing_ok=True)

    def _make_room(self) -> None:
        """Have the ledger find some room on a full disk, at the cost of any objects: it could not be opened else."""
        for rest in (self.folder / "temp").iterdir():
            rest.unlink()
        for file, _ in self.files():
            disk = os.statvfs(self.folder)
            if disk.f_bavail * disk.f_frsize >= _ROOM:
                break
            (self.folder / file).unlink()  # its row goes when the ledger is put in order

    def _open(self) -> Ledger:
        return Ledger(self.folder / "ledger.db", self.config, self.process)

    def _put_in_order(self) -> Ledger:
        """Open the ledger and make it agree with the files; a damaged one goes, and all it told of: this is a cache."""
        try:
            return self._recovered(self._open())
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            logger.error("the ledger is damaged (%s): the cache begins anew", error)
        for end in ("", "-wal", "-shm"):
            (self.folder / f"ledger.db{end}").unlink(missing_ok=True)
        return self._recovered(self._open())

    def _recovered(self, ledger: Ledger) -> Ledger:
        try:
            ledger.check()
            orphans = list(ledger.reconcile(self.files))
        except BaseException:
            ledger.close()
            raise
        for mark in (self.folder / "processes").iterdir():
            if mark.name != self.process:
                mark.unlink()
        self._unlink(orphans)
        if orphans:
            logger.warning("%d files without a row were deleted", len(orphans))
        return ledger

    def files(self) -> Iterator[tuple[str, int]]:
        """Yield the path of every object's file, below the folder, and its size."""
        for number in range(256):
            with os.scandir(self.folder / f"{number:02x}") as entries:
                for entry in entries:
                    yield f"{number:02x}/{entry.name}", entry.stat(follow_symlinks=False).st_size

    def damaged(self, row: Row, why: str) -> None:
        """Take an object out that is not what it was; whoever wants it fetches it from its origin again."""
        logger.error("object %s is damaged (%s) and was dropped", row.file, why)
        self.ledger.drop(row.name, row.file)
        self._unlink([row.file])

    def verify(self, stop: threading.Event, *, rate: int = 0, start: bytes = b"") -> Iterator[bool]:
        """Read every object, from ``start`` on and round, and compare its digest; yield for each whether it was sound.

        ``rate`` in bytes a second; 0: as fast as can be.
        """
        at = time.monotonic()
        for row in self._round(start):
            hasher = hashlib.sha256()
            why = "its digest is another"
            try:
                with open(self.folder / row.file, "rb", buffering=0) as file:
                    while chunk := file.read(_CHUNK):
                        hasher.update(chunk)
                        at = max(at, time.monotonic() - 1.0) + (len(chunk) / rate if rate else 0.0)
                        if stop.wait(max(0.0, at - time.monotonic())):
                            return
            except FileNotFoundError:
                continue  # replaced or evicted meanwhile; or lost, which the next reader finds
            except OSError as error:
                if not is_unreadable(error):
                    raise
                why = f"it cannot be read: {error.strerror}"
            if hasher.digest() == row.digest:
                yield True
            elif self.ledger.look(row.name) == row:
                self.damaged(row, why)
                yield False

    def _round(self, start: bytes) -> Iterator[Row]:
        """Yield all rows in order of name, beginning behind ``start``: who is stopped often sees no end else."""
        name = start
        while rows := self.ledger.after(name, 100):
            yield from rows
            name = rows[-1].name
        name = b""
        while rows := self.ledger.after(name, 100):
            for row in rows:
                if row.name > start:
                    return
                yield row
            name = rows[-1].name


def is_unreadable(error: OSError) -> bool:
    """Tell whether a file cannot be opened or read because of what it is, and not because this process has too much."""
    return error.errno not in {errno.EMFILE, errno.ENFILE, errno.ENOMEM}


def scrubbing(folder: Path) -> int | None:
    """Return a descriptor that makes this process the one that scrubs, None while another is."""
    descriptor = os.open(folder / "scrub", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if _lock(descriptor):
        return descriptor
    os.close(descriptor)
    return None


def _object(row: Row, bucket: Bucket, path: str) -> Object:
    etag = etag_of(row.digest)
    modified = int(row.added)
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\nETag: %b\r\n"
        b"Last-Modified: %b\r\nAccept-Ranges: bytes\r\n" % (row.size, etag, http_date(modified))
    )
    return Object(row.name, path, row.size, etag, modified, bucket, head)


def etag_of(digest: bytes) -> bytes:
    """Return the entity tag of a content."""
    return b'"' + digest.hex().encode() + b'"'


def http_date(seconds: float) -> bytes:
    """Return a moment as HTTP writes it."""
    return time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(seconds)).encode()


def _lock(descriptor: int) -> bool:
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
