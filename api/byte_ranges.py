"""Range and conditional requests (RFC 9110): Range, If-Range, If-Match, If-None-Match; 206, 304, 412 and 416."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from flask import Response, request

from api.blueprint import empty_response
from api.problem_responses import problem_response
from common.errors import PreconditionFailed, RangeNotSatisfiable

_SINGLE = re.compile(r"bytes\s*=\s*(\d{0,18})\s*-\s*(\d{0,18})\s*", re.ASCII | re.IGNORECASE)

#: Yields the bytes [start, stop) of a content.
Read = Callable[[int, int], Iterable[bytes]]


def parse(header: str | None, size: int) -> tuple[int, int] | None:
    """Return the half-open range of a Range header, or None for the whole content; raise RangeNotSatisfiable.

    A header that is malformed or has several ranges is ignored, as RFC 9110 allows.
    """
    match = _SINGLE.fullmatch(header.strip()) if header else None
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        start, stop = max(0, size - int(last)), size
        if int(last) == 0:
            raise RangeNotSatisfiable("The range `bytes=-0` is empty.")
    else:
        start, stop = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None
    if start >= size:
        raise RangeNotSatisfiable(f"The range begins at byte {start}, but the content has {size} bytes.")
    return start, stop


def read_ahead(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Read the first chunk now and return all chunks: an error of the store can still become a problem response."""
    iterator = iter(chunks)
    return _first_and_rest(next(iterator, b""), iterator)


def _first_and_rest(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


def serve(read: Read, *, size: int, etag: str, media_type: str, headers: Mapping[str, str] | None = None) -> Response:
    """Answer a GET or HEAD with a content, or with the range that the request has, in constant memory."""
    etag = etag.strip('"')
    tag = f'"{etag}"'
    response_headers = {"ETag": tag, "Accept-Ranges": "bytes", "Cache-Control": "private, no-cache"} | dict(
        headers or {}
    )
    if "If-Match" in request.headers and etag not in request.if_match:
        return problem_response(PreconditionFailed(), {"ETag": tag})
    if request.if_none_match.contains_weak(etag):
        return empty_response(304, response_headers)
    range_header = request.headers.get("Range")
    if (if_range := request.headers.get("If-Range")) is not None and if_range.strip() != tag:
        range_header = None
    try:
        byte_range = parse(range_header, size)
    except RangeNotSatisfiable as error:
        return problem_response(error, {"Content-Range": f"bytes */{size}", "Accept-Ranges": "bytes"})
    start, stop = byte_range or (0, size)
    response_headers["Content-Length"] = str(stop - start)
    if byte_range:
        response_headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    body = () if request.method == "HEAD" else read_ahead(read(start, stop))
    return Response(
        body, 206 if byte_range else 200, headers=response_headers, content_type=media_type, direct_passthrough=True
    )
