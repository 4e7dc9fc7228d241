"""Request bodies that have not arrived completely: their buffers, and the limits on their number, idleness and rate.

The event loop feeds a body as its bytes arrive; the thread of the request reads it. Only time in which the server waits
for the client counts against the client: a full buffer stops the clock.
"""

import asyncio
import io
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from common.errors import PlatformError, StalledBody, TooManyBodies

#: Bytes that must have arrived, of a body that has as many, before a thread is taken for its request.
FIRST_BYTES = 64 << 10
#: Most bytes of one body that wait in memory for the request's thread; more is received when half of them are read.
BUFFER = 1 << 20
#: Seconds without a byte after which a body may be ended to make room for another request's body.
REPLACEABLE = 2.0


class Reader(Enum):
    """Reader of an unfinished body; the number of bodies has a limit for each."""

    #: The event loop collects the body; the request has no thread yet.
    LOOP = "loop"
    #: A thread reads the body.
    THREAD = "thread"
    #: A thread reads a body that may be slow: that of a resumable upload.
    UPLOAD = "upload"


@dataclass(frozen=True, kw_only=True, slots=True)
class BodyLimits:
    """Limits on unfinished request bodies."""

    #: Seconds without a byte after which a body is ended.
    idle: float = 30.0
    #: Fewest bytes per second, on average, of a body that the client has had `grace` seconds to send.
    rate: float = 1024.0
    grace: float = 30.0
    #: Most bodies that the event loop collects.
    collected: int = 2048
    #: Most bodies that threads read; the same number again of resumable uploads.
    threads: int = 256

    def most(self, reader: Reader) -> int:
        """Return the largest number of unfinished bodies with this reader."""
        return self.collected if reader is Reader.LOOP else self.threads


@dataclass(slots=True)
class Progress:
    """How far a body has arrived: times in seconds of a monotonic clock."""

    moved_at: float
    received: int = 0
    #: Seconds that the server has waited for bytes, up to `moved_at`.
    waited: float = 0.0
    #: Whether the server waits for bytes now; it does not while the buffer is full.
    waiting: bool = True

    def move(self, count: int, now: float) -> None:
        """Record that ``count`` bytes have arrived."""
        self.waited += now - self.moved_at
        self.moved_at = now
        self.received += count

    def pause(self) -> None:
        """Stop the clock: the buffer is full."""
        self.waiting = False

    def resume(self, now: float) -> None:
        """Start the clock again."""
        self.moved_at, self.waiting = now, True

    def idle(self, now: float) -> float:
        """Return the seconds since the last byte, 0 while the server does not wait for bytes."""
        return now - self.moved_at if self.waiting else 0.0

    def fault(self, limits: BodyLimits, now: float, *, paced: bool) -> str | None:
        """Return what the client is told if the body is idle, or too slow where it is ``paced``; None if it is not."""
        if (idle := self.idle(now)) > limits.idle:
            return f"No byte of the body arrived for {limits.idle:g} seconds."
        waited = self.waited + idle
        if paced and waited > limits.grace and self.received < (waited - limits.grace) * limits.rate:
            return (
                f"The body arrives too slowly: {self.received:,} bytes in {waited:.0f} seconds, where "
                f"{limits.rate:g} bytes per second are required. Send large files as a resumable upload "
                "(`POST /v1/uploads`), which may be slow."
            )
        return None


class RequestBody(io.RawIOBase):
    """Body of one request: fed on the event loop, read by one thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, reader: Reader) -> None:
        super().__init__()
        self.reader = reader
        self.progress = Progress(loop.time())
        #: Set when FIRST_BYTES have arrived, or the body has ended.
        self.ready = asyncio.Event()
        self.discarded = 0
        self._loop = loop
        self._room = asyncio.Event()
        self._lock = threading.Condition()
        self._chunks: deque[bytes] = deque()
        #: Bytes of the first chunk that have been read.
        self._start = 0
        self._buffered = 0
        #: Bytes for which the request's thread waits: it is not woken for fewer.
        self._awaited = 0
        self._discarding = False
        #: Whether all bytes have arrived, or the connection has ended; the error with which the server ended the body.
        self.complete = False
        self.error: PlatformError | None = None
        self._arrival: asyncio.Future[bytes] | None = None

    # -- event loop

    @property
    def ended(self) -> bool:
        """Whether no more bytes arrive."""
        return self.complete or self.error is not None

    async def receive_whole(self, arrival: "asyncio.Future[bytes]") -> bytes:
        """Wait until all bytes have arrived; return them, or b"" if the server ends the body before."""
        self._arrival = arrival
        try:
            return await arrival
        except asyncio.CancelledError:
            if self.error is None:
                raise
            return b""

    async def feed(self, chunk: bytes) -> None:
        """Add bytes that arrived; wait while the buffer is full."""
        self.progress.move(len(chunk), self._loop.time())
        with self._lock:
            if self._discarding:
                self.discarded += len(chunk)
                return
            self._chunks.append(chunk)
            self._buffered += len(chunk)
            if full := self._buffered >= BUFFER:
                self._room.clear()
            if self._buffered >= FIRST_BYTES:
                self.ready.set()
            if self._buffered >= self._awaited:
                self._lock.notify()
        if full:
            self.progress.pause()
            await self._room.wait()
            self.progress.resume(self._loop.time())

    def finish(self) -> None:
        """Record that no more bytes arrive."""
        with self._lock:
            self.complete = True
            self._lock.notify()
        self.ready.set()

    def fail(self, error: PlatformError) -> None:
        """End the body: the thread that reads it raises the error after the bytes that have arrived."""
        with self._lock:
            self.error = error
            self._lock.notify()
        self.ready.set()
        self._room.set()
        if self._arrival is not None:
            self._arrival.cancel()

    def discard(self) -> None:
        """Discard what is buffered and what still arrives; called when the request is answered."""
        with self._lock:
            self._discarding = True
            self._chunks.clear()
            self._buffered = self._start = 0
        self._room.set()

    # -- thread of the request

    def readable(self) -> bool:
        """Return True: this is a stream for reading."""
        return True

    def read(self, size: int | None = -1) -> bytes:
        """Read ``size`` bytes, fewer only at the end; raise StalledBody if the server ended the body."""
        missing = -1 if size is None or size < 0 else size
        parts: list[bytes] = []
        while missing:
            chunk = self._take(missing, BUFFER // 2 if missing < 0 else min(missing, BUFFER // 2))
            if chunk is None:
                if self.error is not None and not parts:
                    raise self.error
                break
            parts.append(chunk)
            missing -= len(chunk) if missing > 0 else 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_arrived(self, size: int, seconds: float) -> bytes | None:
        """Return up to ``size`` bytes that have arrived: when there are FIRST_BYTES, or after ``seconds``.

        b"" if there are none, None at the end. Raise StalledBody if the server ended the body.
        """
        chunk = self._take(size, min(size, FIRST_BYTES), seconds)
        if chunk is None and self.error is not None:
            raise self.error
        return chunk

    def _take(self, most: int, awaited: int, seconds: float | None = None) -> bytes | None:
        """Wait for ``awaited`` bytes, at most so many seconds; remove a chunk from the buffer, None at the end.

        ``most``: most bytes of the chunk; a negative number: no limit.
        """
        with self._lock:
            self._awaited = awaited
            self._lock.wait_for(lambda: self._buffered >= awaited or self.ended, seconds)
            if not self._chunks:
                return None if self.ended else b""
            chunk, start = self._chunks[0], self._start
            if 0 < most < len(chunk) - start:  # the rest stays where it is: copying it for each read is slow
                self._start = start + most
                chunk = chunk[start : self._start]
            else:
                self._chunks.popleft()
                self._start = 0
                chunk = chunk[start:]
            was_full = self._buffered >= BUFFER // 2
            self._buffered -= len(chunk)
            has_room = was_full and self._buffered < BUFFER // 2
        if has_room:
            self._loop.call_soon_threadsafe(self._room.set)
        return chunk

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer, as `io` requires."""
        chunk = self.read(len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)


class UnfinishedBodies:
    """Table of the bodies that have not arrived completely; used on the event loop only."""

    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self._bodies: dict[Reader, dict[RequestBody, None]] = {reader: {} for reader in Reader}

    def __len__(self) -> int:
        return sum(map(len, self._bodies.values()))

    def admit(self, body: RequestBody, reader: Reader, now: float) -> PlatformError | None:
        """Add a body, or give it another reader; return the error if there are too many bodies with that reader.

        If there are, the body that has been idle longest is ended to make room: an attacker's silent bodies do not keep
        out the body of an honest client, which moves.
        """
        bodies = self._bodies[reader]
        if len(bodies) >= self._limits.most(reader):
            idlest = most_idle(bodies, now)
            if idlest is None:
                return TooManyBodies()
            del bodies[idlest]
            idlest.fail(StalledBody("The body stopped arriving, and the server needed its place for another request."))
        self.remove(body)
        body.reader = reader
        bodies[body] = None
        return None

    def remove(self, body: RequestBody) -> None:
        """Forget a body that has ended."""
        self._bodies[body.reader].pop(body, None)

    def expire(self, now: float) -> None:
        """End the bodies that are idle or too slow."""
        for reader, bodies in self._bodies.items():
            for body in list(bodies):
                fault = body.progress.fault(self._limits, now, paced=reader is not Reader.UPLOAD)
                if fault is not None:
                    del bodies[body]
                    body.fail(StalledBody(fault))


def most_idle(bodies: Iterable[RequestBody], now: float) -> RequestBody | None:
    """Return the body that has been idle longest, None if each of them has moved within REPLACEABLE seconds."""
    idlest = max(bodies, key=lambda body: body.progress.idle(now), default=None)
    return idlest if idlest is not None and idlest.progress.idle(now) > REPLACEABLE else None
