"""Caches in use: this machine's node cache, and the nodes of the cache service."""

import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

from core.services.operations.measurement import Measurement
from datasets.nodecache.node_cache import NodeCache
from datasets.scs_client import node_metrics
from datasets.scs_client.cache_nodes import CacheNode
from datasets.scs_client.http_pool import TransportError

#: Seconds for which figures are kept, and cache nodes that are asked at once.
INTERVAL, ASKED = 1.0, 16
#: What a cache reports.
REPORTED = ("entries", "bytes", "capacity", "pinned", "hits", "misses", "evictions")

Nodes = Callable[[], Sequence[CacheNode]]


class CacheUse:
    """Reads what the caches count themselves. ``nodes``: returns the nodes of the cache service."""

    def __init__(self, cache: NodeCache, nodes: Nodes) -> None:
        self._cache, self._nodes = cache, nodes
        self._items = Measurement(self._measure, interval=INTERVAL)

    def describe(self) -> dict[str, object]:
        """Return every cache; one that cannot be read has a reason in place of figures."""
        items = self._items.latest()
        return {"measured_at": items.at, "items": items.value}

    def _measure(self) -> list[dict[str, object]]:
        nodes = list(self._nodes())
        with ThreadPoolExecutor(ASKED) as threads:
            of_nodes = list(threads.map(_of_service, nodes))
        return [self._of_this_machine(), *(item for items in of_nodes for item in items)]

    def _of_this_machine(self) -> dict[str, object]:
        name = socket.gethostname()
        try:
            use = self._cache.use()
        except OSError as error:
            return _item("node", name, reason=f"the cache's folder cannot be read ({type(error).__name__})")
        if use is None:
            return _item("node", name, reason="no simulation has used this machine's cache yet")
        return _item("node", name, **asdict(use))


def _of_service(node: CacheNode) -> list[dict[str, object]]:
    try:
        buckets = node_metrics.read(node.url)
    except TransportError as error:
        return [_item("service", node.url, reason=f"the cache node does not answer: {error}")]
    return [_item("service", node.url, **asdict(bucket)) for bucket in buckets]


def _item(
    kind: str, name: str, *, bucket: str | None = None, reason: str | None = None, **use: int
) -> dict[str, object]:
    requests = use.get("hits", 0) + use.get("misses", 0)
    return {
        "kind": kind,
        "name": name,
        "bucket": bucket,
        "reason": reason,
        **{figure: use.get(figure) for figure in REPORTED},
        "hit_ratio": use["hits"] / requests if requests else None,
    }
