"""Transfers: files from object storage to this machine, several at a time, verified, retried, resumed where they broke.

libcurl does the talking, one handle a thread, so that time-outs, proxies and TLS are not ours to get wrong.
"""

import logging
import os
import queue
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable
from urllib.parse import urlsplit

import pycurl  # type: ignore[import-untyped]

from core.errors import Corrupt, NotFound, OriginChanged, OriginFailed
from datasets.cache import Near
from datasets.connections import Connection, permitted
from datasets.drafts import Draft, Mismatch, Pouring, TooLong, sound
from datasets.manifest import Entry
from datasets.signing import Signer, quoted
from datasets.stores.base import ObjectStore
from datasets.stretches import Stretch, batches, stretches

logger = logging.getLogger(__name__)

THREADS = 8
#: Seconds between two words on the progress.
PACE = 0.5
#: Bytes handed over at once.
BUFFER = 512 << 10
#: Requests handed to a thread at once, where they are small and many.
BATCH = 16
#: Bytes a second; below this for as long as a stall is borne, an origin is as good as silent.
SLOWEST = 1024
#: Bytes that, once they came, make up for the failures before them: a bad line must not end a long download.
AMENDS = 1 << 20
#: Seconds an origin may ask us to wait; who asks for more is not there.
LONGEST_WAIT = 60.0
#: Answers that asking again does not change, and what they say.
FINAL: Mapping[int, str] = {
    400: "the request is refused (400)",
    401: "the connection's keys are refused (401)",
    403: "the connection's keys may not read it (403)",
    404: "it is not there any more (404)",
    405: "it may not be read (405)",
}
CHANGED = frozenset({412, 416})


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
class Progress:
    """How far a download is. ``rate`` in bytes/s; ``cached``: bytes that did not come from the origin."""

    files: int
    bytes: int
    total_files: int
    total_bytes: int
    rate: float
    cached: int


@runtime_checkable
class Remote(Protocol):
    """What an object store may be besides: one that a connection leads to, past its adapter."""

    connection: Connection
    bucket: str
    prefix: str


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


class Stopped(Exception):
    """Another thread failed, so this one need not go on."""


def pause(failures: int, patience: Patience, chance: float) -> float:
    """Return how long to wait after so many failures in a row; ``chance`` in [0, 1) spreads who failed at once."""
    return min(patience.longest, patience.first * 2.0 ** (failures - 1)) * (0.5 + chance / 2)


class Line:
    """One kept-alive connection to S3, for one thread; hangs up when told to stop."""

    def __init__(self, patience: Patience, stop: threading.Event) -> None:
        self._curl = curl = pycurl.Curl()
        self._stall = patience.stall
        self._stop = stop
        self._heard = 0.0
        self._signers: dict[Connection, tuple[str, Signer]] = {}
        self._take: Callable[[bytes], None] = _nowhere
        self._raised: BaseException | None = None
        curl.setopt(curl.NOSIGNAL, 1)
        curl.setopt(curl.PROTOCOLS, curl.PROTO_HTTP | curl.PROTO_HTTPS)
        curl.setopt(curl.HTTP_VERSION, curl.CURL_HTTP_VERSION_1_1)
        curl.setopt(curl.PATH_AS_IS, 1)  # a key may have dots in it
        curl.setopt(curl.FAILONERROR, 1)  # the body of an error is not the object's
        curl.setopt(curl.BUFFERSIZE, BUFFER)
        curl.setopt(curl.CONNECTTIMEOUT_MS, int(patience.connect * 1000))
        curl.setopt(curl.LOW_SPEED_LIMIT, SLOWEST)
        curl.setopt(curl.LOW_SPEED_TIME, max(1, int(patience.stall)))
        curl.setopt(curl.NOPROGRESS, 0)
        curl.setopt(curl.XFERINFOFUNCTION, self._look)
        curl.setopt(curl.WRITEFUNCTION, self._write)
        curl.setopt(curl.OPENSOCKETFUNCTION, _socket)
        if (bundle := ssl.get_default_verify_paths().cafile) is not None:
            curl.setopt(curl.CAINFO, bundle)  # libcurl in a wheel does not know where this machine keeps its own

    def close(self) -> None:
        """Hang up."""
        self._curl.close()

    def read(self, place: Place, start: int, stop: int, etag: str | None, take: Callable[[bytes], None]) -> None:
        """Hand the bytes of a range to ``take``, or raise Trouble, OriginFailed, OriginChanged, or what it raised."""
        curl = self._curl
        base, signer = self._signer(place.connection)
        path = f"/{place.bucket}/{quoted(place.key)}"
        headers = {"range": f"bytes={start}-{stop - 1}"}
        if etag is not None and not etag.startswith("W/"):
            headers["if-match"] = f'"{etag.strip(chr(34))}"'
        if place.connection.access_key:
            lines = signer.headers(path, time.time(), headers)
        else:
            lines = [f"{name}: {value}" for name, value in headers.items()]
        curl.setopt(curl.URL, base + path)
        curl.setopt(curl.HTTPHEADER, lines)
        self._take, self._raised, self._heard = take, None, time.monotonic()
        try:
            curl.perform()
        except pycurl.error as error:
            if self._raised is not None:
                raise self._raised from None
            raise self._trouble(place, error.args[0]) from None
        finally:
            self._take = _nowhere
        if (status := curl.getinfo(curl.RESPONSE_CODE)) not in {200, 206}:
            raise OriginFailed(f"{place}: it answered with a status that means nothing here ({status}).")
        if status == 200 and start > 0:
            raise Trouble("it does not read by ranges")

    def _look(self, *sizes: int) -> int:
        """Give up (1) or go on (0); asked once a second at least, and once a piece."""
        return int(self._stop.is_set() or time.monotonic() - self._heard > self._stall)

    def _write(self, data: bytes) -> int | None:
        # an exception would be printed by pycurl, and be lost
        self._heard = time.monotonic()
        try:
            self._take(data)
        except BaseException as error:
            self._raised = error
            return 0
        return None

    def _trouble(self, place: Place, code: int) -> Exception:
        status = self._curl.getinfo(self._curl.RESPONSE_CODE)
        if code == pycurl.E_HTTP_RETURNED_ERROR:
            if status in FINAL:
                return OriginFailed(f"{place}: {FINAL[status]}.")
            if status in CHANGED:
                return OriginChanged(f"{place} was changed since it was registered. Register a new version.")
            return Trouble(f"it answered {status}", float(self._curl.getinfo(self._curl.RETRY_AFTER)))
        words = {
            pycurl.E_COULDNT_CONNECT: "no connection",
            pycurl.E_COULDNT_RESOLVE_HOST: "its host has no address",
            pycurl.E_OPERATION_TIMEDOUT: "it is too slow, or silent",
            pycurl.E_ABORTED_BY_CALLBACK: "it is too slow, or silent",
            pycurl.E_PARTIAL_FILE: "it ended in mid-body",
            pycurl.E_RECV_ERROR: "the connection broke",
            pycurl.E_SEND_ERROR: "the connection broke",
            pycurl.E_GOT_NOTHING: "it hung up without an answer",
            pycurl.E_PEER_FAILED_VERIFICATION: "its certificate is not to be trusted",
        }
        return Trouble(words.get(code, f"the transfer failed (libcurl {code})"))

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
    raise TooLong


class Tally:
    """What has come so far; several threads add to it."""

    def __init__(self, total_files: int, total_bytes: int) -> None:
        self._lock = threading.Lock()
        self.total_files = total_files
        self.total_bytes = total_bytes
        self._files = self._bytes = self._cached = 0
        self._seen: tuple[float, int] = (time.monotonic(), 0)

    def came(self, size: int, files: int) -> None:
        """Count bytes from the origin, and files that they made whole."""
        with self._lock:
            self._bytes += size
            self._files += files

    def found(self, size: int) -> None:
        """Count a file that need not come from the origin."""
        with self._lock:
            self._files += 1
            self._bytes += size
            self._cached += size

    def progress(self) -> Progress:
        """Return how far it is; the rate is that since the last time."""
        now = time.monotonic()
        with self._lock:
            then, before = self._seen
            self._seen = now, self._bytes
            rate = (self._bytes - before) / max(now - then, 1e-3)
            return Progress(self._files, self._bytes, self.total_files, self.total_bytes, rate, self._cached)


class Transfer:
    """Brings entries' files into a draft: from something near if that has them, else from where they lie."""

    def __init__(
        self,
        store: ObjectStore,
        connections: Mapping[str, Connection],
        *,
        near: Near | None = None,
        threads: int = THREADS,
        patience: Patience | None = None,
    ) -> None:
        self._store = store
        self._connections = connections
        self._near = near
        self._threads = threads
        self._patience = patience or Patience()

    def fetch(self, entries: Iterable[Entry], draft: Draft, tally: Tally, say: Callable[[Progress], None]) -> None:
        """Return when every file is there and verified. Raise what the first of them failed of.

        ``entries`` is read as files are needed, in this thread; ``say`` is called in it, too.
        """
        crew = _Crew(lambda stretch, line, stop: self._serve(stretch, draft, tally, line, stop), self._patience)
        try:
            crew.start(self._threads)
            said = time.monotonic()
            most = max(1, min(BATCH, tally.total_files // (4 * self._threads)))  # few files are for all threads
            for batch in batches(stretches(entries), most):
                while not crew.offer(batch, PACE):
                    said = _say_at_times(said, tally, say)
                said = _say_at_times(said, tally, say)
            crew.close()
            while not crew.finish(PACE):
                said = _say_at_times(said, tally, say)
        finally:
            crew.end()
        crew.reckon()

    def _serve(self, stretch: Stretch, draft: Draft, tally: Tally, line: Line, stop: threading.Event) -> None:
        if self._near is None:
            return self._pour(stretch, draft, tally, line, stop)
        missing = []
        for entry in stretch.entries:
            if stop.is_set():
                raise Stopped
            if entry.size and self._from_near(self._near, entry, draft):
                tally.found(entry.size)
            else:
                missing.append(entry)
        for rest in stretches(missing):
            self._pour(rest, draft, tally, line, stop)
            for entry in rest.entries:
                if entry.size:
                    self._near.put(entry.digest, Path(draft.path(entry)))

    @staticmethod
    def _from_near(near: Near, entry: Entry, draft: Draft) -> bool:
        with os.fdopen(draft.open(entry), "w+b") as file:
            came = near.get(entry.digest, entry.size, file)
        if not came:
            return False
        if sound(Path(draft.path(entry)), entry.size, entry.digest):
            return True
        logger.warning("the cache gave wrong bytes for %s; they come from the origin", entry.digest)
        return False

    def _pour(self, stretch: Stretch, draft: Draft, tally: Tally, line: Line, stop: threading.Event) -> None:
        try:
            pouring = Pouring(stretch, draft, tally.came)
        except Mismatch:
            raise Corrupt(f"An empty file of {stretch.source} has the digest of another; it was not used.") from None
        try:
            self._pour_all(stretch, pouring, line, stop)
        finally:
            pouring.close()

    def _pour_all(self, stretch: Stretch, pouring: Pouring, line: Line, stop: threading.Event) -> None:
        def take(data: bytes) -> None:
            if stop.is_set():
                raise Stopped
            pouring.write(data)

        place = self._place(stretch.source)
        failures = mismatches = 0
        while not pouring.done:
            if stop.is_set():
                raise Stopped
            before = pouring.position
            wait = 0.0
            try:
                self._read(place, pouring.position, stretch, take, line)
                words = "it gave less than was asked for"
            except Mismatch:
                mismatches += 1
                words = "its bytes are not those that were registered"
                pouring.restart()
            except TooLong:
                words = "it gave more than was asked for"
            except Trouble as trouble:
                words, wait = str(trouble), trouble.wait
            if pouring.done:
                return
            failures = 1 if pouring.position - before >= AMENDS else failures + 1
            if mismatches >= self._patience.mismatches:
                raise Corrupt(f"{place}: {words}, {mismatches} times over. They were not used.")
            if failures >= self._patience.tries or wait > LONGEST_WAIT:
                raise OriginFailed(f"{place}: {words}; given up after {failures} tries.")
            logger.info("%s: %s; trying again", place, words)
            if stop.wait(max(wait, pause(failures, self._patience, random.random()))):
                raise Stopped

    def _read(
        self, place: Place | str, start: int, stretch: Stretch, take: Callable[[bytes], None], line: Line
    ) -> None:
        if isinstance(place, Place):
            return line.read(place, start, stretch.stop, stretch.etag, take)
        try:
            for chunk in self._store.get(place, start, stretch.stop - start):
                take(chunk)
        except NotFound:
            raise OriginFailed(f"{place} is not in the object store any more.") from None

    def _place(self, source: str) -> Place | str:
        """Return where an object lies: in a bucket, or under a key of a store that only its adapter can read."""
        kind, _, rest = source.partition(":")
        if kind == "store":
            if not isinstance(self._store, Remote):
                return rest
            return Place(self._store.connection, self._store.bucket, self._store.prefix + rest)
        name, _, rest = rest.partition("/")
        bucket, _, key = rest.partition("/")
        if kind != "s3" or not key:
            raise OriginFailed(f"{source} names no object.")
        if name not in self._connections:
            raise OriginFailed(f"s3://{bucket}/{key}: there is no connection {name} on this node.")
        return Place(self._connections[name], bucket, key)


def _say_at_times(said: float, tally: Tally, say: Callable[[Progress], None]) -> float:
    now = time.monotonic()
    if now - said < PACE:
        return said
    say(tally.progress())
    return now


class _Crew:
    """Threads that serve stretches, each with a line of its own, until the first of them fails."""

    def __init__(self, serve: Callable[[Stretch, Line, threading.Event], None], patience: Patience) -> None:
        self._serve = serve
        self._patience = patience
        self._waiting: queue.Queue[list[Stretch] | None] = queue.Queue()
        self._room = threading.Semaphore(0)
        self._stop = threading.Event()
        self._failures: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def start(self, threads: int) -> None:
        """Begin; threads that find nothing to do cost little."""
        for number in range(threads):
            self._room.release(2)
            thread = threading.Thread(target=self._work, name=f"transfer-{number}")
            thread.start()
            self._threads.append(thread)

    def offer(self, batch: list[Stretch], seconds: float) -> bool:
        """Hand stretches over; False if nobody could take it in this time. Raise Stopped once one has failed."""
        taken = self._room.acquire(timeout=seconds)
        if self._stop.is_set():
            self.reckon()
        if taken:
            self._waiting.put(batch)
        return taken

    def close(self) -> None:
        """Let every thread end when all that was handed over is served."""
        for _ in self._threads:
            self._waiting.put(None)

    def finish(self, seconds: float) -> bool:
        """Wait for that; False if it has not come in this time."""
        if self._threads:
            self._threads[-1].join(seconds)
        while self._threads and not self._threads[-1].is_alive():
            self._threads.pop()
        return not self._threads

    def end(self) -> None:
        """Have the threads that are still there end now, and wait for them."""
        self._stop.set()
        self.close()
        for thread in self._threads:
            thread.join()

    def reckon(self) -> None:
        """Raise what the first thread failed of."""
        if self._failures:
            raise self._failures[0]

    def _work(self) -> None:
        line = Line(self._patience, self._stop)
        try:
            while (batch := self._waiting.get()) is not None and not self._stop.is_set():
                for stretch in batch:
                    self._serve(stretch, line, self._stop)
                self._room.release()
        except Stopped:
            pass
        except BaseException as error:
            self._failures.append(error)
            self._stop.set()
            self._room.release()
        finally:
            line.close()
