"""Our client of the cache service: it asks the node that should have a thing, and never stands in the way."""

import logging
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import quote

from datasets.scs_client.consistent_hashing import Maglev
from datasets.scs_client.http_pool import Answer, Token, Trouble, Wire
from datasets.scs_client.membership import Membership, Node

logger = logging.getLogger(__name__)

#: Seconds in which a node must connect, and make some progress.
TIME = 3.0
#: Bytes a second below which a node is no help.
SLOWEST = 1 << 20
#: Seconds a node is left alone after its first failure, doubled with each further one, and at most.
PAUSE, LONGEST = 1.0, 60.0
#: Nodes asked for one thing: the one that should have it, and who stands in for it.
TRIES = 2
#: Files that one process brings to the cache at once.
FILLS = 4
_CHUNK = 256 << 10


class Near(Protocol):
    """Something nearer than the origin that may have a thing. Asked by several threads."""

    def get(self, digest: str, size: int, target: BinaryIO) -> bool:
        """Write the content of ``digest`` (``sha256:<hex>``) to ``target``; False if it is not to be had.

        Raises only what ``target`` does. On False, ``target`` is as it was. What comes is ``size`` bytes, not
        verified: the caller does that, and brings the right ones with ``put`` if they are wrong.
        """

    def put(self, digest: str, path: Path) -> None:
        """Offer a verified file to those who come after. It may not be taken; never raises."""


@dataclass(frozen=True, slots=True)
class Illness:
    """A node that failed: how often in a row, and until when it is left alone."""

    failures: int = 0
    until: float = 0.0

    def worse(self, now: float, chance: float) -> "Illness":
        """Return the next state; ``chance`` in [0, 1) spreads those who would all come back at once."""
        pause = min(LONGEST, PAUSE * 2**self.failures) * (0.5 + chance / 2)
        return Illness(min(self.failures + 1, 16), now + pause)


class SimpleCache:
    """The cache service's nodes of one's zone, or all if there is none there, as one cache.

    ``token``: a file with the bearer token, read again when it changes. ``counts`` says what came of it all: hits,
    misses, errors (of nodes), fills, refused (a node said no) and dropped (too many were being filled).
    """

    def __init__(
        self,
        membership: Membership,
        *,
        bucket: str = "private",
        zone: str = "",
        token: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        time_out: float = TIME,
        fills: int = FILLS,
    ) -> None:
        self._membership, self._zone, self._clock, self._time_out = membership, zone, clock, time_out
        self._prefix = f"/v1/objects/{quote(bucket, safe='')}/sha256/"
        self._token = Token(token)
        self._wire = Wire(time_out)
        self._filling = threading.BoundedSemaphore(fills)
        self._lock = threading.Lock()
        self._members: tuple[Node, ...] = ()
        self._ring: Maglev | None = None
        self._ill: dict[str, Illness] = {}
        self._counts: Counter[str] = Counter()
        self._told: frozenset[int] = frozenset()

    @property
    def counts(self) -> Mapping[str, int]:
        """What came of all requests so far."""
        with self._lock:
            return dict(self._counts)

    def get(self, digest: str, size: int, target: BinaryIO) -> bool:
        """Ask the node that should have it; if that one is ill, the one after it."""
        key, start = digest.removeprefix("sha256:"), target.tell()
        for node in self._asked(key):
            try:
                found = self._fetch(node, key, size, target)
            except Trouble as trouble:
                self._failed(node, trouble)
                target.seek(start)
                target.truncate()
            else:
                self._answered(node, found)
                return found == "hits"
        return False

    def put(self, digest: str, path: Path) -> None:
        """Bring a file to the node that should have it, or to who stands in for it."""
        if not self._filling.acquire(timeout=self._time_out):
            self._count("dropped")
            return
        try:
            for node in self._asked(key := digest.removeprefix("sha256:")):
                try:
                    came = self._bring(node, key, path)
                except Trouble as trouble:
                    self._failed(node, trouble)
                else:
                    self._answered(node, came)
                    return
        finally:
            self._filling.release()

    def close(self) -> None:
        """Close idle connections. The cache may be used again."""
        self._wire.close()

    def _asked(self, key: str) -> Iterator[str]:
        """Yield who is asked, in order: those that are well, on the ring from the owner on."""
        if (ring := self._current()) is None:
            return
        tries = 0
        for node in ring.walk(key):
            if self._may_be_asked(node):
                yield node
                tries += 1
                if tries == TRIES:
                    return

    def _current(self) -> Maglev | None:
        nodes = self._membership.nodes()
        with self._lock:
            if nodes != self._members:
                near = [node.url for node in nodes if node.zone == self._zone] or [node.url for node in nodes]
                self._ring = Maglev(near) if near else None
                self._members = nodes
                self._ill = {node: illness for node, illness in self._ill.items() if node in near}
            return self._ring

    def _may_be_asked(self, node: str) -> bool:
        """Of those who find an ill node's pause over, one goes and sees; the others wait for what comes of it."""
        with self._lock:
            if (illness := self._ill.get(node)) is None:
                return True
            now = self._clock()
            if now < illness.until:
                return False
            self._ill[node] = Illness(illness.failures, now + self._time_out)
            return True

    def _failed(self, node: str, trouble: Trouble) -> None:
        self._wire.forget(node)
        with self._lock:
            self._counts["errors"] += 1
            illness = self._ill.get(node, Illness()).worse(self._clock(), random.random())
            self._ill[node] = illness
        if illness.failures == 1:
            logger.warning("the cache node %s is left alone for a while: %s", node, trouble)

    def _answered(self, node: str, count: str) -> None:
        with self._lock:
            self._counts[count] += 1
            if self._ill.pop(node, None) is not None:
                logger.info("the cache node %s answers again", node)

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1

    def _fetch(self, node: str, key: str, size: int, target: BinaryIO) -> str:
        """Get an object from a node; return what that counts as."""
        with self._wire.exchange(node, "GET", self._prefix + quote(key, safe=""), self._token.headers()) as answer:
            if answer.status == 404:
                return "misses"
            if answer.status != 200:
                return self._refused(node, answer)
            if answer.length != size:
                return "misses"  # what is filled in next is right again
            buffer = memoryview(bytearray(min(size, _CHUNK)))
            left, ends = size, time.monotonic() + self._time_out + size / SLOWEST
            while left:
                if time.monotonic() > ends:
                    raise Trouble("it is slower than an origin")
                count = answer.into(buffer[:left])
                target.write(buffer[:count])
                left -= count
        return "hits"

    def _bring(self, node: str, key: str, path: Path) -> str:
        """Put a file on a node; return what that counts as."""
        try:
            file = open(path, "rb", buffering=0)
        except OSError:
            return "dropped"  # it was let go of meanwhile
        with file:
            size = os.fstat(file.fileno()).st_size
            headers = self._token.headers()
            with self._wire.exchange(node, "PUT", self._prefix + quote(key, safe=""), headers, file, size) as answer:
                return "fills" if 200 <= answer.status < 300 else self._refused(node, answer)

    def _refused(self, node: str, answer: Answer) -> str:
        """Tell a node in trouble from one that says no; of the latter, say so once."""
        if 500 <= answer.status != 507:  # 507: it is full, which no reader minds
            raise Trouble(f"it answers {answer.status}")
        with self._lock:
            new, self._told = answer.status not in self._told, self._told | {answer.status}
        if new:
            logger.warning("the cache node %s answers %d", node, answer.status)
        return "refused"
