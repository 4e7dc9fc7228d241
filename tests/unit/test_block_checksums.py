"""Ranges of contents, verified by blocks: right bytes or an error, whatever was damaged and whenever."""

import hashlib
from collections.abc import Iterator

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from core.services.block_checksums import BlockChecksums
from errors import Corrupt


class Content:
    """Stored bytes that may be damaged, in chunks of any size; counts what is read."""

    def __init__(self, stored: bytes, chunk: int = 7) -> None:
        self.stored, self.chunk, self.read_bytes = bytearray(stored), chunk, 0

    def read(self, first: int, end: int) -> Iterator[bytes]:
        for position in range(first, end, self.chunk):
            piece = bytes(self.stored[position : min(end, position + self.chunk)])
            self.read_bytes += len(piece)
            yield piece


def digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


@given(st.binary(min_size=1, max_size=100), st.data(), st.integers(1, 20), st.integers(1, 20), st.booleans())
def test_a_range_has_the_registered_bytes_or_is_refused(
    original: bytes, data: st.DataObject, chunk: int, block: int, known: bool
) -> None:
    content, checksums = Content(original, chunk), BlockChecksums(block=block)
    start = data.draw(st.integers(0, len(original) - 1))
    stop = data.draw(st.integers(start + 1, len(original)))

    def read() -> bytes:
        return b"".join(checksums.read(content.read, digest(original), len(original), start, stop, "x"))

    if known:  # damage that happens after the checksums were taken
        assert read() == original[start:stop]
    at = data.draw(st.integers(0, len(original) - 1))
    content.stored[at] ^= data.draw(st.integers(1, 255))
    try:
        assert read() == original[start:stop]
    except Corrupt:
        return
    assume(not start <= at < stop)
    assert known, "without checksums, damage anywhere in the content is found"


def test_content_that_became_shorter_is_refused() -> None:
    content, checksums = Content(b"0123456789"), BlockChecksums(block=4)
    arguments = (content.read, digest(b"0123456789"), 10, 5, 10, "x")
    assert b"".join(checksums.read(*arguments)) == b"56789"
    del content.stored[8:]
    with pytest.raises(Corrupt):
        b"".join(checksums.read(*arguments))


def test_only_the_first_range_reads_the_whole_content_and_least_used_checksums_are_dropped() -> None:
    checksums = BlockChecksums(block=10, kept=20)
    contents = [Content(bytes([number]) * 100) for number in range(3)]

    def read_one_byte(number: int) -> int:
        before = contents[number].read_bytes
        b"".join(checksums.read(contents[number].read, digest(contents[number].stored), 100, 55, 56, "x"))
        return contents[number].read_bytes - before

    assert [read_one_byte(number) for number in (0, 0, 1, 1, 0, 2, 0, 1)] == [110, 10, 110, 10, 10, 110, 10, 110]
