"""Client of the cache service: asks the node that owns a key; a failing node counts as a miss, never as an error."""

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

from common.backoff import RetryPolicy
from datasets.scs_client.cache_nodes import CacheNode, Membership
from datasets.scs_client.consistent_hashing import Maglev
from datasets.scs_client.http_pool import BearerToken, ConnectionPool, HttpResponse, TransportError

logger = logging.getLogger(__name__)

#: Time-out in seconds for connecting to a node, and between two reads.
TIMEOUT = 3.0
#: Bytes/s; a slower node is given up.
SLOWEST = 1 << 20
#: Retries of a node that failed.
RETRY = RetryPolicy(first=1.0, longest=60.0)
#: Nodes tried per request: the owner of the key, and the next node.
TRIES = 2
#: Files that a process uploads to the cache at once.
FILLS = 4
_CHUNK = 256 << 10


class CacheClient(Protocol):
    """A cache in front of the origin. Used by several threads."""

    def get(self, digest: str, size: int, target: BinaryIO) -> bool:
        """Write the content of ``digest`` (``sha256:<hex>``) to ``target``; False on a miss.

        Raises only errors of ``target``. On a miss, ``target`` is unchanged. On a hit, ``size`` bytes were written,
        which are not verified: the caller must verify them, and ``put`` the right bytes if they are wrong.
        """

    def put(self, digest: str, path: Path) -> None:
        """Offer a verified file to the cache, which may refuse it; never raises."""


@dataclass(frozen=True, slots=True)
class NodeBackoff:
    """Back-off state of a failed node: failures in a row, and until when it is not asked."""

    failures: int = 0
    until: float = 0.0

    def after_failure(self, now: float, jitter: float) -> "NodeBackoff":
        """Return the state after another failure; ``jitter`` in [0, 1) spreads the clients' retries."""
        failures = self.failures + 1
        return NodeBackoff(failures, now + RETRY.pause(failures) * (0.5 + jitter / 2))


class SimpleCache:
    """The cache service's nodes in this client's zone (all nodes if the zone has none) as one cache.

    ``token``: a file with the bearer token, read again when it changes. ``counts``: requests by outcome: hits, misses,
    errors (of nodes), fills, refused (by a node) and dropped (too many concurrent fills).
    """

    def __init__(
        self,
        membership: Membership,
        *,
        bucket: str = "private",
        zone: str = "",
        token: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        time_out: float = TIMEOUT,
        fills: int = FILLS,
    ) -> None:
        self._membership, self._zone, self._clock, self._time_out = membership, zone, clock, time_out
        self._prefix = f"/v1/objects/{quote(bucket, safe='')}/sha256/"
        self._token = BearerToken(token)
        self._pool = ConnectionPool(time_out)
        self._fill_slots = threading.BoundedSemaphore(fills)
        self._lock = threading.Lock()
        self._members: tuple[CacheNode, ...] = ()
        self._table: Maglev | None = None
        self._backoffs: dict[str, NodeBackoff] = {}
        self._counts: Counter[str] = Counter()
        self._logged_statuses: frozenset[int] = frozenset()

    @property
    def counts(self) -> Mapping[str, int]:
        """Requests so far by outcome."""
        with self._lock:
            return dict(self._counts)

    def get(self, digest: str, size: int, target: BinaryIO) -> bool:
        """Ask the key's owner; if that node is failing, the next node."""
        key, start = digest.removeprefix("sha256:"), target.tell()
        for node in self._candidates(key):
            try:
                outcome = self._fetch(node, key, size, target)
            except TransportError as error:
                self._failed(node, error)
                target.seek(start)
                target.truncate()
            else:
                self._succeeded(node, outcome)
                return outcome == "hits"
        return False

    def put(self, digest: str, path: Path) -> None:
        """Upload a file to the key's owner, or to the next node if the owner is failing."""
        if not self._fill_slots.acquire(timeout=self._time_out):
            self._count("dropped")
            return
        try:
            for node in self._candidates(key := digest.removeprefix("sha256:")):
                try:
                    outcome = self._upload(node, key, path)
                except TransportError as error:
                    self._failed(node, error)
                else:
                    self._succeeded(node, outcome)
                    return
        finally:
            self._fill_slots.release()

    def close(self) -> None:
        """Close idle connections. The cache may be used again."""
        self._pool.close()

    def _candidates(self, key: str) -> Iterator[str]:
        """Yield up to TRIES nodes that are not backing off, from the key's owner on."""
        if (table := self._current_table()) is None:
            return
        tries = 0
        for node in table.walk(key):
            if self._may_be_asked(node):
                yield node
                tries += 1
                if tries == TRIES:
                    return

    def _current_table(self) -> Maglev | None:
        nodes = self._membership.nodes()
        with self._lock:
            if nodes != self._members:
                urls = [node.url for node in nodes if node.zone == self._zone] or [node.url for node in nodes]
                self._table = Maglev(urls) if urls else None
                self._members = nodes
                self._backoffs = {node: backoff for node, backoff in self._backoffs.items() if node in urls}
            return self._table

    def _may_be_asked(self, node: str) -> bool:
        """Tell whether a node is asked. After a back-off, one thread probes it; the others wait for the result."""
        with self._lock:
            if (backoff := self._backoffs.get(node)) is None:
                return True
            now = self._clock()
            if now < backoff.until:
                return False
            self._backoffs[node] = NodeBackoff(backoff.failures, now + self._time_out)
            return True

    def _failed(self, node: str, error: TransportError) -> None:
        self._pool.forget(node)
        with self._lock:
            self._counts["errors"] += 1
            backoff = self._backoffs.get(node, NodeBackoff()).after_failure(self._clock(), random.random())
            self._backoffs[node] = backoff
        if backoff.failures == 1:
            logger.warning("the cache node %s is not asked for a while: %s", node, error)

    def _succeeded(self, node: str, outcome: str) -> None:
        with self._lock:
            self._counts[outcome] += 1
            if self._backoffs.pop(node, None) is not None:
                logger.info("the cache node %s is available again", node)

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1

    def _fetch(self, node: str, key: str, size: int, target: BinaryIO) -> str:
        """Get an object from a node; return the outcome to count."""
        with self._pool.exchange(node, "GET", self._prefix + quote(key, safe=""), self._token.headers()) as response:
            if response.status == 404:
                return "misses"
            if response.status != 200:
                return self._refused(node, response)
            if response.length != size:
                return "misses"  # the caller's `put` replaces the wrong object
            buffer = memoryview(bytearray(min(size, _CHUNK)))
            remaining, deadline = size, time.monotonic() + self._time_out + size / SLOWEST
            while remaining:
                if time.monotonic() > deadline:
                    raise TransportError(f"it is slower than {SLOWEST} bytes/s")
                count = response.read_into(buffer[:remaining])
                target.write(buffer[:count])
                remaining -= count
        return "hits"

    def _upload(self, node: str, key: str, path: Path) -> str:
        """Put a file on a node; return the outcome to count."""
        try:
            file = open(path, "rb", buffering=0)
        except OSError:
            return "dropped"  # the file was evicted meanwhile
        with file:
            size = os.fstat(file.fileno()).st_size
            headers = self._token.headers()
            with self._pool.exchange(node, "PUT", self._prefix + quote(key, safe=""), headers, file, size) as response:
                return "fills" if 200 <= response.status < 300 else self._refused(node, response)

    def _refused(self, node: str, response: HttpResponse) -> str:
        """Raise TransportError for a failing node; else log a refusal once per status, and return its outcome."""
        if 500 <= response.status != 507:  # 507: the node is full, which is not a failure
            raise TransportError(f"it answers {response.status}")
        with self._lock:
            first, self._logged_statuses = (
                response.status not in self._logged_statuses,
                self._logged_statuses | {response.status},
            )
        if first:
            logger.warning("the cache node %s refuses requests with status %d", node, response.status)
        return "refused"
