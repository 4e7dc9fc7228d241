"""Fuzzing of the cache service: it answers or disconnects, and still serves the next request."""

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets.scs import http_answers
from tests.contracts.cache_service import AUTHORIZED, Cache, cache_config, running

HEAD = f"GET /v1/objects/private/x HTTP/1.1\r\nHost: here\r\n{AUTHORIZED}Range: bytes=0-3\r\n\r\n".encode()
PUT = f"PUT /v1/objects/private/x HTTP/1.1\r\nHost: here\r\n{AUTHORIZED}Content-Length: 10\r\n\r\n0123456789".encode()
PIECES = st.sampled_from([HEAD, PUT, b"\r\n", b"\0", b" ", b"HTTP/1.1", b"Content-Length: 18446744073709551616\r\n"])


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cache]:
    with running(cache_config(tmp_path_factory.mktemp("scs"))) as service:
        yield service


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Requests with bytes removed, inserted or changed."""
    raw = bytearray(b"".join(draw(st.lists(PIECES | st.binary(max_size=30), min_size=1, max_size=6))))
    for _ in range(draw(st.integers(0, 5))):
        offset = draw(st.integers(0, len(raw)))
        raw[offset : offset + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(raw)


@settings(max_examples=300)
@given(raw=damaged())
def test_after_malformed_bytes_the_next_request_is_served(cache: Cache, raw: bytes) -> None:
    connection = cache.connect()
    try:
        connection.send(raw)
        connection.sock.shutdown(socket.SHUT_WR)
        while data := connection.sock.recv(1 << 16):
            assert b" 500 " not in data.partition(b"\r\n")[0]
    except (BrokenPipeError, ConnectionResetError):
        pass  # the server has closed the connection
    finally:
        connection.close()
    assert cache.request("GET", "/healthz").status == 200


@given(text=st.binary(max_size=40) | st.from_regex(rb"bytes=[0-9]{0,25}-[0-9]{0,25}"), size=st.integers(0, 1 << 50))
def test_a_range_stays_within_the_object(text: bytes, size: int) -> None:
    byte_range = http_answers.parse_range(text, size)
    if isinstance(byte_range, tuple):
        assert 0 <= byte_range[0] < byte_range[1] <= size
    else:
        assert byte_range in (None, False)


@given(header=st.binary(max_size=60), etag=st.none() | st.just(b'"x"'), reading=st.booleans())
def test_any_condition_has_a_result(header: bytes, etag: bytes | None, reading: bool) -> None:
    for name in http_answers.CONDITIONS:
        assert http_answers.failed_condition({name: header}, etag, 1_800_000_000, reading=reading) in (None, 304, 412)
    assert http_answers.ignores_range(header, b'"x"', 1_800_000_000) in (True, False)
