"""Downloads by single byte ranges (RFC 9110, 14): Range, If-Range, ETag, If-None-Match, 206, 304 and 416."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from flask import Response, request

from api.blueprint import empty_response
from api.problem_responses import problem_response
from errors import PreconditionFailed, RangeNotSatisfiable

_SINGLE = re.compile(r"bytes\s*=\s*(\d{0,18})\s*-\s*(\d{0,18})\s*", re.ASCII | re.IGNORECASE)

#: Yields the bytes from start up to, not including, stop.
Read = Callable[[int, int], Iterable[bytes]]


def parse(header: str | None, size: int) -> tuple[int, int] | None:
    """Return the half-open range a header asks for; None where all is meant. Raise RangeNotSatisfiable outside.

    A header that is malformed or names several ranges is ignored, as the RFC allows.
    """
    match = _SINGLE.fullmatch(header.strip()) if header else None
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        start, stop = max(0, size - int(last)), size
        if int(last) == 0:
            raise RangeNotSatisfiable("The last 0 bytes were asked for.")
    else:
        start, stop = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None
    if start >= size:
        raise RangeNotSatisfiable(f"The content has {size} bytes; byte {start} lies behind its end.")
    return start, stop


def quoted(etag: str) -> str:
    """Return an entity tag as it stands in a header."""
    return etag if etag.startswith('"') else f'"{etag}"'


def listed(header: str) -> list[str]:
    """Return the entity tags of a header, as they stand there."""
    return [tag.strip() for tag in header.split(",")]


def same_tag(header: str, etag: str) -> bool:
    """Tell whether a list of entity tags names this one, weakly compared."""
    return any(tag.removeprefix("W/") in {"*", etag} for tag in listed(header))


def begun(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Begin a body before its head is sent, so that a store that does not answer is still answered as a problem."""
    rest = iter(pieces)
    return _begun(next(rest, b""), rest)


def _begun(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


def serve(read: Read, *, size: int, etag: str, media_type: str, headers: Mapping[str, str] | None = None) -> Response:
    """Answer this GET or HEAD with a content of known size, whole or in part, in constant memory."""
    tag = quoted(etag)
    fixed = {"ETag": tag, "Accept-Ranges": "bytes", "Cache-Control": "private, no-cache"} | dict(headers or {})
    if (wanted := request.headers.get("If-Match")) is not None and tag not in listed(wanted) and wanted.strip() != "*":
        return problem_response(PreconditionFailed(), {"ETag": tag})
    if same_tag(request.headers.get("If-None-Match", ""), tag):
        return empty_response(304, fixed)
    asked = request.headers.get("Range")
    if (condition := request.headers.get("If-Range")) is not None and condition.strip() != tag:
        asked = None
    try:
        part = parse(asked, size)
    except RangeNotSatisfiable as error:
        return problem_response(error, {"Content-Range": f"bytes */{size}", "Accept-Ranges": "bytes"})
    start, stop = part or (0, size)
    fixed["Content-Length"] = str(stop - start)
    if part:
        fixed["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    body = () if request.method == "HEAD" else begun(read(start, stop))
    return Response(body, 206 if part else 200, headers=fixed, content_type=media_type, direct_passthrough=True)
