"""The shelf: what of a node's cache is whole, who needs it, how much it is, and what must go for something new."""

import contextlib
import ctypes
import functools
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from datasets.download.partial_tree import Draft
from datasets.eviction import Item, admit
from datasets.nodecache.locks import locked, tried
from datasets.nodecache.pins import Pins
from errors import NodeFull

#: Whole trees go, whoever was not used for longest first. Shares are for caches that may keep half of something.
POLICY = "lru"
#: Seconds that what a killed process left behind is kept, for the next one to go on from.
KEPT = 3600.0
#: Bytes of a disk that are left to others.
SLACK = 16 << 20
#: Ends the names of reservations among the shelf's items.
_NEW = ".new"


@dataclass(frozen=True, slots=True)
class Marker:
    """Says that a tree is whole. ``boot``: the boot it was written in, until it is known to be on the disk.

    A tree of an earlier boot was perhaps not written back when the power went; it counts as half there, which costs
    reading it once. So no download waits for the disk.
    """

    files: int
    bytes: int
    boot: str


@functools.cache
def this_boot() -> str:
    """Return what the kernel calls the time since it was started."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Shelf:
    """The folders of a node's cache. ``id`` is a digest in hex; every id is either a tree's or an object's."""

    def __init__(self, folder: Path, capacity: int | None) -> None:
        self.folder = folder
        self.capacity = capacity
        self._trees = folder / "trees"
        self._objects = folder / "objects"
        self._partial = folder / "partial"
        self._checked = folder / "checked"
        self._pins = Pins(folder / "pins")

    # -- where things are

    def tree(self, id: str) -> Path:
        """Where a whole tree lies."""
        return self._trees / id

    def manifest(self, id: str) -> Path:
        """What a whole tree is made of."""
        return self._trees / f"{id}.manifest"

    def object(self, id: str) -> Path:
        """Where a whole object lies."""
        return self._objects / id

    def partial(self, id: str, kind: str) -> Path:
        """Where something in the making lies, for who holds its lock."""
        return self._partial / f"{id}.{kind}"

    def lock(self, id: str) -> Path:
        """Held by who makes or mends this. Lock files stay: one that is removed would be two."""
        return self.folder / "locks" / id

    @property
    def _lock(self) -> Path:
        return self.folder / "locks" / "node"

    def marker(self, id: str) -> Marker | None:
        """Return what is known of a tree, whole or not; None if there is nothing."""
        try:
            return Marker(**json.loads((self._trees / f"{id}.json").read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def whole(self, id: str) -> bool:
        """Tell whether a tree may be used."""
        marker = self.marker(id)
        return marker is not None and marker.boot in {"", this_boot()} and self.tree(id).is_dir()

    # -- pins

    def pin(self, id: str, holder: str) -> None:
        """Keep something, there or not yet, for a holder."""
        with locked(self._lock):
            self._pins.add(id, holder)
        self.touch(id)

    def touch(self, id: str) -> None:
        """Note a use."""
        for path in (self._trees / f"{id}.json", self._objects / id):
            try:
                os.utime(path)
            except FileNotFoundError:
                continue

    def release(self, holder: str) -> None:
        """Drop all of a holder's pins."""
        with locked(self._lock):
            self._pins.release(holder)

    def holders(self) -> set[str]:
        """Return everybody who holds anything."""
        with locked(self._lock):
            return self._pins.holders()

    # -- what comes

    def publish(self, id: str, draft: Path, manifest: Path, files: int, size: int) -> Path:
        """Make a tree visible, marker last."""
        self._trees.mkdir(parents=True, exist_ok=True)
        target = self.tree(id)
        os.replace(manifest, self.manifest(id))
        os.rename(draft, target)
        self.note_check(id)
        self.mark(id, Marker(files, size, this_boot()))
        return target

    def mark(self, id: str, marker: Marker) -> None:
        """Write a marker, whole."""
        path = self._trees / f"{id}.json"
        draft = self._trees / f".{id}.{secrets.token_hex(4)}.json"
        draft.write_text(json.dumps(asdict(marker)))
        draft.rename(path)

    def withdraw(self, id: str) -> None:
        """Let nobody take a tree for whole any more; who uses it keeps what they have."""
        (self._trees / f"{id}.json").unlink(missing_ok=True)

    def reclaim(self, id: str) -> None:
        """Take up what lies there of a tree as its draft: a tree without a marker, or one of an earlier boot."""
        draft = self.partial(id, "tree")
        if self.tree(id).is_dir() and not draft.exists():
            self.withdraw(id)
            self._partial.mkdir(parents=True, exist_ok=True)
            self.tree(id).chmod(0o700)  # who is not root may only move what they may write
            self.tree(id).rename(draft)
            Draft(draft).thaw()

    # -- what is read again

    def note_check(self, id: str) -> None:
        """Note that something is known to be what it should be, as of now."""
        path = self._checked / id
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def longest_unchecked(self, age: float) -> str | None:
        """Return whose check is longest ago; None if none is more than so many seconds."""
        present = [id for id, _ in self._markers() if self.whole(id)] + [path.name for path in _entries(self._objects)]
        checks = {path.name: _changed(path) or 0.0 for path in _entries(self._checked)}
        oldest = min(present, key=lambda id: checks.get(id, 0.0), default=None)
        return oldest if oldest is not None and checks.get(oldest, 0.0) <= time.time() - age else None

    # -- what goes

    def reserve(self, id: str, size: int) -> None:
        """Make room for something new and hold it until ``settle``. Raise NodeFull if what is pinned leaves none."""
        if not self._reserve(id, size):
            Draft(self.partial(id, "tree")).discard()
            self._clear(0.0)
            if not self._reserve(id, size):
                raise NodeFull(self._want(size))

    def settle(self, id: str) -> None:
        """Give a reservation back: what it was for is there, or will not come."""
        self.partial(id, "reserved").unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what the dead left long ago; write trees back to the disk that are not known to be there."""
        self._clear(KEPT)
        unsure = [id for id, marker in self._markers() if marker.boot == this_boot()]
        if unsure and _sync(self._trees):
            for id in unsure:
                self._settled(id)

    def _settled(self, id: str) -> None:
        """Note that a tree is on the disk, unless somebody mends it, or it is gone by now."""
        path = self._trees / f"{id}.json"
        with tried(self.lock(id)) as ours, locked(self._lock):
            marker, used = self.marker(id), _changed(path)
            if ours and marker is not None and marker.boot == this_boot() and used is not None:
                self.mark(id, Marker(marker.files, marker.bytes, ""))
                os.utime(path, (used, used))

    def _reserve(self, id: str, size: int) -> bool:
        with locked(self._lock):
            items = [item for item in self._items() if item.id not in {id, f"{id}{_NEW}"}]
            newcomer = Item(id, id, size, added=time.time(), used=time.time(), pinned=True)
            verdict = admit(items, newcomer, self._bound(items), POLICY)
            trash = [path for victim in verdict.victims if (path := self._put_away(victim)) is not None]
            if verdict.admitted:
                self._partial.mkdir(parents=True, exist_ok=True)
                self.partial(id, "reserved").write_text(str(size))
        for path in trash:  # no new tree begins to grow before the old ones are gone
            _remove(path)
        return verdict.admitted

    def _bound(self, items: list[Item]) -> int:
        """Return how much there may be in all: as was set, and no more than the disk holds."""
        self.folder.mkdir(parents=True, exist_ok=True)
        disk = os.statvfs(self.folder)
        # What is reserved has no place on the disk yet, as far as it has not come.
        coming = sum(max(0, item.size - self._came(item.id)) for item in items if item.id.endswith(_NEW))
        room = sum(item.size for item in items) - coming + disk.f_bavail * disk.f_frsize - SLACK
        return room if self.capacity is None else min(room, self.capacity)

    def _came(self, name: str) -> int:
        """Return how much of something reserved is there, as far as whoever fetches it has said."""
        try:
            return int(json.loads(self.partial(name.removesuffix(_NEW), "progress").read_bytes())["bytes"])
        except (OSError, ValueError, TypeError, KeyError):
            return 0

    def _want(self, size: int) -> str:
        if self.capacity is not None and size > self.capacity:
            return (
                f"{size} bytes do not fit into this node's cache of {self.capacity} bytes; "
                "raise WINDTUNNEL_CACHE_CAPACITY."
            )
        return (
            f"There is no room for {size} bytes in this node's cache beside what running simulations hold: "
            "its disk is full, or WINDTUNNEL_CACHE_CAPACITY is too small. Try again when some have ended."
        )

    def _items(self) -> Iterator[Item]:
        """Yield all that takes room; what is finished, withdrawn or removed by another meanwhile does not."""
        for id, marker in self._markers():
            if (used := _changed(self._trees / f"{id}.json")) is not None:
                yield Item(id, id, marker.bytes, added=used, used=used, pinned=self._pins.pinned(id))
        for path in _entries(self._objects):
            with contextlib.suppress(FileNotFoundError):
                found = path.stat()
                pinned = self._pins.pinned(path.name)
                yield Item(
                    path.name, path.name, found.st_size, added=found.st_mtime, used=found.st_mtime, pinned=pinned
                )
        for path in _entries(self._partial):
            if path.suffix == ".reserved":
                with tried(self.lock(path.stem)) as dead, contextlib.suppress(FileNotFoundError):
                    if dead:
                        path.unlink(missing_ok=True)
                    else:
                        name = f"{path.stem}{_NEW}"
                        size = int(path.read_text() or 0)  # nothing, if who wrote it was killed
                        yield Item(name, name, size, added=0.0, used=0.0, pinned=True)

    def _markers(self) -> Iterator[tuple[str, Marker]]:
        for path in _entries(self._trees):
            if path.suffix == ".json" and not path.name.startswith(".") and (marker := self.marker(path.stem)):
                yield path.stem, marker

    def _put_away(self, id: str) -> Path | None:
        """Take something off the shelf, at once; what is left to do is to remove what it was."""
        self._partial.mkdir(parents=True, exist_ok=True)
        trash = self._partial / f"{id}.{secrets.token_hex(4)}.trash"
        (self._checked / id).unlink(missing_ok=True)
        try:
            if self.object(id).exists():
                return self.object(id).rename(trash)
            self.withdraw(id)
            self.manifest(id).unlink(missing_ok=True)
            self.tree(id).chmod(0o700)
            return self.tree(id).rename(trash)
        except FileNotFoundError:
            return None  # somebody else removed it

    def _clear(self, age: float) -> None:
        """Remove what nobody works at, and nobody worked at for so many seconds."""
        then = time.time() - age
        for path in _entries(self._partial):
            if path.suffix == ".trash":
                _remove(path)
                continue
            with tried(self.lock(path.name.split(".")[0])) as dead:
                if dead and (_changed(path) or 0.0) <= then:
                    _remove(path)
        for path in _entries(self._trees):
            if path.is_dir() and self.marker(path.name) is None:
                with tried(self.lock(path.name)) as dead:
                    if dead and self.marker(path.name) is None and (_changed(path) or 0.0) <= then:
                        _remove(path)


def _changed(path: Path) -> float | None:
    """Return when something was changed or used; None if it is gone."""
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return None


def _entries(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in os.listdir(folder)]
    except FileNotFoundError:
        return []


def _remove(path: Path) -> None:
    """Remove a file or folder that others may be removing, too."""
    with contextlib.suppress(FileNotFoundError):
        if path.is_dir():
            Draft(path).thaw()
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _sync(folder: Path) -> bool:
    """Write a whole file system back: one call, where an fsync for each of a million files would take minutes."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return bool(ctypes.CDLL(None).syncfs(descriptor) == 0)
    finally:
        os.close(descriptor)
