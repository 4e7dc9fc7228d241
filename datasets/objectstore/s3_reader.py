"""Lines: kept-alive connections to S3 on which ranges of objects are read, by whoever drives them.

libcurl does the talking, so that time-outs, proxies and TLS are not ours to get wrong.
"""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import pycurl  # type: ignore[import-untyped]

from datasets.objectstore.connections import Connection, permitted
from datasets.objectstore.sigv4 import Signer, quoted
from errors import OriginChanged, OriginFailed

#: Bytes that libcurl reads from a connection at once; it does so ten times before it lets us look.
BUFFER = 32 << 10
#: Bytes, and seconds, after which what came is handed on. libcurl hands over 16 KiB at a time, and to hash and write
#: them each alone costs more than to receive them; but what has left the processor's cache by then costs as much again.
GATHERED, GATHERING = 128 << 10, 0.5
#: Bytes a second; below this for as long as a stall is borne, an origin is as good as silent.
SLOWEST = 1024
#: Answers that asking again does not change, and what they say.
FINAL: Mapping[int, str] = {
    400: "the request is refused (400)",
    401: "the connection's keys are refused (401)",
    403: "the connection's keys may not read it (403)",
    404: "it is not there any more (404)",
    405: "it may not be read (405)",
}
CHANGED = frozenset({412, 416})
GOOD = frozenset({200, 206})
SILENT = "it is too slow, or silent"
WORDS: Mapping[int, str] = {
    pycurl.E_COULDNT_CONNECT: "no connection",
    pycurl.E_COULDNT_RESOLVE_HOST: "its host has no address",
    pycurl.E_OPERATION_TIMEDOUT: SILENT,
    pycurl.E_ABORTED_BY_CALLBACK: SILENT,
    pycurl.E_PARTIAL_FILE: "it ended in mid-body",
    pycurl.E_RECV_ERROR: "the connection broke",
    pycurl.E_SEND_ERROR: "the connection broke",
    pycurl.E_GOT_NOTHING: "it hung up without an answer",
    pycurl.E_PEER_FAILED_VERIFICATION: "its certificate is not to be trusted",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How much is borne from an origin; seconds, and tries in a row that brought nothing."""

    connect: float = 10.0
    stall: float = 30.0
    tries: int = 6
    mismatches: int = 3
    first: float = 0.2
    longest: float = 10.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where an object lies in a bucket."""

    connection: Connection
    bucket: str
    key: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


class Trouble(Exception):
    """A request that did not bring what it should; the next may. ``wait``: what the origin asked for, in seconds."""

    def __init__(self, words: str, wait: float = 0.0) -> None:
        super().__init__(words)
        self.wait = wait


class Line:
    """One connection to S3, for one thread; hangs up when told to stop.

    With ``most``, whoever drives it looks at the clock, what comes is gathered until the end, and much more than so
    many bytes of it are not taken.
    """

    def __init__(self, patience: Patience, stop: threading.Event, most: int | None = None) -> None:
        self.curl = curl = pycurl.Curl()
        self._stall = patience.stall
        self._stop = stop
        self._signers: dict[Connection, tuple[str, Signer]] = {}
        self._place: Place | None = None
        self._start = 0
        self._take: Callable[[bytes], None] = _nowhere
        self._raised: BaseException | None = None
        self._gathered: list[bytes] = []
        self._came = self._taken = 0
        self._heard = self._handed = 0.0
        curl.setopt(curl.NOSIGNAL, 1)
        curl.setopt(curl.PROTOCOLS, curl.PROTO_HTTP | curl.PROTO_HTTPS)
        curl.setopt(curl.HTTP_VERSION, curl.CURL_HTTP_VERSION_1_1)
        curl.setopt(curl.PATH_AS_IS, 1)  # a key may have dots in it
        curl.setopt(curl.FAILONERROR, 1)  # the body of an error is not the object's
        curl.setopt(curl.CONNECTTIMEOUT_MS, int(patience.connect * 1000))
        curl.setopt(curl.LOW_SPEED_LIMIT, SLOWEST)
        curl.setopt(curl.LOW_SPEED_TIME, max(1, int(patience.stall)))
        curl.setopt(curl.WRITEFUNCTION, self._gathered.append)
        curl.setopt(curl.OPENSOCKETFUNCTION, _socket)
        if most is None:
            curl.setopt(curl.BUFFERSIZE, BUFFER)
            curl.setopt(curl.NOPROGRESS, 0)
            curl.setopt(curl.XFERINFOFUNCTION, self._look)
        else:
            curl.setopt(curl.MAXFILESIZE, most + (64 << 10))
        if (bundle := ssl.get_default_verify_paths().cafile) is not None:
            curl.setopt(curl.CAINFO, bundle)  # libcurl in a wheel does not know where this machine keeps its own

    def close(self) -> None:
        """Hang up."""
        self.curl.close()

    def read(self, place: Place, start: int, stop: int, etag: str | None, take: Callable[[bytes], None]) -> None:
        """Hand the bytes of a range to ``take``, or raise Trouble, OriginFailed, OriginChanged, or what it raised."""
        self.ask(place, start, stop, etag, take)
        code = 0
        try:
            self.curl.perform()
        except pycurl.error as error:
            code = error.args[0]
        self.end(code)

    def ask(self, place: Place, start: int, stop: int, etag: str | None, take: Callable[[bytes], None]) -> None:
        """Make ready to ask for a range."""
        curl = self.curl
        base, signer = self._signer(place.connection)
        path = f"/{place.bucket}/{quoted(place.key)}"
        lines = [f"range: bytes={start}-{stop - 1}"]
        if etag is not None and not etag.startswith("W/"):
            lines.append(f'if-match: "{etag.strip(chr(34))}"')
        if place.connection.access_key:
            lines += signer.headers(path, time.time(), {})
        curl.setopt(curl.URL, base + path)
        curl.setopt(curl.HTTPHEADER, lines)
        self._gathered.clear()
        self._place, self._start, self._take, self._raised = place, start, take, None
        self._came = self._taken = 0
        self._heard = self._handed = time.monotonic()

    def end(self, code: int) -> None:
        """Hand on what is left of a request that libcurl ended with ``code``, and raise what became of it."""
        try:
            status = self.curl.getinfo(pycurl.RESPONSE_CODE)
            if self._raised is None and status == 200 and self._start > 0:
                raise Trouble("it does not read by ranges")
            if self._raised is None and status in GOOD:
                self._hand_on()
            if self._raised is not None:
                raise self._raised
            if code:
                raise self._trouble(code, status)
            if status not in GOOD:
                raise OriginFailed(f"{self._place}: it answered with a status that means nothing here ({status}).")
        finally:
            self._take, self._raised = _nowhere, None

    def silent(self, now: float) -> bool:
        """Tell whether nothing came for longer than is borne."""
        came = len(self._gathered)
        if came != self._came:
            self._came, self._heard = came, now
        return now - self._heard > self._stall

    def _look(self, total: int, came: int, *upload: int) -> int:
        """Give up (1) or go on (0); asked once a second at least, and whenever something came."""
        now = time.monotonic()
        if came != self._came:
            self._came, self._heard = came, now
            if came - self._taken >= GATHERED or now - self._handed >= GATHERING:
                self._hand_on()
                self._taken, self._handed = came, now
        return int(self._raised is not None or self._stop.is_set() or now - self._heard > self._stall)

    def _hand_on(self) -> None:
        # an exception would be printed by pycurl, and be lost
        try:
            if self._gathered:
                data = self._gathered[0] if len(self._gathered) == 1 else b"".join(self._gathered)
                self._gathered.clear()
                self._take(data)
        except BaseException as error:
            self._raised = error

    def _trouble(self, code: int, status: int) -> Exception:
        if code == pycurl.E_HTTP_RETURNED_ERROR:
            if status in FINAL:
                return OriginFailed(f"{self._place}: {FINAL[status]}.")
            if status in CHANGED:
                return OriginChanged(f"{self._place} was changed since it was registered. Register a new version.")
            return Trouble(f"it answered {status}", float(self.curl.getinfo(pycurl.RETRY_AFTER)))
        return Trouble(WORDS.get(code, f"the transfer failed (libcurl {code})"))

    def _signer(self, connection: Connection) -> tuple[str, Signer]:
        if (known := self._signers.get(connection)) is None:
            parts = urlsplit(connection.endpoint)
            host = parts.hostname or ""
            host = f"[{host}]" if ":" in host else host
            if parts.port is not None and parts.port != {"http": 80, "https": 443}.get(parts.scheme):
                host += f":{parts.port}"
            signer = Signer(connection.access_key, connection.secret_key, connection.region, host)
            known = self._signers[connection] = f"{parts.scheme}://{host}", signer
        return known


def _socket(purpose: int, address: tuple[int, int, int, tuple[str, int]]) -> socket.socket | int:
    """Open a socket to an address that may be asked: names are resolved anew, and may say something else by now."""
    family, kind, protocol, (number, *_) = address
    return _Socket(family, kind, protocol) if permitted(number) else int(pycurl.SOCKET_BAD)


class _Socket(socket.socket):
    """A socket that libcurl works with a duplicate of; the original closes as soon as it is forgotten."""

    def __del__(self) -> None:
        self.close()


def _nowhere(data: bytes) -> None:
    raise Trouble("it gave more than was asked for")
