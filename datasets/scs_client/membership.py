"""Which cache nodes there are: named in settings, or as Kubernetes knows them (the EndpointSlices of a Service)."""

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

from datasets.scs_client.http_pool import Token

logger = logging.getLogger(__name__)

#: Where Kubernetes puts what a pod needs to speak to its API server.
POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SERVER = "https://kubernetes.default.svc"
#: Seconds between two looks, and that an answer may take.
PAUSE, TIME = 5.0, 3.0
_LARGEST = 16 << 20
_PAGE = 500


@dataclass(frozen=True, order=True, slots=True)
class Node:
    """A cache node: ``http://host:port``, and the zone it lies in, "" if that is not known."""

    url: str
    zone: str = ""


class Membership(Protocol):
    """Knows the nodes. Asked on every read, by several threads."""

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes that are ready, sorted; none if there are none. Never raises."""


class Fixed:
    """The nodes that settings name."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = tuple(sorted(set(nodes)))

    def nodes(self) -> tuple[Node, ...]:
        """Return them, whether they are up or not."""
        return self._nodes


def parse(text: str) -> Node:
    """Read ``http://host:port`` or ``zone=http://host:port``."""
    zone, equals, url = text.partition("=") if "=" in text.partition("://")[0] else ("", "", text)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(f"no port of a cache node: {text!r}") from None
    plain = not (parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc)
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain or (equals and not zone):
        raise ValueError(f"a cache node is http://host:port or zone=http://host:port, not {text!r}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return Node(f"{parts.scheme}://{host}:{port or (443 if parts.scheme == 'https' else 80)}", zone)


def open_membership(given: Sequence[str]) -> Membership:
    """Return who knows the nodes: ``kubernetes://namespace/service[:port name]`` alone, or a list for ``parse``."""
    if len(given) == 1 and given[0].startswith("kubernetes://"):
        namespace, _, rest = given[0].removeprefix("kubernetes://").partition("/")
        service, _, port = rest.partition(":")
        if not namespace or not service or "/" in service:
            raise ValueError(f"write kubernetes://namespace/service, not {given[0]!r}")
        return EndpointSlices(namespace, service, port=port)
    return Fixed(parse(text) for text in given)


class EndpointSlices:
    """The ready endpoints of a (headless) Service, looked up again every few seconds while somebody asks.

    Whoever asks when it is time looks; the others go on with what was known. An API server that is away changes
    nothing, for caches outlive it.
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
        self._service, self._wanted = service, port
        self._authority, self._token = authority, Token(token)
        self._pause, self._page, self._clock = pause, page, clock
        self._known: tuple[Node, ...] = ()
        self._next = float("-inf")
        self._looking = threading.Lock()

    def nodes(self) -> tuple[Node, ...]:
        """Return what is known, looking again if it is time."""
        if self._clock() >= self._next and self._looking.acquire(blocking=self._next == float("-inf")):
            try:
                if self._clock() >= self._next:  # the first askers wait for the first look, and need no second
                    self._look()
            finally:
                self._looking.release()
        return self._known

    def _look(self) -> None:
        try:
            self._known = ready(self._slices(), self._wanted)
        except (OSError, http.client.HTTPException, ValueError) as error:
            logger.warning("the cache nodes of %s cannot be looked up: %s", self._service, error)
        except (LookupError, TypeError, AttributeError):
            logger.warning("the cache nodes of %s cannot be looked up: the answer is no list of them", self._service)
        self._next = self._clock() + self._pause

    def _slices(self) -> list[Any]:
        """Fetch all pages. Trust is read anew, as the token is when it changes: both are rotated."""
        context = ssl.create_default_context(cafile=str(self._authority))
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=TIME, context=context)
        headers = {**self._token.headers(), "Accept": "application/json"}
        query = {"labelSelector": f"kubernetes.io/service-name={self._service}", "limit": str(self._page)}
        found: list[Any] = []
        try:
            while True:
                connection.request("GET", f"{self._path}?{urlencode(query)}", headers=headers)
                answer = connection.getresponse()
                body = answer.read(_LARGEST)
                if answer.status != 200:
                    raise ValueError(f"the API server answered {answer.status}")
                page = json.loads(body)
                found += page["items"]
                if not (following := page["metadata"].get("continue")):
                    return found
                query["continue"] = following
        finally:
            connection.close()


def ready(slices: Iterable[Any], wanted: str = "") -> tuple[Node, ...]:
    """Read nodes out of EndpointSlices: each ready endpoint's first address, at the port of this name, or the first.

    A condition that is not told means ready (discovery.k8s.io/v1); one that is going away is not ready.
    """
    found: set[Node] = set()
    for one in slices:
        ports = [port for port in one.get("ports") or () if port.get("port") and wanted in ("", port.get("name"))]
        if one.get("addressType") not in ("IPv4", "IPv6") or not ports:
            continue
        for endpoint in one.get("endpoints") or ():
            if (endpoint.get("conditions") or {}).get("ready") is False:
                continue
            address = endpoint["addresses"][0]
            host = f"[{address}]" if ":" in address else address
            found.add(Node(f"http://{host}:{ports[0]['port']}", endpoint.get("zone") or ""))
    return tuple(sorted(found))
