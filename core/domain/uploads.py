"""Uploads: values, and splitting of a request body into parts while it is received."""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from errors import TooLarge

#: Bytes of a part: what is lost at most of a fast upload when everything dies.
PART = 16 << 20
#: Seconds of a part: what is lost at most of a slow one. They grow from the first to the last within one request, so
#: that a day on a thin line makes thousands of objects and not hundreds of thousands.
SHORTEST, LONGEST = 0.25, 2.0
#: Digests a client may send along, as the standard calls them.
ALGORITHMS = ("sha1", "sha256")


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """Bytes that come in pieces. ``offset``: how many are durable; ``length``: how many there will be, once known."""

    id: str
    kind: str  # whole, partial: to be put together with others, final: put together
    length: int | None
    offset: int
    metadata: str
    sources: str | None
    created_at: datetime
    expires_at: datetime

    @property
    def finished(self) -> bool:
        """Whether every byte is here."""
        return self.length == self.offset


@dataclass(frozen=True, slots=True)
class Checksum:
    """What the bytes of one request must hash to."""

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
