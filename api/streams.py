"""Answers that go on: NDJSON and server-sent events, with heartbeats so that a hang-up is noticed."""

import logging
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from flask import Response, request

from api.context import context, services
from core.domain.records import Event
from errors import PlatformError, TooManyStreams

logger = logging.getLogger(__name__)

NDJSON = "application/x-ndjson"
SSE = "text/event-stream"
#: Proxies must neither keep nor gather what is meant to arrive at once.
LIVE = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
#: Milliseconds a browser waits before it comes back.
RETRY = 2000


def frame(data: bytes, *, event: str | None = None, id: int | None = None) -> bytes:
    """Write one server-sent event; ``data`` is JSON, which holds no line break."""
    head = b""
    if id is not None:
        head += b"id: %d\n" % id
    if event is not None:
        head += b"event: " + event.encode() + b"\n"
    return head + b"data: " + data + b"\n\n"


def told(events: Iterable[Event | None]) -> Iterator[bytes]:
    """Write a simulation's events as server-sent ones; None is a heartbeat, a comment that clients ignore."""
    yield b"retry: %d\n\n" % RETRY
    for event in events:
        if event is None:
            yield b": heartbeat\n\n"
        else:
            body = {"at": event.at, **event.body}
            yield frame(msgspec.json.encode(body, enc_hook=str), event=event.type, id=event.seq)


def honest(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Pass lines of results on; where no more can be had, say so in a last line, for the status was sent long ago."""
    try:
        yield from lines
    except PlatformError as error:
        logger.warning("results end before their time: %s", error.detail)
        yield msgspec.json.encode({"incomplete": error.detail}) + b"\n"


def alive(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Pass lines on; an empty chunk is a heartbeat, a blank line that readers of NDJSON ignore."""
    for chunk in chunks:
        yield chunk or b"\n"


def as_events(chunks: Iterable[bytes], skipped: int = 0) -> Iterator[bytes]:
    """Write lines of results as server-sent events, numbered so that one can resume behind them."""
    yield b"retry: %d\n\n" % RETRY
    number = skipped
    for chunk in chunks:
        if not chunk:
            yield b": heartbeat\n\n"
            continue
        frames = []
        for line in chunk.splitlines():
            if line.startswith(b'{"incomplete"'):
                frames.append(frame(line, event="incomplete"))
            elif line:
                number += 1
                frames.append(frame(line, event="result", id=number))
        yield b"".join(frames)


def room() -> None:
    """Refuse a stream that there is no slot for while that can still be an answer of its own."""
    if services().changes.streams >= context().streams:
        raise TooManyStreams(retry_after=5)


def stream(
    pieces: Iterator[bytes], media_type: str, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Answer with pieces as they come; the iterator is closed when the client hangs up."""
    body = () if request.method == "HEAD" else pieces
    return Response(body, status, headers={**LIVE, **(headers or {})}, content_type=media_type, direct_passthrough=True)
