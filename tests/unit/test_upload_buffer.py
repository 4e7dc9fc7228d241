"""Upload buffer: parts by size and time, and strict parsing of tus headers."""

import hashlib
import io
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from api import tus
from common.errors import BadRequest, Invalid, TooLarge, TruncatedUpload
from core.domain.submissions.uploads import UploadBuffer


def parts(buffer: UploadBuffer) -> list[bytes]:
    return [b"".join(part) for part in buffer.parts()]


@given(st.lists(st.binary(max_size=9), max_size=20))
def test_the_parts_are_the_body_and_not_empty(chunks: list[bytes]) -> None:
    body = b"".join(chunks)
    buffer = UploadBuffer(chunks, len(body), algorithm="sha1")
    body_parts = parts(buffer)
    assert b"".join(body_parts) == body and all(body_parts) and buffer.ended
    assert buffer.digest() == hashlib.sha1(body, usedforsecurity=False).digest()


def test_a_part_ends_by_its_size() -> None:
    assert parts(UploadBuffer([b"abc", b"def", b"g"], 100, pace=False, part=4)) == [b"abcdef", b"g"]


def test_a_part_ends_by_time_also_without_new_bytes() -> None:
    now = 0.0

    def slow() -> Iterator[bytes]:
        nonlocal now
        for chunk in (b"a", b"", b"", b"b", b"", b"", b"", b"c"):
            yield chunk
            now += 0.2

    assert parts(UploadBuffer(slow(), 100, clock=lambda: now)) == [b"a", b"b", b"c"]


def test_more_bytes_than_the_remaining_length_are_an_error() -> None:
    with pytest.raises(TooLarge):
        parts(UploadBuffer([b"abc", b"def"], 5))
    assert parts(UploadBuffer([b"abc", b"def"], 3)) == [b"abc"]


class BreakingStream(io.RawIOBase):
    """Stream that ends with an error."""

    def __init__(self, data: bytes, error: Exception | None) -> None:
        self._data = io.BytesIO(data)
        self._error = error

    def read(self, size: int = -1) -> bytes:
        if not (chunk := self._data.read(size)) and self._error:
            raise self._error
        return chunk


@pytest.mark.parametrize("error", [None, OSError(), TruncatedUpload()])
@pytest.mark.parametrize("length", [None, 200_000])
def test_bytes_before_a_broken_connection_are_yielded(length: int | None, error: Exception | None) -> None:
    data = bytes(range(250)) * 400
    stream: Any = BreakingStream(data, error)
    assert b"".join(tus.received(stream, length)) == data


def test_reading_stops_at_the_announced_length() -> None:
    stream: Any = BreakingStream(b"hello world", None)
    assert b"".join(tus.received(stream, 5)) == b"hello"
    assert stream.read() == b" world"


@pytest.mark.parametrize(
    ("text", "kind", "ids"),
    [
        (None, "whole", []),
        ("partial", "partial", []),
        (f"final;/v1/uploads/{'a' * 26}", "final", ["a" * 26]),
        (f"final;http://h:1/v1/uploads/{'a' * 26}  {'b' * 26}", "final", ["a" * 26, "b" * 26]),
    ],
)
def test_upload_concat_is_parsed(text: str | None, kind: str, ids: list[str]) -> None:
    assert tus.concat(text) == (kind, ids)


@given(st.text(max_size=60))
@example("0\x1f")
def test_any_header_is_parsed_or_refused(text: str) -> None:
    for read in (tus.metadata, tus.checksum, tus.concat, tus.upload_id, lambda text: tus.number("Upload-Length", text)):
        try:
            read(text)
        except (BadRequest, Invalid):
            continue
