"""Node cache on disk: entries, completeness markers, pins, reservations, eviction."""

import contextlib
import ctypes
import functools
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from common.ages import is_old_enough
from common.errors import LargerThanCache, NodeFull
from datasets.download.partial_tree import PartialTree
from datasets.eviction.decision import Candidate, Group, Newcomer, decide
from datasets.nodecache.counts import Counts
from datasets.nodecache.locks import locked, try_locked
from datasets.nodecache.pins import Pins
from datasets.nodecache.uses import Uses

#: Eviction policy, unless the operator chooses another.
DEFAULT_POLICY = "lru"
#: Name of the node cache's only group: its quota is the capacity.
_GROUP = "node"
#: Seconds for which the leftovers of a killed process are kept, so that the next process can resume from them.
PARTIAL_TTL = 3600.0
#: Bytes of the disk that are left free for other programs.
DISK_RESERVE = 16 << 20
#: Suffix of a reservation's name among the cache's items.
_RESERVATION = ".new"


@dataclass(frozen=True, slots=True)
class Marker:
    """Completeness marker of a tree. ``boot``: id of the boot it was written in; "" once the tree is synced to disk.

    An unsynced tree of an earlier boot may have been lost with the power; it counts as partial and is read again
    once. So a download does not wait for an fsync.
    """

    files: int
    bytes: int
    boot: str


@dataclass(frozen=True, slots=True)
class Entry:
    """What takes room in the cache: a tree, an object or a reservation; ``added`` in seconds since 1970."""

    id: str
    size: int
    pinned: bool = True
    added: float = 0.0
    key: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheUse:
    """What a cache holds, in bytes, and its counts since its folder was created. ``pinned``: what cannot be evicted."""

    entries: int
    bytes: int
    pinned: int
    capacity: int
    hits: int
    misses: int
    evictions: int


@functools.cache
def this_boot() -> str:
    """Return the kernel's id of the current boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class DiskCache:
    """The folders of a node's cache. ``id`` is a SHA-256 digest in hex and names either a tree or an object."""

    def __init__(
        self,
        folder: Path,
        capacity: int | None,
        policy: str = DEFAULT_POLICY,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = folder
        self.capacity = capacity
        self._clock = clock
        self._trees = folder / "trees"
        self._objects = folder / "objects"
        self._partial = folder / "partial"
        self._checked = folder / "checked"
        self._pins = Pins(folder / "pins")
        self._uses = Uses(folder / "uses", policy)
        self._counts = Counts(folder / "counts.json")

    # -- paths

    def tree(self, id: str) -> Path:
        """Return the folder of a complete tree."""
        return self._trees / id

    def manifest(self, id: str) -> Path:
        """Return the manifest of a complete tree."""
        return self._trees / f"{id}.manifest"

    def object(self, id: str) -> Path:
        """Return the file of a complete object."""
        return self._objects / id

    def partial(self, id: str, kind: str) -> Path:
        """Return the path of an incomplete entry or its metadata; only the holder of the entry's lock may use it."""
        return self._partial / f"{id}.{kind}"

    def lock(self, id: str) -> Path:
        """Return the lock file for building or repairing an entry. Never removed: recreating it makes a second lock."""
        return self.folder / "locks" / id

    @property
    def _lock(self) -> Path:
        return self.folder / "locks" / "node"

    def marker(self, id: str) -> Marker | None:
        """Return a tree's marker, whether the tree is usable or not; None if it has no marker."""
        try:
            return Marker(**json.loads((self._trees / f"{id}.json").read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def is_complete(self, id: str) -> bool:
        """Tell whether a tree is complete and may be used."""
        marker = self.marker(id)
        return marker is not None and marker.boot in {"", this_boot()} and self.tree(id).is_dir()

    # -- pins

    def pin(self, id: str, holder: str, *, use: bool = True) -> None:
        """Protect an entry, present or not yet, from eviction for a holder; ``use``: it counts as used."""
        with locked(self._lock):
            self._pins.add(id, holder)
            if use:
                self._record_use(id)

    def record_added(self, id: str) -> None:
        """Record that an entry is new, as of now."""
        with locked(self._lock):
            self._uses.forget(id)
            self._record_use(id)

    def touch(self, id: str) -> None:
        """Record a use of an entry."""
        with locked(self._lock):
            self._record_use(id)

    def _record_use(self, id: str) -> None:
        if (present := self._present(id)) is not None:
            self._uses.record(id, present[0], self._clock())

    def _present(self, id: str) -> tuple[int, float] | None:
        """Return an entry's bytes, and a time since which it has been here; None if it is absent."""
        with contextlib.suppress(FileNotFoundError):
            if (marker := self.marker(id)) is not None:
                return marker.bytes, (self._trees / f"{id}.json").stat().st_mtime
            stat = self.object(id).stat()
            return stat.st_size, stat.st_mtime
        return None

    def release(self, holder: str) -> None:
        """Remove all pins of a holder."""
        with locked(self._lock):
            self._pins.release(holder)

    def holders(self) -> set[str]:
        """Return all holders with at least one pin."""
        with locked(self._lock):
            return self._pins.holders()

    # -- use

    def count(self, *, hit: bool) -> None:
        """Count a request for an entry: ``hit``, or the entry has to be made."""
        with locked(self._lock):
            self._counts.add("hits" if hit else "misses")

    def use(self) -> CacheUse | None:
        """Return what the cache holds and its counts; None if its folder does not exist yet."""
        if not self.folder.is_dir():
            return None
        with locked(self._lock):
            entries, counts = list(self._entries()), self._counts.read()
            capacity = self._effective_capacity(entries)
        return CacheUse(
            entries=len(entries),
            bytes=sum(entry.size for entry in entries),
            pinned=sum(entry.size for entry in entries if entry.pinned),
            capacity=capacity,
            hits=counts["hits"],
            misses=counts["misses"],
            evictions=counts["evictions"],
        )

    def sizes(self) -> Iterator[tuple[str, bool, int]]:
        """Yield the id of each complete entry, whether it is a tree, and its bytes."""
        yield from ((id, True, marker.bytes) for id, marker in self._markers())
        for path in _list_folder(self._objects):
            with contextlib.suppress(FileNotFoundError):
                yield path.name, False, path.stat().st_size

    # -- publishing

    def publish(self, id: str, draft: Path, manifest: Path, files: int, size: int) -> Path:
        """Move a finished tree and its manifest into place; the marker is written last."""
        self._trees.mkdir(parents=True, exist_ok=True)
        target = self.tree(id)
        os.replace(manifest, self.manifest(id))
        draft.chmod(0o755)  # a user other than root can move only folders it may write
        os.rename(draft, target)
        target.chmod(0o555)
        self.record_check(id)
        self.write_marker(id, Marker(files, size, this_boot()))
        self.record_added(id)
        return target

    def write_marker(self, id: str, marker: Marker) -> None:
        """Write a marker atomically."""
        path = self._trees / f"{id}.json"
        draft = self._trees / f".{id}.{secrets.token_hex(4)}.json"
        draft.write_text(json.dumps(asdict(marker)))
        draft.rename(path)

    def invalidate(self, id: str) -> None:
        """Remove a tree's marker: new readers do not see it as complete; open files stay readable."""
        (self._trees / f"{id}.json").unlink(missing_ok=True)

    def resume_partial(self, id: str) -> None:
        """Move an incomplete tree (without a marker, or of an earlier boot) back to ``partial`` to resume from it."""
        draft = self.partial(id, "tree")
        if self.tree(id).is_dir() and not draft.exists():
            self.invalidate(id)
            self._partial.mkdir(parents=True, exist_ok=True)
            self.tree(id).chmod(0o700)  # a user other than root can move only folders it may write
            self.tree(id).rename(draft)
            PartialTree(draft).make_writable()

    # -- integrity checks

    def record_check(self, id: str) -> None:
        """Record that an entry's content is verified as of now."""
        path = self._checked / id
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def least_recently_checked(self, age: float) -> str | None:
        """Return the entry whose last check is oldest, or None if none is older than ``age`` seconds."""
        present = [id for id, _ in self._markers() if self.is_complete(id)]
        present += [path.name for path in _list_folder(self._objects)]
        checks = {path.name: _mtime(path) or 0.0 for path in _list_folder(self._checked)}
        oldest = min(present, key=lambda id: checks.get(id, 0.0), default=None)
        due = oldest is not None and is_old_enough(checks.get(oldest, 0.0), age, time.time())
        return oldest if due else None

    # -- reservations and eviction

    def reserve(self, id: str, size: int) -> None:
        """Reserve ``size`` bytes until ``release_reservation``, evicting entries as needed.

        Raise NodeFull if pinned entries leave too little room, LargerThanCache if no eviction could make enough.
        """
        if not self._reserve(id, size):
            PartialTree(self.partial(id, "tree")).discard()
            self._remove_leftovers(0.0)
            if not self._reserve(id, size):
                raise self._too_full(size)

    def release_reservation(self, id: str) -> None:
        """Release a reservation: the entry is complete, or was given up."""
        self.partial(id, "reserved").unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove old leftovers of dead processes, and sync to disk the trees of this boot that are not synced yet."""
        self._remove_leftovers(PARTIAL_TTL)
        unsynced = [id for id, marker in self._markers() if marker.boot == this_boot()]
        if unsynced and _sync_filesystem(self._trees):
            for id in unsynced:
                self._mark_synced(id)

    def _mark_synced(self, id: str) -> None:
        """Record that a tree is on disk, unless it is being repaired or was removed meanwhile."""
        with try_locked(self.lock(id)) as acquired, locked(self._lock):
            marker = self.marker(id)
            if acquired and marker is not None and marker.boot == this_boot():
                self.write_marker(id, Marker(marker.files, marker.bytes, ""))

    def _reserve(self, id: str, size: int) -> bool:
        trash: list[Path] = []
        with locked(self._lock):
            entries = [entry for entry in self._entries() if entry.id not in {id, f"{id}{_RESERVATION}"}]
            capacity = self._effective_capacity(entries)
            group = Group(self._uses.policy, sum(entry.size for entry in entries), capacity)
            newcomer = Newcomer(group=_GROUP, size=size, required=True)
            decision = decide({_GROUP: group}, _Evictable(entries), newcomer, capacity, self._clock())
            for victim in decision.victims.get(_GROUP, ()):
                if (path := self._move_to_trash(victim.id)) is not None:
                    trash.append(path)
            if trash:
                self._counts.add("evictions", len(trash))
            if decision.floors:
                self._uses.raise_floor(decision.floors[_GROUP])
            if decision.admitted:
                self._partial.mkdir(parents=True, exist_ok=True)
                self.partial(id, "reserved").write_text(str(size))
        for path in trash:  # the evicted entries' bytes are freed before the new entry's download starts
            _remove(path)
        return decision.admitted

    def _effective_capacity(self, entries: list[Entry]) -> int:
        """Return the total bytes that the cache may use: the configured capacity, or less if the disk holds less."""
        self.folder.mkdir(parents=True, exist_ok=True)
        disk = os.statvfs(self.folder)
        # The part of a reservation that is not downloaded yet takes no disk space so far.
        coming = sum(
            max(0, entry.size - self._downloaded_bytes(entry.id))
            for entry in entries
            if entry.id.endswith(_RESERVATION)
        )
        room = sum(entry.size for entry in entries) - coming + disk.f_bavail * disk.f_frsize - DISK_RESERVE
        return room if self.capacity is None else min(room, self.capacity)

    def _downloaded_bytes(self, name: str) -> int:
        """Return the bytes of a reserved entry that are on disk, as its download last reported; 0 if unknown."""
        try:
            return int(json.loads(self.partial(name.removesuffix(_RESERVATION), "progress").read_bytes())["bytes"])
        except (OSError, ValueError, TypeError, KeyError):
            return 0

    def _too_full(self, size: int) -> NodeFull:
        disk = os.statvfs(self.folder)
        largest = disk.f_blocks * disk.f_frsize - DISK_RESERVE
        if self.capacity is not None and size > self.capacity:
            return LargerThanCache(
                f"{size} bytes do not fit into this node's cache of {self.capacity} bytes; "
                "raise WINDTUNNEL_CACHE_CAPACITY."
            )
        if size > largest:
            return LargerThanCache(
                f"{size} bytes do not fit on this node's disk, whose cache can have {largest} bytes."
            )
        return NodeFull(
            f"There is no room for {size} bytes in this node's cache beside the data that running simulations pin: "
            "its disk is full, or WINDTUNNEL_CACHE_CAPACITY is too small. Try again when some simulations have ended."
        )

    def _entries(self) -> Iterator[Entry]:
        """Yield everything that takes room; skip entries that are finished, invalidated or removed meanwhile."""
        for id in [*(id for id, _ in self._markers()), *(path.name for path in _list_folder(self._objects))]:
            if (present := self._present(id)) is not None:
                size, since = present
                use = self._uses.get(id, size, since)
                yield Entry(id, size, pinned=self._pins.pinned(id), added=use.added, key=use.key)
        for path in _list_folder(self._partial):
            if path.suffix == ".reserved":
                with try_locked(self.lock(path.stem)) as abandoned, contextlib.suppress(FileNotFoundError):
                    if abandoned:
                        path.unlink(missing_ok=True)
                    else:
                        # the file is empty if its writer was killed
                        yield Entry(f"{path.stem}{_RESERVATION}", int(path.read_text() or 0))

    def _markers(self) -> Iterator[tuple[str, Marker]]:
        for path in _list_folder(self._trees):
            if path.suffix == ".json" and not path.name.startswith(".") and (marker := self.marker(path.stem)):
                yield path.stem, marker

    def _move_to_trash(self, id: str) -> Path | None:
        """Take an entry out of the cache at once by a rename; the caller removes the returned path."""
        self._partial.mkdir(parents=True, exist_ok=True)
        trash = self._partial / f"{id}.{secrets.token_hex(4)}.trash"
        (self._checked / id).unlink(missing_ok=True)
        self._uses.forget(id)
        try:
            if self.object(id).exists():
                return self.object(id).rename(trash)
            self.invalidate(id)
            self.manifest(id).unlink(missing_ok=True)
            self.tree(id).chmod(0o700)
            return self.tree(id).rename(trash)
        except FileNotFoundError:
            return None  # another process removed it

    def _remove_leftovers(self, age: float) -> None:
        """Remove trash, and incomplete entries that are not locked and were not changed for ``age`` seconds."""
        now = time.time()
        for path in _list_folder(self._partial):
            if path.suffix == ".trash":
                _remove(path)
                continue
            with try_locked(self.lock(path.name.split(".")[0])) as abandoned:
                if abandoned and is_old_enough(_mtime(path) or 0.0, age, now):
                    _remove(path)
        for path in _list_folder(self._trees):
            if path.is_dir() and self.marker(path.name) is None:
                with try_locked(self.lock(path.name)) as abandoned:
                    old = is_old_enough(_mtime(path) or 0.0, age, now)
                    if abandoned and old and self.marker(path.name) is None:
                        _remove(path)


class _Evictable:
    """The entries that are not pinned, as candidates for eviction."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = [entry for entry in entries if not entry.pinned]

    def by_key(self, group: str, below: float) -> Iterator[Candidate]:
        """Yield the entries with keys below a bound, the least key first."""
        ordered = sorted(self._entries, key=lambda entry: (entry.key, entry.id))
        return (Candidate(entry.id, entry.size, entry.key) for entry in ordered if entry.key < below)

    def youngest(self, group: str) -> Iterator[Candidate]:
        """Yield the entries, the last added first."""
        ordered = sorted(self._entries, key=lambda entry: (entry.added, entry.id), reverse=True)
        return (Candidate(entry.id, entry.size, entry.key) for entry in ordered)


def _mtime(path: Path) -> float | None:
    """Return when a file was changed; None if it does not exist any more."""
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return None


def _list_folder(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in os.listdir(folder)]
    except FileNotFoundError:
        return []


def _remove(path: Path) -> None:
    """Remove a file or folder that other processes may be removing, too."""
    with contextlib.suppress(FileNotFoundError):
        if path.is_dir():
            PartialTree(path).make_writable()
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _sync_filesystem(folder: Path) -> bool:
    """Sync a whole file system (syncfs): a million single fsyncs would take minutes. Return whether it succeeded."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return bool(ctypes.CDLL(None).syncfs(descriptor) == 0)
    finally:
        os.close(descriptor)
