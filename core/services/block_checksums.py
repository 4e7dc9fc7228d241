"""Block checksums: ranges of content are compared with checksums that one whole, verified reading has produced.

A digest covers a whole content, so the first range of a content that a process serves costs one reading of all of it:
its blocks' checksums are kept, and later ranges are compared with those of the blocks that they touch.
"""

import array
import hashlib
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

from common.errors import Corrupt

#: Bytes per block: what a range of one byte costs to read.
BLOCK = 256 << 10
#: Blocks whose checksums are kept, 4 bytes each, of the contents that were used last: 8 MiB, for 512 GiB of content.
KEPT = 2 << 20

Read = Callable[[int, int], Iterable[bytes]]


class BlockChecksums:
    """Checksums (CRC-32) of the blocks of contents, by digest; safe for use by threads."""

    def __init__(self, *, block: int = BLOCK, kept: int = KEPT) -> None:
        self._block, self._kept = block, kept
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, int], array.array[int]] = OrderedDict()

    def read(self, read: Read, digest: str, size: int, start: int, stop: int, name: str) -> Iterator[bytes]:
        """Yield the bytes [start, stop) of a content, block by block, each after it was verified.

        ``read(first, end)`` yields the content's bytes [first, end). Raise Corrupt if they are not those of ``digest``.
        """
        checksums = self._checksums(read, digest, size, name)
        first = start // self._block * self._block
        end = min(size, -(-stop // self._block) * self._block)
        following = first
        for position, block in self._blocks(read(first, end), first):
            following = position + len(block)
            complete = following == min(size, position + self._block)
            if not complete or zlib.crc32(block) != checksums[position // self._block]:
                self._forget(digest, size)
                raise damaged(name)
            yield block[max(0, start - position) : stop - position]
        if following != end:
            raise damaged(name)

    def _checksums(self, read: Read, digest: str, size: int, name: str) -> "array.array[int]":
        with self._lock:
            if (known := self._known.get((digest, size))) is not None:
                self._known.move_to_end((digest, size))
                return known
        hasher = hashlib.sha256()
        checksums = array.array("I")
        for _, block in self._blocks(read(0, size), 0):
            hasher.update(block)
            checksums.append(zlib.crc32(block))
        if f"sha256:{hasher.hexdigest()}" != digest:
            raise damaged(name)
        with self._lock:
            self._known[digest, size] = checksums
            while len(self._known) > 1 and sum(map(len, self._known.values())) > self._kept:
                self._known.popitem(last=False)
        return checksums

    def _forget(self, digest: str, size: int) -> None:
        with self._lock:
            self._known.pop((digest, size), None)

    def _blocks(self, chunks: Iterable[bytes], position: int) -> Iterator[tuple[int, bytes]]:
        """Yield (position, bytes) of consecutive blocks; the last may be shorter."""
        rest = bytearray()
        for chunk in chunks:
            rest += chunk
            while len(rest) >= self._block:
                yield position, bytes(rest[: self._block])
                del rest[: self._block]
                position += self._block
        if rest:
            yield position, bytes(rest)


def verified(chunks: Iterable[bytes], digest: str, name: str) -> Iterator[bytes]:
    """Yield content; raise Corrupt instead of yielding the last chunk if its digest is not ``digest``.

    So its end is withheld unless the digest is right: a disk may flip bits.
    """
    hasher = hashlib.sha256()
    last = b""
    for chunk in chunks:
        hasher.update(chunk)
        if last:
            yield last
        last = chunk
    if f"sha256:{hasher.hexdigest()}" != digest:
        raise damaged(name)
    if last:
        yield last


def damaged(name: str) -> Corrupt:
    """Return the error for stored bytes that differ from their digest."""
    return Corrupt(f"The stored bytes of {name} are damaged: their digest has changed. Upload it again.")
