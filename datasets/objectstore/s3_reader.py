"""S3 range reads over kept-alive libcurl connections, driven by a thread or by curl_multi.

libcurl implements time-outs, proxies and TLS.
"""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import pycurl  # type: ignore[import-untyped]

from common.errors import OriginChanged, OriginFailed, OriginRefused
from datasets.objectstore.connections import Connection, permitted
from datasets.objectstore.sigv4 import Signer, quoted

#: Bytes that libcurl reads from a connection at once; it does so ten times between two progress callbacks.
BUFFER = 32 << 10
#: Bytes, and seconds, after which received data is passed on. libcurl delivers 16 KiB at a time, and hashing and
#: writing each piece alone costs more than receiving it; but data that has left the CPU's cache costs as much again.
FLUSH_BYTES, FLUSH_INTERVAL = 128 << 10, 0.5
#: Bytes/s; an origin below this rate for the length of a stall counts as unresponsive.
LOWEST_RATE = 1024
#: Statuses that a retry does not change, and their messages.
PERMANENT_ERRORS: Mapping[int, str] = {
    400: "the request is refused (400)",
    401: "the connection's keys are refused (401)",
    403: "the connection's keys may not read it (403)",
    404: "it does not exist any more (404)",
    405: "reading it is not allowed (405)",
}
CHANGED = frozenset({412, 416})
SUCCESS = frozenset({200, 206})
STALLED = "it is too slow, or does not respond"
CURL_ERRORS: Mapping[int, str] = {
    pycurl.E_COULDNT_CONNECT: "connection failed",
    pycurl.E_COULDNT_RESOLVE_HOST: "its host name does not resolve",
    pycurl.E_OPERATION_TIMEDOUT: STALLED,
    pycurl.E_ABORTED_BY_CALLBACK: STALLED,
    pycurl.E_PARTIAL_FILE: "the body was cut off",
    pycurl.E_RECV_ERROR: "the connection broke",
    pycurl.E_SEND_ERROR: "the connection broke",
    pycurl.E_GOT_NOTHING: "the connection was closed without a response",
    pycurl.E_PEER_FAILED_VERIFICATION: "its TLS certificate is not trusted",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryLimits:
    """Time-outs and retries of reads from an origin.

    ``connect`` and ``stall``: time-outs in seconds; ``tries``: failures in a row without progress; ``mismatches``:
    wrong digests; ``first`` and ``longest``: bounds of the exponential back-off in seconds.
    """

    connect: float = 10.0
    stall: float = 30.0
    tries: int = 6
    mismatches: int = 3
    first: float = 0.2
    longest: float = 10.0


@dataclass(frozen=True, slots=True)
class ObjectLocation:
    """An object in a bucket, and the connection to read it through."""

    connection: Connection
    bucket: str
    key: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


class ReadError(Exception):
    """A request failed; a retry may succeed. ``wait``: the origin's Retry-After in seconds."""

    def __init__(self, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        self.wait = wait


class S3Connection:
    """One connection to S3, for one thread; aborts its request when ``stop`` is set.

    With ``most`` (bytes), the caller drives the transfer and checks for stalls: data is gathered until the end, and a
    body much larger than ``most`` is refused.
    """

    def __init__(self, retry_limits: RetryLimits, stop: threading.Event, most: int | None = None) -> None:
        self.curl = curl = pycurl.Curl()
        self._stall = retry_limits.stall
        self._stop = stop
        self._signers: dict[Connection, tuple[str, Signer]] = {}
        self._location: ObjectLocation | None = None
        self._start = 0
        self._on_data: Callable[[bytes], None] = _reject
        self._error: BaseException | None = None
        self._gathered: list[bytes] = []
        self._received = self._flushed = 0
        self._received_at = self._flushed_at = 0.0
        curl.setopt(curl.NOSIGNAL, 1)
        curl.setopt(curl.PROTOCOLS, curl.PROTO_HTTP | curl.PROTO_HTTPS)
        curl.setopt(curl.HTTP_VERSION, curl.CURL_HTTP_VERSION_1_1)
        curl.setopt(curl.PATH_AS_IS, 1)  # a key may have dots in it
        curl.setopt(curl.FAILONERROR, 1)  # the body of an error response must not be taken for the object's
        curl.setopt(curl.CONNECTTIMEOUT_MS, int(retry_limits.connect * 1000))
        curl.setopt(curl.LOW_SPEED_LIMIT, LOWEST_RATE)
        curl.setopt(curl.LOW_SPEED_TIME, max(1, int(retry_limits.stall)))
        curl.setopt(curl.WRITEFUNCTION, self._gathered.append)
        curl.setopt(curl.OPENSOCKETFUNCTION, _open_socket)
        if most is None:
            curl.setopt(curl.BUFFERSIZE, BUFFER)
            curl.setopt(curl.NOPROGRESS, 0)
            curl.setopt(curl.XFERINFOFUNCTION, self._on_transfer_info)
        else:
            curl.setopt(curl.MAXFILESIZE, most + (64 << 10))
        if (ca_bundle := ssl.get_default_verify_paths().cafile) is not None:
            curl.setopt(curl.CAINFO, ca_bundle)  # libcurl in a wheel does not know this machine's CA bundle

    def close(self) -> None:
        """Close the connection."""
        self.curl.close()

    def read(
        self, location: ObjectLocation, start: int, stop: int, etag: str | None, on_data: Callable[[bytes], None]
    ) -> None:
        """Pass the bytes ``[start, stop)`` to ``on_data``.

        Raise ReadError, OriginFailed, OriginChanged, or the error that ``on_data`` raised.
        """
        self.prepare(location, start, stop, etag, on_data)
        code = 0
        try:
            self.curl.perform()
        except pycurl.error as error:
            code = error.args[0]
        self.finish(code)

    def prepare(
        self, location: ObjectLocation, start: int, stop: int, etag: str | None, on_data: Callable[[bytes], None]
    ) -> None:
        """Set up the request for the bytes ``[start, stop)``, without sending it."""
        curl = self.curl
        base, signer = self._signer(location.connection)
        path = f"/{location.bucket}/{quoted(location.key)}"
        headers = [f"range: bytes={start}-{stop - 1}"]
        if etag is not None and not etag.startswith("W/"):
            headers.append(f'if-match: "{etag.strip(chr(34))}"')
        if location.connection.access_key:
            headers += signer.headers(path, time.time(), {})
        curl.setopt(curl.URL, base + path)
        curl.setopt(curl.HTTPHEADER, headers)
        self._gathered.clear()
        self._location, self._start, self._on_data, self._error = location, start, on_data, None
        self._received = self._flushed = 0
        self._received_at = self._flushed_at = time.monotonic()

    def finish(self, code: int) -> None:
        """Flush the remaining data of a request that libcurl ended with ``code``; raise the request's error, if any."""
        try:
            status = self.curl.getinfo(pycurl.RESPONSE_CODE)
            if self._error is None and status == 200 and self._start > 0:
                raise ReadError("it does not support range requests")
            if self._error is None and status in SUCCESS:
                self._flush()
            if self._error is not None:
                raise self._error
            if code:
                raise self._curl_error(code, status)
            if status not in SUCCESS:
                raise OriginFailed(f"{self._location}: it answered with an unexpected status ({status}).")
        finally:
            self._on_data, self._error = _reject, None

    def is_stalled(self, now: float) -> bool:
        """Tell whether no data came for longer than the stall limit."""
        received = len(self._gathered)
        if received != self._received:
            self._received, self._received_at = received, now
        return now - self._received_at > self._stall

    def _on_transfer_info(self, total: int, received: int, *upload: int) -> int:
        """Progress callback: abort (1) or continue (0). libcurl calls it at least once a second, and on new data."""
        now = time.monotonic()
        if received != self._received:
            self._received, self._received_at = received, now
            if received - self._flushed >= FLUSH_BYTES or now - self._flushed_at >= FLUSH_INTERVAL:
                self._flush()
                self._flushed, self._flushed_at = received, now
        return int(self._error is not None or self._stop.is_set() or now - self._received_at > self._stall)

    def _flush(self) -> None:
        # pycurl prints and drops an exception of a callback, so it is stored
        try:
            if self._gathered:
                data = self._gathered[0] if len(self._gathered) == 1 else b"".join(self._gathered)
                self._gathered.clear()
                self._on_data(data)
        except BaseException as error:
            self._error = error

    def _curl_error(self, code: int, status: int) -> Exception:
        if code == pycurl.E_HTTP_RETURNED_ERROR:
            if status in PERMANENT_ERRORS:
                return OriginRefused(f"{self._location}: {PERMANENT_ERRORS[status]}.")
            if status in CHANGED:
                return OriginChanged(f"{self._location} was changed since it was registered. Register a new version.")
            return ReadError(f"it answered {status}", float(self.curl.getinfo(pycurl.RETRY_AFTER)))
        return ReadError(CURL_ERRORS.get(code, f"the transfer failed (libcurl {code})"))

    def _signer(self, connection: Connection) -> tuple[str, Signer]:
        """Return the base URL and the signer of a connection; both are cached."""
        if (cached := self._signers.get(connection)) is None:
            parts = urlsplit(connection.endpoint)
            host = parts.hostname or ""
            host = f"[{host}]" if ":" in host else host
            if parts.port is not None and parts.port != {"http": 80, "https": 443}.get(parts.scheme):
                host += f":{parts.port}"
            signer = Signer(connection.access_key, connection.secret_key, connection.region, host)
            cached = self._signers[connection] = f"{parts.scheme}://{host}", signer
        return cached


def _open_socket(purpose: int, address: tuple[int, int, int, tuple[str, int]]) -> socket.socket | int:
    """Open a socket, unless the address is forbidden. Checked per connection: a name may resolve differently now."""
    family, kind, protocol, (number, *_) = address
    return _Socket(family, kind, protocol) if permitted(number) else int(pycurl.SOCKET_BAD)


class _Socket(socket.socket):
    """A socket of which libcurl uses a duplicate; the original is closed when it is garbage-collected."""

    def __del__(self) -> None:
        self.close()


def _reject(data: bytes) -> None:
    raise ReadError("it sent more bytes than requested")
