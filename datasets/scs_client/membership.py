"""Cache node discovery: a static list in the settings, or a Kubernetes Service's EndpointSlices."""

import http.client
import json
import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlencode, urlsplit

from datasets.scs_client.http_pool import BearerToken

logger = logging.getLogger(__name__)

#: Folder in a pod with the service account's token and the API server's CA certificate.
POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SERVER = "https://kubernetes.default.svc"
#: Seconds between two requests to the API server, and time-out of a request.
PAUSE, TIMEOUT = 5.0, 3.0
_LARGEST = 16 << 20
_PAGE = 500


@dataclass(frozen=True, order=True, slots=True)
class CacheNode:
    """A cache node: ``http://host:port``, and its zone, "" if unknown."""

    url: str
    zone: str = ""


class Membership(Protocol):
    """Source of the current nodes. Called on every read, by several threads."""

    def nodes(self) -> tuple[CacheNode, ...]:
        """Return the ready nodes, sorted; may be empty. Never raises."""


class StaticMembership:
    """The nodes that are listed in the settings."""

    def __init__(self, nodes: Iterable[CacheNode]) -> None:
        self._nodes = tuple(sorted(set(nodes)))

    def nodes(self) -> tuple[CacheNode, ...]:
        """Return all listed nodes, whether they are up or not."""
        return self._nodes


def parse(text: str) -> CacheNode:
    """Parse ``http://host:port`` or ``zone=http://host:port``."""
    zone, equals, url = text.partition("=") if "=" in text.partition("://")[0] else ("", "", text)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(f"invalid port of a cache node: {text!r}") from None
    plain = not (parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc)
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain or (equals and not zone):
        raise ValueError(f"a cache node is http://host:port or zone=http://host:port, not {text!r}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return CacheNode(f"{parts.scheme}://{host}:{port or (443 if parts.scheme == 'https' else 80)}", zone)


def open_membership(urls: Sequence[str]) -> Membership:
    """Create the node source: ``kubernetes://namespace/service[:port name]`` alone, or a list of URLs for ``parse``."""
    if len(urls) == 1 and urls[0].startswith("kubernetes://"):
        namespace, _, rest = urls[0].removeprefix("kubernetes://").partition("/")
        service, _, port = rest.partition(":")
        if not namespace or not service or "/" in service:
            raise ValueError(f"write kubernetes://namespace/service, not {urls[0]!r}")
        return EndpointSlices(namespace, service, port=port)
    return StaticMembership(parse(text) for text in urls)


class EndpointSlices:
    """The ready endpoints of a (headless) Service, refreshed on demand every few seconds.

    The first caller after the interval refreshes; concurrent callers get the last known nodes. While the API server is
    unavailable, the last known nodes stay in use.
    """

    def __init__(
        self,
        namespace: str,
        service: str,
        *,
        port: str = "",
        server: str = SERVER,
        authority: Path = POD / "ca.crt",
        token: Path = POD / "token",
        pause: float = PAUSE,
        page: int = _PAGE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        parts = urlsplit(server)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError(f"the API server's address begins with https://, not {server!r}")
        self._host, self._port = parts.hostname, parts.port or 443
        self._path = f"/apis/discovery.k8s.io/v1/namespaces/{quote(namespace, safe='')}/endpointslices"
        self._service, self._port_name = service, port
        self._authority, self._token = authority, BearerToken(token)
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

    def _refresh(self) -> None:
        try:
            self._last_nodes = ready(self._slices(), self._port_name)
        except (OSError, http.client.HTTPException, ValueError) as error:
            logger.warning("cannot list the EndpointSlices of the cache service %s: %s", self._service, error)
        except (LookupError, TypeError, AttributeError):
            logger.warning("cannot list the EndpointSlices of the cache service %s: invalid response", self._service)
        self._refresh_at = self._clock() + self._pause

    def _slices(self) -> list[Any]:
        """Fetch all pages. The CA certificate is read on each call, and the token when it changes: both are rotated."""
        context = ssl.create_default_context(cafile=str(self._authority))
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT, context=context)
        headers = {**self._token.headers(), "Accept": "application/json"}
        query = {"labelSelector": f"kubernetes.io/service-name={self._service}", "limit": str(self._page)}
        slices: list[Any] = []
        try:
            while True:
                connection.request("GET", f"{self._path}?{urlencode(query)}", headers=headers)
                response = connection.getresponse()
                body = response.read(_LARGEST)
                if response.status != 200:
                    raise ValueError(f"the API server answered {response.status}")
                page = json.loads(body)
                slices += page["items"]
                if not (continue_token := page["metadata"].get("continue")):
                    return slices
                query["continue"] = continue_token
        finally:
            connection.close()


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
