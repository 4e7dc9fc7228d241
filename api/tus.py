"""Protocol of tus 1.0 (tus.io/protocols/resumable-upload): request headers, request bodies, and WSGI middleware."""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any

from api.request_guard import read_arrived
from common.errors import BadRequest, Invalid, TruncatedUpload
from core.domain.submissions.uploads import ALGORITHMS, Checksum

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

PATH = "/v1/uploads"
VERSION = "1.0.0"
EXTENSIONS = (
    "creation",
    "creation-with-upload",
    "creation-defer-length",
    "checksum",
    "expiration",
    "termination",
    "concatenation",
)
MEDIA_TYPE = "application/offset+octet-stream"
#: Methods that X-HTTP-Method-Override accepts, for clients that can only POST.
METHODS = frozenset({"HEAD", "GET", "POST", "PATCH", "DELETE", "OPTIONS"})
#: Most characters of an Upload-Metadata header.
LONGEST_METADATA = 4096
#: Most bytes of a read.
LARGEST_READ = 1 << 20
#: Seconds between two polls of a connection without data.
POLL_SECONDS = 0.1
_DIGITS = re.compile(r"[0-9]{1,16}", re.ASCII)
_KEY = re.compile(r"[\x21-\x2b\x2d-\x7e]{1,255}")
_UPLOAD = re.compile(rf"(?:.*?{PATH}/)?([0-9a-z]{{26}})/?")


def number(name: str, text: str | None) -> int | None:
    """Parse a header with a number of bytes; None if it is missing."""
    if text is None:
        return None
    digits = text.strip(" \t")  # the white space of HTTP; str.strip() removes more
    if not _DIGITS.fullmatch(digits):
        raise BadRequest(f"{name} must be a whole number of bytes, not {text[:40]!r}.")
    return int(digits)


def metadata(text: str) -> dict[str, str | None]:
    """Parse an Upload-Metadata header: ``key base64,key base64,key``; an empty header has no pairs."""
    if len(text) > LONGEST_METADATA:
        raise BadRequest(f"Upload-Metadata may have at most {LONGEST_METADATA:,} characters.")
    values: dict[str, str | None] = {}
    for pair in filter(None, (part.strip(" ") for part in text.split(","))):
        key, space, value = pair.partition(" ")
        if not _KEY.fullmatch(key):
            raise BadRequest("Upload-Metadata: a key must be printable ASCII without spaces and commas.")
        if key in values:
            raise BadRequest(f"Upload-Metadata: the key {key[:40]!r} appears twice.")
        values[key] = _decoded(key, value.strip(" ")) if space else None
    return values


def _decoded(key: str, value: str) -> str:
    try:
        return base64.b64decode(value, validate=True).decode(errors="replace")
    except (binascii.Error, ValueError):
        raise BadRequest(f"Upload-Metadata: the value of {key[:40]!r} is not base64.") from None


def checksum(text: str | None) -> Checksum | None:
    """Parse an Upload-Checksum header: algorithm and base64 digest, ``sha1 2jmj...``."""
    if text is None:
        return None
    algorithm, _, value = text.strip().partition(" ")
    if algorithm not in ALGORITHMS:
        raise BadRequest(f"Upload-Checksum: use {' or '.join(ALGORITHMS)}, not {algorithm[:40]!r}.")
    try:
        return Checksum(algorithm, base64.b64decode(value.strip(), validate=True))
    except (binascii.Error, ValueError):
        raise BadRequest("Upload-Checksum: the digest is not base64.") from None


def upload_id(reference: str) -> str:
    """Return the id of an upload from its id or its address."""
    match = _UPLOAD.fullmatch(reference)
    if match is None:
        raise Invalid(f"{reference[:200]!r} is not the id or the address of an upload.")
    return match[1]


def concat(text: str | None) -> tuple[str, list[str]]:
    """Parse an Upload-Concat header: the kind of upload, and for `final` the ids of its partial uploads."""
    if text is None:
        return "whole", []
    kind, semicolon, rest = text.strip().partition(";")
    if kind == "partial" and not semicolon:
        return "partial", []
    if kind != "final" or not rest.split():
        raise BadRequest("Upload-Concat must be `partial`, or `final;` and the addresses of partial uploads.")
    return "final", [upload_id(reference) for reference in rest.split()]


def received(stream: IO[bytes], length: int | None) -> Iterator[bytes]:
    """Yield the chunks of a body as they arrive, and ``b""`` every POLL_SECONDS while no data arrives.

    The iterator ends with the body or with the connection: the two cannot be distinguished without a Content-Length,
    and need not be, because the offset tells the client how much was stored.
    """
    remaining = length
    while remaining is None or remaining > 0:
        size = LARGEST_READ if remaining is None else min(LARGEST_READ, remaining)
        try:
            chunk = read_arrived(stream, size, POLL_SECONDS)
        except (OSError, TruncatedUpload):
            return
        if chunk is None:
            return
        if remaining is not None:
            remaining -= len(chunk)
        yield chunk


def is_upload(environ: "WSGIEnvironment") -> bool:
    """Return whether a request is for an address of uploads; its body may be slow, because it is resumable."""
    path: str = environ.get("PATH_INFO", "")
    return path == PATH or path.startswith(f"{PATH}/")


class Tus:
    """WSGI middleware for the addresses of uploads: X-HTTP-Method-Override, and Tus-Resumable in every response."""

    def __init__(self, app: "WSGIApplication") -> None:
        self._app = app

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        if not is_upload(environ):
            return self._app(environ, start_response)
        override = environ.get("HTTP_X_HTTP_METHOD_OVERRIDE", "").strip().upper()
        if override in METHODS:
            environ["REQUEST_METHOD"] = override

        def start_with_version(
            status: str, headers: list[tuple[str, str]], exc_info: Any = None
        ) -> Callable[[bytes], object]:
            headers = [*headers, ("Tus-Resumable", VERSION)]
            if override == "HEAD":  # the server sees a POST, and would announce a body that is not sent
                headers = [(name, value) for name, value in headers if name.lower() != "content-length"]
            return start_response(status, headers, exc_info) if exc_info else start_response(status, headers)

        return self._app(environ, start_with_version)
