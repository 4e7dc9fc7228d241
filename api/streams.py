"""Streamed responses: NDJSON and server-sent events, with heartbeats, which reveal closed connections."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from flask import Response, request

from api import stream_slots
from api.blueprint import empty_response
from api.context import caller, context, identity
from api.context import submission_services as services
from api.stream_slots import StreamOwner
from common.errors import (
    NotFound,
    NotPermitted,
    PlatformError,
    ProjectRequired,
    StoreUnavailable,
    TooManyStreams,
    Unauthorized,
    UnknownProject,
)
from core.domain.access.roles import Verb
from core.domain.submissions.records import Event
from core.notifications.change_notifier import MAY_GO_ON, RIGHT_INTERVAL
from core.services.event_streams import EventLog
from core.services.simulations.list_changes import Changes

logger = logging.getLogger(__name__)

NDJSON = "application/x-ndjson"
SSE = "text/event-stream"
#: Proxies must neither store nor buffer a stream.
STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
#: Milliseconds that a browser waits before it reconnects.
RECONNECT_DELAY = 2000


def frame(data: bytes, *, event: str | None = None, id: int | None = None) -> bytes:
    """Encode a server-sent event; ``data`` is JSON, which has no line breaks."""
    head = b""
    if id is not None:
        head += b"id: %d\n" % id
    if event is not None:
        head += b"event: " + event.encode() + b"\n"
    return head + b"data: " + data + b"\n\n"


def encode_events(events: Iterable[Event | None]) -> Iterator[bytes]:
    """Encode events of a simulation as server-sent events; None becomes a heartbeat, a comment that clients ignore."""
    yield b"retry: %d\n\n" % RECONNECT_DELAY
    for event in events:
        if event is None:
            yield b": heartbeat\n\n"
        else:
            body = {"at": event.at, **event.body}
            yield frame(msgspec.json.encode(body, enc_hook=str), event=event.type, id=event.seq)


def encode_changes(changes: Iterable[Changes | None]) -> Iterator[bytes]:
    """Encode changes of the list as server-sent events; the id is the time until which they were read."""
    yield b"retry: %d\n\n" % RECONNECT_DELAY
    for change in changes:
        if change is None:
            yield b": heartbeat\n\n"
        else:
            body = {"ids": change.ids, "all": change.all}
            yield frame(msgspec.json.encode(body), event="changes", id=change.until)


def mark_incomplete(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines of results; if reading them fails, end with a line that has the error: the status is sent already."""
    try:
        yield from lines
    except PlatformError as error:
        logger.warning("API: a stream of results ends early: %s", error.detail)
        yield msgspec.json.encode({"incomplete": error.detail}) + b"\n"


def encode_heartbeats(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines; an empty chunk becomes a heartbeat, a blank line that readers of NDJSON ignore."""
    for chunk in chunks:
        yield chunk or b"\n"


def encode_results(chunks: Iterable[bytes], skipped: int = 0) -> Iterator[bytes]:
    """Encode lines of results as server-sent events, numbered from ``skipped`` + 1, so that a client can resume."""
    yield b"retry: %d\n\n" % RECONNECT_DELAY
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


def require_free_stream() -> None:
    """Occupy a stream for this request, before its status is sent.

    Raise TooManyStreams if all are in use, TooManyRequests if its project or its user has its share of them.
    """
    if services().changes.waiting >= context().streams:
        raise TooManyStreams(retry_after=5)
    stream_slots.keep(context().stream_slots, _stream_owner())


def _stream_owner() -> StreamOwner | None:
    if not context().identification.accounts:
        return None
    return StreamOwner(caller().scope.project or "", caller().user, page=identity().by == "session")


def still_permitted(check_readable: Callable[[], None] | None = None) -> Callable[[], None]:
    """Return the check that this request would be answered now as it was; it raises the error that it would get.

    ``check_readable``: of what it reads from another project, as `EventLog.readability` returns it.
    """
    identification, environ, acting = context().identification, dict(request.environ), caller()
    project = acting.scope.project
    needed = Verb.READ if Verb.READ in acting.verbs else Verb.SUBMIT

    def check() -> None:
        identity = identification.identify(environ)
        if identity is None:
            raise Unauthorized
        identity.act_in(project).require(needed)
        if project and project not in identity.projects and identification.project_state(project) is None:
            raise UnknownProject  # an operator's, where it was deleted
        if check_readable is not None:
            check_readable()

    return check


def while_permitted(chunks: Iterator[bytes], check: Callable[[], None]) -> Iterator[bytes]:
    """Yield the chunks of a stream until its caller may not have it any more; nothing tells why it ends then."""
    checked_at = time.monotonic()
    try:
        while True:
            if time.monotonic() - checked_at >= RIGHT_INTERVAL:
                check()
                checked_at = time.monotonic()
            MAY_GO_ON.set(check)  # for this step alone: its thread may do other things before the next
            try:
                chunk = next(chunks)
            finally:
                MAY_GO_ON.set(None)
            yield chunk
    except (StopIteration, Unauthorized, NotPermitted, ProjectRequired, NotFound):
        return
    except StoreUnavailable as error:
        logger.warning("API: a stream ends, because its caller cannot be checked: %s", error.detail)
    finally:
        with suppress(AttributeError):
            chunks.close()  # type: ignore[attr-defined]


def stream(
    chunks: Iterator[bytes],
    media_type: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    check_readable: Callable[[], None] | None = None,
) -> Response:
    """Answer with chunks as they arrive; the iterator is closed when the client disconnects, or may have no more.

    ``check_readable``: see `still_permitted`.
    """
    if context().identification.accounts:
        chunks = while_permitted(chunks, still_permitted(check_readable))
    body = () if request.method == "HEAD" else stream_slots.held(chunks)
    return Response(
        body, status, headers={**STREAM_HEADERS, **(headers or {})}, content_type=media_type, direct_passthrough=True
    )


def stream_events(log: EventLog, id: str, query: Mapping[str, Any], headers: Mapping[str, Any]) -> Response:
    """Answer with events after `Last-Event-ID` or `after`; with 204 if none will follow: a browser reconnects no more.

    ``query`` and ``headers``: values of EventsQuery and of EventsHeaders.
    """
    after = headers.get("last_event_id", query.get("after", 0))
    if after and log.ended(caller(), id, after):
        return empty_response(204, STREAM_HEADERS)
    require_free_stream()
    chunks = encode_events(log.follow(caller(), id, after, context().heartbeat))
    return stream(chunks, SSE, check_readable=log.readability(caller(), id))
