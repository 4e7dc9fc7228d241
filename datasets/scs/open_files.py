"""Open files: descriptors of recently read objects, and the bytes of small ones, so that a hot object costs no open().

Entries are never stale: inotify reports a file that is deleted or changed, and its entry is dropped before the next
request is answered. So no descriptor keeps the disk space of an evicted object either.

Bytes are compared with the checksums of their blocks when they are read. Blocks of a file that stays in memory,
unchanged, are not compared again for a second.
"""

import os
from pathlib import Path

from datasets.scs.block_checksums import BLOCK, blocks_of, verify
from datasets.scs.inotify import FileWatch
from datasets.scs.page_cache import PageCache
from datasets.scs.store import StoredObject

#: Objects up to this many bytes are kept and sent as bytes; larger ones go from the page cache to the socket.
SMALL = 32 << 10
#: Larger files are opened for every response: the cost is small beside sending them, and they hold much disk space.
_MAX_KEPT_OPEN = 4 << 20
#: Bytes of small objects in total.
_BODY_MEMORY = 32 << 20
#: Seconds for which bytes that were verified in memory are assumed to stay there.
TRUSTED_SECONDS = 1.0


class OpenFile:
    """File of an object, closed when the last reference is dropped; of a small object only the bytes."""

    __slots__ = ("body", "descriptor", "stored", "trusted_until", "used")

    def __init__(self, descriptor: int, stored: StoredObject, body: bytes | None) -> None:
        self.descriptor, self.stored, self.body = descriptor, stored, body
        #: Until this time, on the monotonic clock, the whole file is assumed to be in memory and intact.
        self.trusted_until = 0.0
        self.used = True

    def __del__(self, close=os.close) -> None:  # type: ignore[no-untyped-def]
        if self.descriptor >= 0:
            close(self.descriptor)


class Changed(Exception):
    """The size of the file differs from the object's."""


class Cold(Exception):
    """The bytes are not in memory: reading them waits for the disk."""


class Unverified(Exception):
    """The object has no checksums: an earlier version has stored it."""


class OpenFiles:
    """Recently opened files, at most ``max_files``. Only the event loop uses it.

    An entry in use is not replaced by a newer one: of a set that is read repeatedly, in any order, and is too large to
    be kept open as a whole, a part always stays.
    """

    def __init__(self, folder: Path, page_cache: PageCache, max_files: int) -> None:
        self._page_cache, self._max_files = page_cache, max_files
        self._files: dict[str, OpenFile] = {}
        self._bytes = 0
        #: Blocks that were verified since the last call of `expire`, by path.
        self._verified: dict[str, set[int]] = {}
        self._buffer = memoryview(bytearray(BLOCK))
        self.watch = FileWatch(folder / f"{number:02x}" for number in range(256))

    def __len__(self) -> int:
        return len(self._files)

    def open(self, stored: StoredObject) -> OpenFile:
        """Return an object's file; raise FileNotFoundError, Unverified, Changed, Cold or Damaged."""
        file = self._files.get(stored.path)
        if file is not None:
            file.used = True
            return file
        file = self._open(stored)
        if len(self._files) < self._max_files and self.watch.works and stored.size <= _MAX_KEPT_OPEN:
            if file.body is None or self._bytes + stored.size <= _BODY_MEMORY:
                self._files[stored.path] = file
                self._bytes += len(file.body or b"")
        return file

    def _open(self, stored: StoredObject) -> OpenFile:
        if not stored.checksums:
            raise Unverified
        file = OpenFile(os.open(stored.path, os.O_RDONLY | os.O_CLOEXEC), stored, None)
        if stored.size > SMALL:
            if os.lseek(file.descriptor, 0, os.SEEK_END) != stored.size:
                raise Changed
            return file
        body = bytearray(stored.size)
        if self._page_cache.read(file.descriptor, memoryview(body), 0) != stored.size:
            raise Cold
        verify(body, stored.checksums, 0)
        return OpenFile(-1, stored, bytes(body))

    def verify(self, file: OpenFile, start: int, end: int, now: float) -> None:
        """Verify the blocks of a part of a file that is in memory; raise Cold or Damaged."""
        if now < file.trusted_until:
            return
        stored, descriptor, blocks = file.stored, file.descriptor, blocks_of(start, end)
        verified = self._verified.get(stored.path)
        if verified is not None and verified.issuperset(blocks) and self._page_cache.resident(descriptor, start, end):
            return
        for block in blocks:
            content = self._buffer[: stored.size - block * BLOCK]
            if self._page_cache.read(descriptor, content, block * BLOCK) != len(content):
                raise Cold
            verify(content, stored.checksums, block)
        if not self.watch.works:
            return
        if len(blocks) * BLOCK >= stored.size:
            file.trusted_until = now + TRUSTED_SECONDS
        elif verified is not None:
            verified.update(blocks)
        else:
            self._verified[stored.path] = set(blocks)

    def expire(self) -> None:
        """Have all blocks verified again before they are sent; called once a second."""
        self._verified.clear()

    def forget_changed(self) -> None:
        """Drop the entries whose files were deleted or changed."""
        for path in self.watch.changed_paths():
            for each in [path] if path is not None else [*self._files, *self._verified]:
                self._forget(each)

    def make_room(self) -> None:
        """If the cache is full, drop the entries that were not used since the last call; called once a second."""
        if len(self._files) < self._max_files and self._bytes + SMALL <= _BODY_MEMORY:
            return
        for path, file in list(self._files.items()):
            if not file.used:
                self._forget(path)
            file.used = False

    def _forget(self, path: str) -> None:
        self._verified.pop(path, None)
        file = self._files.pop(path, None)
        if file is not None:
            self._bytes -= len(file.body or b"")

    def close(self) -> None:
        """Stop watching, and drop all entries."""
        self.watch.close()
        self._files.clear()
