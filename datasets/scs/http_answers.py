"""HTTP responses: heads, problem documents, conditions and ranges (RFC 9110), as pure functions."""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus

Headers = Mapping[bytes, bytes]

STATUS = {status.value: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus}
#: Default detail of each refusal.
DETAIL = {
    400: "The request contradicts itself or is malformed.",
    401: "A bearer token that is valid for this service is required.",
    403: "The token is valid, but its namespace may not use this bucket.",
    404: "The object is not in the cache.",
    405: "Objects are read with GET and HEAD, and written with PUT.",
    408: "The request head did not arrive in time.",
    411: "A PUT needs a Content-Length; the end of a chunked body cannot be distinguished from a broken connection.",
    412: "A condition of the request does not hold.",
    413: "The object is larger than its bucket's quota or the total capacity.",
    414: "The request's target is too long.",
    416: "The range lies outside of the object.",
    431: "The request's head is too large.",
    500: "The cache service failed, and has logged the error.",
    503: "The service is overloaded, or its token authenticator is unavailable. Try again shortly.",
    507: "There is no room for the object, and no object may be evicted for it.",
}
CONDITIONS = frozenset({b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since"})
_RANGE = re.compile(rb"bytes=[ \t]*(?:([0-9]+)-([0-9]*)|-([0-9]+))[ \t]*", re.IGNORECASE)
_TAG = re.compile(rb'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"')
_SHA256 = re.compile(rb"(?:^|,)[ \t]*sha-256=:([A-Za-z0-9+/=]*):")
#: Digits of the largest number that is parsed; a longer number exceeds the size of any object.
_DIGITS = 19


def problem(status: int, date: bytes, *, detail: str | None = None, extra: bytes = b"", close: bool = False) -> bytes:
    """Return an error response with an application/problem+json body (RFC 9457)."""
    document = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    body = json.dumps(document | {"detail": detail or DETAIL[status]}).encode()
    return b"".join(
        (
            STATUS[status],
            b"Content-Type: application/problem+json\r\nContent-Length: %d\r\n" % len(body),
            extra,
            b"Connection: close\r\n" if close else b"",
            date,
            b"\r\n",
            body,
        )
    )


def empty(status: int, date: bytes, extra: bytes = b"", *, close: bool = False) -> bytes:
    """Return a response without a body."""
    length = b"" if status in (204, 304) else b"Content-Length: 0\r\n"
    return b"".join((STATUS[status], length, extra, b"Connection: close\r\n" if close else b"", date, b"\r\n"))


def failed_condition(headers: Headers, etag: bytes | None, modified: int, *, reading: bool) -> int | None:
    """Return 304 or 412 if a condition prevents the request, evaluated in the order of RFC 9110, 13.2.2.

    ``etag`` is None where there is no object.
    """
    if (value := headers.get(b"if-match")) is not None:
        if etag is None or (value.strip() != b"*" and etag not in _tags(value)):
            return 412
    elif (since := _seconds(headers.get(b"if-unmodified-since"))) is not None:
        if etag is None or modified > since:
            return 412
    if (value := headers.get(b"if-none-match")) is not None:
        if etag is not None and (value.strip() == b"*" or etag in {tag.removeprefix(b"W/") for tag in _tags(value)}):
            return 304 if reading else 412
    elif reading and etag is not None and (since := _seconds(headers.get(b"if-modified-since"))) is not None:
        if modified <= since:
            return 304
    return None


def ignores_range(if_range: bytes, etag: bytes, modified: int) -> bool:
    """Tell whether If-Range makes the server ignore the Range, because the client knows another version."""
    if if_range.startswith((b'"', b"W/")):
        return if_range != etag  # strong comparison: a weak tag never matches
    return _seconds(if_range) != modified


def parse_range(text: bytes, size: int) -> tuple[int, int] | bool | None:
    """Return start and end (exclusive) of a Range; None: send the whole object; False: unsatisfiable.

    A header that is not a single range of bytes is ignored, as RFC 9110 allows: malformed, in other units, or several.
    """
    match = _RANGE.fullmatch(text)
    if match is None:
        return None
    first, last, suffix = (_number(group) for group in match.groups())
    if suffix is not None:
        return (max(0, size - suffix), size) if suffix and size else False
    if first is None or (last is not None and last < first):
        return None
    if first >= size:
        return False
    return first, size if last is None else min(last + 1, size)


def content_digest(header: bytes | None) -> bytes | None:
    """Return the SHA-256 in a Content-Digest (RFC 9530), None without one; raise ValueError if it is malformed."""
    match = _SHA256.search(header) if header is not None else None
    if match is None:
        return None
    try:
        digest = base64.b64decode(match[1], validate=True)
    except binascii.Error:
        raise ValueError("Content-Digest") from None
    if len(digest) != 32:
        raise ValueError("Content-Digest")
    return digest


def _number(digits: bytes | None) -> int | None:
    if not digits:
        return None
    significant = digits.lstrip(b"0") or b"0"
    return int(significant) if len(significant) <= _DIGITS else 10**_DIGITS


def _tags(text: bytes) -> set[bytes]:
    return set(_TAG.findall(text))


def _seconds(date: bytes | None) -> int | None:
    if date is None:
        return None
    try:
        return int(parsedate_to_datetime(date.decode("ascii")).timestamp())
    except (ValueError, TypeError, OverflowError, IndexError):
        return None  # RFC 9110: an invalid date is ignored
