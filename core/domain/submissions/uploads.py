"""Uploads: values, and splitting of a request body into parts while it is received."""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from common.errors import TooLarge

#: Maximum bytes of a part, so the maximum that a fast upload loses in a crash.
PART = 16 << 20
#: Seconds per part, so the maximum that a slow upload loses. It doubles from SHORTEST to LONGEST within a request: a
#: day on a slow connection makes thousands of objects, not hundreds of thousands.
SHORTEST, LONGEST = 0.25, 2.0
#: Checksum algorithms, as tus 1.0 names them.
ALGORITHMS = ("sha1", "sha256")


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """A resumable upload. ``offset``: durable bytes; ``length``: bytes in total, None while not known."""

    id: str
    kind: str  # whole; partial: to be concatenated; final: a concatenation
    length: int | None
    offset: int
    metadata: str
    sources: str | None
    created_at: datetime
    expires_at: datetime

    @property
    def finished(self) -> bool:
        """Whether all bytes were received."""
        return self.length == self.offset


@dataclass(frozen=True, slots=True)
class Checksum:
    """Expected checksum of the bytes of one request."""

    algorithm: str
    digest: bytes


class UploadBuffer:
    """A request body while it is received: yields it in parts, counts and hashes it, and detects its end.

    ``room``: maximum of bytes; more raise TooLarge. An empty chunk means that nothing arrives at the moment, so that a
    part can end by time. Without ``pace``, parts end by size alone.
    """

    def __init__(
        self,
        chunks: Iterable[bytes],
        room: int,
        *,
        algorithm: str | None = None,
        pace: bool = True,
        part: int = PART,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._chunks = iter(chunks)
        self._room = room
        self._hasher = hashlib.new(algorithm, usedforsecurity=False) if algorithm else None
        self._largest_part = part
        self._pause = SHORTEST if pace else float("inf")
        self._clock = clock
        self._next: bytes | None = None
        self.ended = False
        self._pull()

    def parts(self) -> Iterator[Iterator[bytes]]:
        """Yield each part as an iterator over its bytes, to be used up before the next one is asked for."""
        while self._has_more():
            yield self._part()

    def digest(self) -> bytes | None:
        """Return the digest of all bytes received; None without an algorithm."""
        return self._hasher.digest() if self._hasher else None

    def _has_more(self) -> bool:
        while self._next == b"":
            self._pull()
        return self._next is not None

    def _part(self) -> Iterator[bytes]:
        size, until = 0, self._clock() + self._pause
        if self._pause < LONGEST:
            self._pause *= 2
        while self._next is not None and size < self._largest_part and (size == 0 or self._clock() < until):
            if self._next:
                size += len(self._next)
                yield self._next
            self._pull()

    def _pull(self) -> None:
        chunk = next(self._chunks, None) if self._room else None
        if chunk is None:
            self._next, self.ended = None, True
            return
        if len(chunk) > self._room:
            raise TooLarge("More bytes were sent than the upload may still receive.")
        self._room -= len(chunk)
        if self._hasher:
            self._hasher.update(chunk)
        self._next = chunk
