"""Bodies of S3 objects: ranges that are checked against the request, and resumed when the connection breaks."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

from minio import Minio
from minio.error import S3Error, ServerError
from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError

#: Most bytes of a chunk that is yielded.
CHUNK = 1 << 20


@dataclass(slots=True)
class ResponseBody:
    """A response body being read: the next offset, the remaining bytes, and the object's ETag."""

    response: BaseHTTPResponse | None
    offset: int
    remaining: int
    etag: str | None

    def close(self) -> None:
        if self.response is not None:
            self.response.close()  # a connection with unread data cannot be reused
            self.response.release_conn()
            self.response = None


class _InconsistentResponse(HTTPError):
    """The response contradicts the request or itself."""


def open_body(
    client: Minio, bucket: str, name: str, start: int, length: int | None = None, etag: str | None = None
) -> ResponseBody:
    """Request a part of an object, and check that the response headers match the requested range."""
    # Also the whole object is requested as a range: the response then declares the size of the object, too.
    end = "" if length is None else str(start + length - 1)
    headers: dict[str, str | list[str] | tuple[str]] = {"Range": f"bytes={start}-{end}"}
    if etag:
        headers["If-Match"] = f'"{etag}"'
    try:
        response = client.get_object(bucket, name, request_headers=headers)
    except S3Error as error:
        if error.code != "InvalidRange":
            raise
        client.stat_object(bucket, name)
        return ResponseBody(None, start, 0, etag)
    body = ResponseBody(response, start, 0, (response.headers.get("ETag") or "").strip('"') or etag)
    try:
        declared = int(response.headers["Content-Length"])
        first, last, total = _range(response)
        stop = total if length is None else min(start + length, total)
        if (first, last + 1, declared) != (start, stop, stop - start):
            raise _InconsistentResponse("a range that was not requested")
        body.remaining = declared
    except (KeyError, ValueError, _InconsistentResponse):
        body.close()
        raise _InconsistentResponse("an inconsistent response") from None
    return body


def _range(response: BaseHTTPResponse) -> tuple[int, int, int]:
    if response.status != 206:
        raise _InconsistentResponse("no partial content")
    unit, _, rest = response.headers["Content-Range"].partition(" ")
    span, _, total = rest.partition("/")
    first, _, last = span.partition("-")
    if unit != "bytes":
        raise _InconsistentResponse("a range unit other than bytes")
    return int(first), int(last), int(total)


def resuming(reopen: Callable[..., ResponseBody], body: ResponseBody, resumptions: int) -> Iterator[bytes]:
    """Yield a body; if it breaks off, request the rest of the same version (ETag), with exponential back-off."""
    failures = 0
    try:
        while body.remaining:
            try:
                if body.response is None:
                    body = reopen(body.offset, body.remaining, body.etag)
                chunk = cast(BaseHTTPResponse, body.response).read(min(CHUNK, body.remaining))
                if not chunk:
                    raise _InconsistentResponse("a truncated body")
            except (HTTPError, ServerError):
                failures += 1
                if failures > resumptions:
                    raise
                body.close()
                time.sleep(random.uniform(0.5, 1.0) * 0.1 * 2**failures)
                continue
            failures = 0
            body.offset += len(chunk)
            body.remaining -= len(chunk)
            yield chunk
    finally:
        body.close()
