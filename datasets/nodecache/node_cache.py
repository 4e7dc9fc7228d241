"""Staging: bring datasets and models to this node, once however many ask, and keep them while somebody needs them.

Threads and processes of a node agree by locks and files alone, so that any of them may die at any moment.
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

from datasets.download.downloads import PACE, THREADS, Patience, Progress, Tally, Transfer
from datasets.download.partial_tree import Draft, full, sound
from datasets.nodecache.disk_cache import Shelf
from datasets.nodecache.locks import locked
from datasets.objectstore.base import ObjectStore
from datasets.objectstore.connections import Connection
from datasets.scs_client.client import Near
from datasets.versions import manifest
from datasets.versions.manifest import Entry
from errors import BadName, Corrupt, NodeFull, OriginChanged, OriginFailed, PlatformError, StoreUnavailable

__all__ = ["NodeCache", "Progress"]

logger = logging.getLogger(__name__)

#: What those who waited for a download are told when it fails, instead of all trying it again in turn.
SHARED = {each.slug: each for each in (OriginFailed, OriginChanged, Corrupt, NodeFull, BadName, StoreUnavailable)}


#: Seconds after which what lies here is read again, and bytes/s that this may take of the disk.
CHECKED, PACE_OF_SCRUB = 7 * 86_400.0, 200e6


def silent(progress: Progress) -> None:
    """Hear of the progress, and do nothing."""


class NodeCache:
    """Trees (a dataset's version each) and objects (a model each), whole or not there, named by digest.

    ``capacity`` in bytes; None: as much as the disk holds.
    """

    def __init__(
        self,
        folder: Path,
        store: ObjectStore,
        connections: Mapping[str, Connection] | None = None,
        *,
        capacity: int | None = None,
        near: Near | None = None,
        threads: int = THREADS,
        patience: Patience | None = None,
    ) -> None:
        self._store = store
        self._shelf = Shelf(folder, capacity)
        self._transfer = Transfer(store, connections or {}, near=near, threads=threads, patience=patience)

    def ready(self, digest: str) -> Path | None:
        """Return a version's tree if it lies here whole. To use it, ``hold`` it first."""
        id = _id(digest)
        return self._shelf.tree(id) if self._shelf.whole(id) else None

    def hold(self, digest: str, holder: str) -> None:
        """Keep a tree or object on this node, there or not yet, until the holder lets go."""
        self._shelf.pin(_id(digest), holder)

    def release(self, holder: str) -> None:
        """Let go of all that a holder held."""
        self._shelf.release(holder)

    def sweep(self, alive: Callable[[set[str]], set[str]]) -> None:
        """Release for the holders that ``alive`` leaves out, and clear away what the dead left half done."""
        holders = self._shelf.holders()
        for holder in holders - alive(holders) if holders else ():
            self._shelf.release(holder)
        self._shelf.sweep()

    def object(self, key: str, digest: str, *, holder: str | None = None) -> Path:
        """Return a read-only file with the content that ``digest`` (``sha256:<hex>``) names; fetched if need be."""
        id = _id(digest)
        path = self._shelf.object(id)
        if holder is not None:
            self._shelf.pin(id, holder)
        if path.exists():
            self._shelf.touch(id)
            return path
        with self._alone(id, silent):
            if not path.exists():
                self._make_object(id, key, digest)
        return path

    def tree(
        self,
        digest: str,
        entries: Callable[[], Iterator[Entry]],
        *,
        holder: str,
        say: Callable[[Progress], None] = silent,
    ) -> Path:
        """Return a version's files as a read-only folder, whole and verified; held for ``holder`` until released.

        ``entries`` gives the version's manifest, sorted; it is read once, and checked against ``digest``. ``say`` is
        called a few times a second, in this thread, also while another one does the work.
        """
        self.hold(digest, holder)
        if (path := self.ready(digest)) is not None:
            return path
        id = _id(digest)
        with self._alone(id, say):
            if (path := self.ready(digest)) is None:
                path = self._make_tree(id, digest, entries, say)
        return path

    def verify(self, digest: str, *, pace: float | None = None) -> list[str]:
        """Read a whole tree or object, mend from the origin what is damaged, and return what was.

        ``pace`` in bytes/s, so that others have something of the disk. Raise what the origin failed of; then the tree
        is not ready any more.
        """
        id = _id(digest)
        ours = f"verify-{os.getpid()}-{secrets.token_hex(4)}"
        self._shelf.pin(id, ours)  # it shall not go while it is read
        try:
            with locked(self._shelf.lock(id)):
                self._shelf.note_check(id)
                return self._mended_object(id, digest) + self._mended_tree(id, digest, pace)
        finally:
            self._shelf.release(ours)

    def scrub(self, age: float = CHECKED, *, pace: float | None = PACE_OF_SCRUB) -> list[str]:
        """Verify what was not verified for longest, if that is more than ``age`` seconds ago; return what was damaged.

        To be called now and then: a bit that flips in a cache is found by nobody else.
        """
        id = self._shelf.longest_unchecked(age)
        return [] if id is None else self.verify(f"sha256:{id}", pace=pace)

    # -- alone

    def _alone(self, id: str, say: Callable[[Progress], None]) -> "_Alone":
        return _Alone(self._shelf, id, say)

    def _make_object(self, id: str, key: str, digest: str) -> None:
        entry = Entry(id, self._store.size(key), digest, f"store:{key}")
        draft = Draft(self._shelf.partial(id, "object"))
        self._shelf.reserve(id, entry.size)
        try:
            with _room():
                self._transfer.fetch([entry], draft, Tally(1, entry.size), silent)
                target = self._shelf.object(id)
                target.parent.mkdir(parents=True, exist_ok=True)
                _sync(draft.folder / id)  # an object has no marker that says in which boot it was written
                os.rename(draft.folder / id, target)
                self._shelf.note_check(id)
        finally:
            draft.discard()
            self._shelf.settle(id)

    def _make_tree(
        self, id: str, digest: str, entries: Callable[[], Iterator[Entry]], say: Callable[[Progress], None]
    ) -> Path:
        self._shelf.reclaim(id)
        folder = self._shelf.partial(id, "tree")
        resumed = folder.exists()
        with _room():
            files, size = self._copy_manifest(id, digest, entries())
            self._shelf.reserve(id, size)
        try:
            with _room():
                draft = Draft(folder)
                tally = Tally(files, size)
                told = _Teller(self._shelf.partial(id, "progress"), say)
                self._transfer.fetch(self._missing(id, draft, tally, resumed), draft, tally, told)
                draft.seal()
                path = self._shelf.publish(id, folder, self._shelf.partial(id, "manifest"), files, size)
        except NodeFull:
            draft.discard()  # others need the room
            raise
        finally:
            self._shelf.settle(id)
        say(tally.progress())
        return path

    def _copy_manifest(self, id: str, digest: str, entries: Iterator[Entry]) -> tuple[int, int]:
        """Write the manifest beside the draft and return its files and bytes: what is fetched is what was checked."""
        path = self._shelf.partial(id, "manifest")
        path.parent.mkdir(parents=True, exist_ok=True)
        found = manifest.Digest()
        files = size = 0
        with open(path, "wb") as file:
            for entry in entries:
                if entry.size < 0 or entry.offset < 0:
                    raise Corrupt("The dataset's manifest has a negative size in it.")
                found.add(entry)
                file.write(manifest.encode(entry))
                files += 1
                size += entry.size
        if str(found) != digest:
            raise Corrupt(f"The dataset's manifest is not the one that {digest} names; nothing was fetched.")
        return files, size

    def _missing(self, id: str, draft: Draft, tally: Tally, resumed: bool) -> Iterator[Entry]:
        for entry in _entries(self._shelf.partial(id, "manifest")):
            if resumed and draft.keeps(entry):
                tally.found(entry.size)
            else:
                yield entry

    def _mended_object(self, id: str, digest: str) -> list[str]:
        path = self._shelf.object(id)
        if not path.exists() or sound(path, path.stat().st_size, digest):
            return []
        logger.warning("the staged object %s was damaged; it is fetched again when it is needed", digest)
        path.unlink()
        return [digest]

    def _mended_tree(self, id: str, digest: str, pace: float | None) -> list[str]:
        marker = self._shelf.marker(id)
        if marker is None or not self._shelf.whole(id):
            return []
        tree = self._shelf.tree(id)
        damaged = []
        for entry in _entries(self._shelf.manifest(id)):
            if not sound(tree / entry.path, entry.size, entry.digest):
                damaged.append(entry)
            if pace is not None:
                time.sleep(entry.size / pace)
        if damaged:
            names = [entry.path for entry in damaged]
            logger.warning("the staged dataset %s was damaged in %d files, first %r", digest, len(names), names[0])
            self._shelf.withdraw(id)
            self._replace(id, damaged)
            self._shelf.mark(id, marker)
        return [entry.path for entry in damaged]

    def _replace(self, id: str, entries: list[Entry]) -> None:
        """Put sound files in the place of damaged ones; who has one open keeps what they have."""
        tree = self._shelf.tree(id)
        draft = Draft(self._shelf.partial(id, "mended"))
        try:
            tally = Tally(len(entries), sum(entry.size for entry in entries))
            with _room():
                self._transfer.fetch(entries, draft, tally, silent)
            for entry in entries:
                target = tree / entry.path
                with _writable(target.parent):
                    os.replace(draft.path(entry), target)
        finally:
            draft.discard()


class _Alone:
    """The lock of one tree or object; who waited for somebody who failed, fails alike."""

    def __init__(self, shelf: Shelf, id: str, say: Callable[[Progress], None]) -> None:
        self._shelf = shelf
        self._failure = shelf.partial(id, "failure")
        self._progress = shelf.partial(id, "progress")
        self._say = say
        self._said = time.monotonic()
        self._since = time.time()
        self._lock = locked(shelf.lock(id), self._meanwhile)

    def __enter__(self) -> None:
        if self._lock.__enter__():
            try:
                self._share()
            except BaseException:
                self._lock.__exit__(None, None, None)
                raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self._progress.unlink(missing_ok=True)
            if isinstance(error, PlatformError) and error.slug in SHARED:
                with contextlib.suppress(OSError):  # those who wait then find out by themselves
                    self._failure.parent.mkdir(parents=True, exist_ok=True)
                    self._failure.write_text(json.dumps([time.time(), error.slug, error.detail]))
            else:
                self._failure.unlink(missing_ok=True)
        finally:
            self._lock.__exit__(None, None, None)

    def _meanwhile(self) -> None:
        if time.monotonic() - self._said >= PACE:
            self._said = time.monotonic()
            try:
                self._say(Progress(**json.loads(self._progress.read_bytes())))
            except (OSError, ValueError, TypeError):
                return

    def _share(self) -> None:
        try:
            at, slug, detail = json.loads(self._failure.read_bytes())
        except (OSError, ValueError):
            return
        if at >= self._since:
            raise SHARED[slug](detail)


class _Teller:
    """Tells of the progress, and writes it down for those who wait."""

    def __init__(self, path: Path, say: Callable[[Progress], None]) -> None:
        self._path = path
        self._say = say

    def __call__(self, progress: Progress) -> None:
        draft = self._path.with_suffix(".saying")
        draft.write_text(json.dumps(asdict(progress)))
        draft.rename(self._path)
        self._say(progress)


@contextlib.contextmanager
def _room() -> Iterator[None]:
    """Say in words that the disk is full, wherever it was noticed."""
    try:
        yield
    except OSError as error:
        if full(error):
            raise NodeFull("This node's disk is full; nothing of what was being staged is used.") from None
        raise


@contextlib.contextmanager
def _writable(folder: Path) -> Iterator[None]:
    """Let files of a sealed folder be replaced, for who is not root."""
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


def _entries(path: Path) -> Iterator[Entry]:
    with open(path, "rb") as file:
        for line in file:
            yield manifest.decode(line)


def _sync(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
