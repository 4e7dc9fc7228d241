"""The wire of tus 1.0 (tus.io/protocols/resumable-upload): what its headers say, and what every answer carries."""

import base64
import binascii
import queue
import re
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any

from core.domain.uploads import ALGORITHMS, Checksum
from errors import BadRequest, Invalid, TruncatedUpload

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
#: What a client that can only POST may mean (X-HTTP-Method-Override).
METHODS = frozenset({"HEAD", "GET", "POST", "PATCH", "DELETE", "OPTIONS"})
#: Characters of an Upload-Metadata header.
LONGEST_METADATA = 4096
#: A read waits until it has all it asked for, so what a thin line brings is asked for in small pieces: what was read
#: when a process dies counts, and what waits in a read does not.
LEAST, FIRST, MOST = 1 << 10, 1 << 12, 1 << 16
#: Seconds that one read should take at most.
READ = 0.1
#: Reads that may wait to be stored; they come while the ones before go to disk.
AHEAD = 32
#: Seconds between two looks at a line that is silent.
TICK = 0.1
_DIGITS = re.compile(r"[0-9]{1,16}", re.ASCII)
_KEY = re.compile(r"[\x21-\x2b\x2d-\x7e]{1,255}")
_UPLOAD = re.compile(rf"(?:.*?{PATH}/)?([0-9a-z]{{26}})/?")


def number(name: str, text: str | None) -> int | None:
    """Read a header that holds bytes; None where it is missing."""
    if text is None:
        return None
    digits = text.strip(" \t")  # what may surround a value; Python takes more for space
    if not _DIGITS.fullmatch(digits):
        raise BadRequest(f"{name} is a whole number of bytes, not {text[:40]!r}.")
    return int(digits)


def metadata(text: str) -> dict[str, str | None]:
    """Read an Upload-Metadata header: ``key base64,key base64,key``; an empty one stands for none."""
    if len(text) > LONGEST_METADATA:
        raise BadRequest(f"Upload-Metadata has at most {LONGEST_METADATA:,} characters.")
    found: dict[str, str | None] = {}
    for pair in filter(None, (part.strip(" ") for part in text.split(","))):
        key, space, value = pair.partition(" ")
        if not _KEY.fullmatch(key):
            raise BadRequest("Upload-Metadata: a key is printable ASCII without spaces and commas.")
        if key in found:
            raise BadRequest(f"Upload-Metadata: the key {key[:40]!r} is there twice.")
        found[key] = _decoded(key, value.strip(" ")) if space else None
    return found


def _decoded(key: str, value: str) -> str:
    try:
        return base64.b64decode(value, validate=True).decode(errors="replace")
    except (binascii.Error, ValueError):
        raise BadRequest(f"Upload-Metadata: the value of {key[:40]!r} is not base64.") from None


def checksum(text: str | None) -> Checksum | None:
    """Read an Upload-Checksum header: ``sha1 base64``."""
    if text is None:
        return None
    algorithm, _, value = text.strip().partition(" ")
    if algorithm not in ALGORITHMS:
        raise BadRequest(f"Upload-Checksum: there are {' and '.join(ALGORITHMS)}, not {algorithm[:40]!r}.")
    try:
        return Checksum(algorithm, base64.b64decode(value.strip(), validate=True))
    except (binascii.Error, ValueError):
        raise BadRequest("Upload-Checksum: the digest is not base64.") from None


def upload_id(reference: str) -> str:
    """Return the upload that an id or an address names."""
    match = _UPLOAD.fullmatch(reference)
    if match is None:
        raise Invalid(f"{reference[:200]!r} is no upload's id or address.")
    return match[1]


def concat(text: str | None) -> tuple[str, list[str]]:
    """Read an Upload-Concat header: the kind of upload, and of a final one the partial ones it is made of."""
    if text is None:
        return "whole", []
    kind, semicolon, rest = text.strip().partition(";")
    if kind == "partial" and not semicolon:
        return "partial", []
    if kind != "final" or not rest.split():
        raise BadRequest("Upload-Concat is `partial`, or `final;` and the addresses of partial uploads.")
    return "final", [upload_id(reference) for reference in rest.split()]


def received(stream: IO[bytes], length: int | None) -> Generator[bytes, None, None]:
    """Yield a body as it comes, nothing (``b""``) now and then while nothing comes, and end where it ends.

    That is where it should end, or where the line broke: a server's stream cannot tell the two apart, and need not,
    for the offset says what arrived. Close it before answering: granian stands still, all of it, when a request is
    answered while its body is being read.
    """
    arrived: queue.Queue[bytes | None] = queue.Queue(AHEAD)
    left = threading.Event()

    def read() -> None:
        for chunk in _read(stream, length):
            while not left.is_set():
                try:
                    arrived.put(chunk, timeout=TICK)
                    break
                except queue.Full:
                    continue
            if left.is_set():
                return

    reader = threading.Thread(target=read, name="upload-reader", daemon=True)
    reader.start()
    try:
        while True:
            try:
                chunk = arrived.get(timeout=TICK)
            except queue.Empty:
                yield b""
                continue
            if chunk is None:
                return
            yield chunk
    finally:
        left.set()
        reader.join()


def _read(stream: IO[bytes], length: int | None) -> Iterator[bytes | None]:
    left, size = length, FIRST
    while left is None or left > 0:
        began = time.monotonic()
        try:
            chunk = stream.read(size if left is None else min(size, left))
        except (OSError, TruncatedUpload):
            break
        if not chunk:
            break
        if left is not None:
            left -= len(chunk)
        size = max(LEAST, size // 4) if time.monotonic() - began > READ else min(MOST, size * 2)
        yield chunk
    yield None


class Tus:
    """WSGI middleware for the addresses of uploads: other methods by header, and the version on every answer."""

    def __init__(self, app: "WSGIApplication") -> None:
        self._app = app

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path != PATH and not path.startswith(f"{PATH}/"):
            return self._app(environ, start_response)
        meant = environ.get("HTTP_X_HTTP_METHOD_OVERRIDE", "").strip().upper()
        if meant in METHODS:
            environ["REQUEST_METHOD"] = meant

        def answer(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], object]:
            headers = [*headers, ("Tus-Resumable", VERSION)]
            if meant == "HEAD":  # the server knows of no HEAD, and would announce a body that does not come
                headers = [(name, value) for name, value in headers if name.lower() != "content-length"]
            return start_response(status, headers, exc_info) if exc_info else start_response(status, headers)

        return self._app(environ, answer)
