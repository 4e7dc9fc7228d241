"""Block checksums of an object: XXH3 of every 128 KiB of its file, so that a part of it is verified without the rest.

They are computed from the received bytes when the object is stored; its row in the object index has them.
"""

import os

from xxhash import xxh3_64, xxh3_64_digest

#: Bytes per block: a range of one byte costs to read as much.
BLOCK = 128 << 10
#: Bytes per checksum.
_WIDTH = 8


class Damaged(Exception):
    """An object's file has other bytes than were stored, or they cannot be read; the message says which."""


class BlockHasher:
    """Computes the checksums of content that arrives in pieces."""

    def __init__(self) -> None:
        self._finished = bytearray()
        self._hasher, self._hashed = xxh3_64(), 0

    def update(self, content: bytes | memoryview) -> None:
        """Add a piece of the content."""
        rest = memoryview(content)
        while rest:
            piece = rest[: BLOCK - self._hashed]
            self._hasher.update(piece)
            self._hashed += len(piece)
            rest = rest[len(piece) :]
            if self._hashed == BLOCK:
                self._end_block()

    def checksums(self) -> bytes:
        """Return the checksums of all blocks, after the last piece."""
        if self._hashed:
            self._end_block()
        return bytes(self._finished)

    def _end_block(self) -> None:
        self._finished += self._hasher.digest()
        self._hasher, self._hashed = xxh3_64(), 0


def blocks_of(start: int, end: int) -> range:
    """Return the numbers of the blocks that the bytes from ``start`` to ``end`` (exclusive) touch."""
    return range(start // BLOCK, -(-end // BLOCK))


def verify(content: bytes | bytearray | memoryview, checksums: bytes, block: int) -> None:
    """Compare the content of a block with its checksum; raise Damaged."""
    if xxh3_64_digest(content) != checksums[block * _WIDTH : (block + 1) * _WIDTH]:
        raise Damaged(f"block {block} differs from its checksum")


def verify_on_disk(file: int, checksums: bytes, size: int, start: int, end: int) -> None:
    """Read and verify the blocks of a part of a file, waiting for the disk; raise Damaged or OSError."""
    blocks = blocks_of(start, end)
    buffer = memoryview(bytearray(min(BLOCK, size)))
    os.posix_fadvise(file, blocks.start * BLOCK, len(blocks) * BLOCK, os.POSIX_FADV_WILLNEED)
    for block in blocks:
        content = buffer[: size - block * BLOCK]
        if os.preadv(file, [content], block * BLOCK) != len(content):
            raise Damaged("its file is too short")
        verify(content, checksums, block)
