"""Node discovery: the ready endpoints of a Kubernetes Service, from its EndpointSlices."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from datasets.scs_client.cache_nodes import CacheNode
from kube.access import Access, InCluster
from kube.client import KubernetesClient, ListResponse
from kube.messages import ApiRefused, path_of

logger = logging.getLogger(__name__)

#: Seconds between two requests to the API server, and time-out of a request.
PAUSE, TIMEOUT = 5.0, 3.0
#: Slices per request.
_PAGE = 500


class _Metadata(msgspec.Struct):
    after: str = msgspec.field(name="continue", default="")


class _Page(ListResponse):
    items: list[Any]
    metadata: _Metadata


class EndpointSlices:
    """The ready endpoints of a (headless) Service, refreshed on demand every few seconds.

    ``access`` None: this pod's service account.
    The first caller after the interval refreshes; concurrent callers get the last known nodes. While the API server is
    unavailable, the last known nodes stay in use.
    """

    def __init__(
        self,
        namespace: str,
        service: str,
        *,
        port: str = "",
        access: Access | None = None,
        pause: float = PAUSE,
        page: int = _PAGE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = KubernetesClient(access or InCluster(), time_out=TIMEOUT)
        self._path = path_of("discovery.k8s.io/v1", "endpointslices", namespace)
        self._service, self._port_name = service, port
        self._pause, self._page, self._clock = pause, page, clock
        self._last_nodes: tuple[CacheNode, ...] = ()
        self._refresh_at = float("-inf")
        self._refreshing = threading.Lock()

    def nodes(self) -> tuple[CacheNode, ...]:
        """Return the last known nodes, refreshed if the interval has passed."""
        if self._clock() >= self._refresh_at and self._refreshing.acquire(blocking=self._refresh_at == float("-inf")):
            try:
                if self._clock() >= self._refresh_at:  # callers that waited for the first refresh need no second
                    self._refresh()
            finally:
                self._refreshing.release()
        return self._last_nodes

    def close(self) -> None:
        """Close idle connections to the API server."""
        self._client.close()

    def _refresh(self) -> None:
        try:
            self._last_nodes = ready(self._slices(), self._port_name)
        except (OSError, ApiRefused) as error:
            logger.warning("cannot list the EndpointSlices of the cache service %s: %s", self._service, error)
        except (LookupError, TypeError, AttributeError):
            logger.warning("cannot list the EndpointSlices of the cache service %s: invalid response", self._service)
        self._refresh_at = self._clock() + self._pause

    def _slices(self) -> list[Any]:
        """Fetch all pages."""
        query = {"labelSelector": f"kubernetes.io/service-name={self._service}", "limit": str(self._page)}
        slices: list[Any] = []
        while True:
            page = self._client.get(self._path, _Page, **query)
            slices += page.items
            if not page.metadata.after:
                return slices
            query["continue"] = page.metadata.after


def ready(slices: Iterable[Any], port_name: str = "") -> tuple[CacheNode, ...]:
    """Return the nodes of EndpointSlices: each ready endpoint's first address, at the named port (or the first).

    A missing `ready` condition means ready (discovery.k8s.io/v1); a terminating endpoint is not ready.
    """
    nodes: set[CacheNode] = set()
    for slice in slices:
        ports = [port for port in slice.get("ports") or () if port.get("port") and port_name in ("", port.get("name"))]
        if slice.get("addressType") not in ("IPv4", "IPv6") or not ports:
            continue
        for endpoint in slice.get("endpoints") or ():
            if (endpoint.get("conditions") or {}).get("ready") is False:
                continue
            address = endpoint["addresses"][0]
            host = f"[{address}]" if ":" in address else address
            nodes.add(CacheNode(f"http://{host}:{ports[0]['port']}", endpoint.get("zone") or ""))
    return tuple(sorted(nodes))
