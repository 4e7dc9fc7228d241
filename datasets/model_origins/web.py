"""Files at HTTP addresses: an allowed origin at each hop, guarded connections, bounded time."""

import ipaddress
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urljoin, urlsplit

from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError

from common.errors import Invalid, OriginFailed, OriginRefused
from datasets.model_origins.base import OpenedModel
from datasets.model_origins.config import AllowedAddress
from datasets.model_origins.model_references import origin_of
from datasets.objectstore.connection_pools import LIMITS, connection_pools
from datasets.objectstore.connections import permitted, serves
from datasets.objectstore.guarded_pools import ForbiddenAddress, guard

#: Most redirects that are followed for one file.
REDIRECTS = 5
#: Seconds after which a file that still arrives is refused.
LONGEST = 3600.0
#: Most bytes of a chunk that is yielded.
CHUNK = 1 << 20
_REDIRECT = frozenset({301, 302, 303, 307, 308})
#: Statuses that a later attempt may change; those of the server's own failures are among them.
_TEMPORARY = frozenset({408, 425, 429})
#: Prefixes that translate to IPv4 addresses, which may be private: NAT64 and 6to4.
_TRANSLATED = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16")))


def is_public(number: str) -> bool:
    """Tell whether an IP address is one of the public Internet."""
    ip = ipaddress.ip_address(number.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        elif any(ip in network for network in _TRANSLATED):
            return False
    return ip.is_global and not ip.is_multicast and permitted(number)


class WebReader:
    """Reads files of allowed origins; thread-safe, create it once per process."""

    def __init__(self, addresses: Mapping[str, AllowedAddress], *, longest: float = LONGEST) -> None:
        self._addresses = addresses
        self._longest = longest
        self._public = guard(connection_pools(LIMITS), is_public)
        self._private = guard(connection_pools(LIMITS), permitted)

    def check(self, url: str, project: str) -> AllowedAddress:
        """Return the origin of an address, as the operator allows it to a project; raise Invalid if it is not."""
        origin, known = origin_of(url), self._addresses
        if (allowed := known.get(origin)) is None or not serves(allowed.projects, project):
            listed = ", ".join(sorted(name for name in known if serves(known[name].projects, project))) or "none"
            raise Invalid(
                f"The operator does not allow models from {origin[:200]}; allowed are: {listed}. Upload the file, or"
                " ask for `addresses` in connections.json (docs/model-references.md)."
            )
        return allowed

    def open(self, url: str, project: str) -> OpenedModel:
        """Open a file for a project; every hop of a redirect is checked like the first address.

        Raise OriginRefused for an answer that stays as it is, OriginFailed for a failure that may pass.
        """
        deadline = time.monotonic() + self._longest
        first = url
        for _ in range(REDIRECTS + 1):
            response = self._request(url, project)
            if response.status not in _REDIRECT:
                opened = self._opened(first, url, response)
                return replace(opened, chunks=self._chunks(first, response, deadline))
            url = self._next(url, response)
        raise OriginRefused(f"{first} redirects more than {REDIRECTS} times.")

    def _request(self, url: str, project: str) -> BaseHTTPResponse:
        allowed = self._allowed(url, project)
        pools = self._private if allowed.private else self._public
        with _translated(url):
            _check_literal(urlsplit(url).hostname or "", permitted if allowed.private else is_public)
        headers = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "windtunnel"}
        if allowed.token:
            headers["Authorization"] = f"Bearer {allowed.token}"
        with _translated(url):
            return pools.request("GET", url, headers=headers, preload_content=False, redirect=False)

    def _allowed(self, url: str, project: str) -> AllowedAddress:
        try:
            return self.check(url, project)
        except Invalid as error:  # of a redirect, or removed from the list since the request
            raise OriginRefused(error.detail) from None

    def _next(self, url: str, response: BaseHTTPResponse) -> str:
        location = response.headers.get("Location", "")
        _close(response)
        try:
            target = urljoin(url, location)
            parts = urlsplit(target)
            sound = parts.scheme in {"http", "https"} and bool(parts.hostname) and "@" not in parts.netloc
            _ = parts.port
        except ValueError:
            sound = False
        if not location or not sound or not target.isprintable() or len(target) > 8000:
            raise OriginRefused(f"{url} redirects to an address that is not valid.")
        if urlsplit(url).scheme == "https" and parts.scheme == "http":
            raise OriginRefused(f"{url} redirects from https to http.")
        return target

    def _opened(self, first: str, url: str, response: BaseHTTPResponse) -> OpenedModel:
        status = response.status
        if status != 200:
            _close(response)
            detail = f"{first} is answered with the status {status}"
            if status >= 500 or status in _TEMPORARY:
                raise OriginFailed(f"{detail}.")
            if status in {401, 403}:
                raise OriginRefused(f"{detail}: the operator's `token` for its origin is missing or not accepted.")
            raise OriginRefused(f"{detail}.")
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            _close(response)
            raise OriginRefused(f"{first} is sent compressed although that was not requested.")
        resolved: dict[str, Any] = {"uri": _without_query(url)}
        for name in ("ETag", "Last-Modified"):
            if value := response.headers.get(name):
                resolved[name.lower().replace("-", "_")] = value[:300]
        length = response.headers.get("Content-Length", "")
        size = int(length) if length.isascii() and length.isdigit() and len(length) < 16 else None
        filename = urlsplit(first).path.rpartition("/")[2]
        return OpenedModel(filename=filename, chunks=iter(()), size=size, resolved=resolved)

    def _chunks(self, url: str, response: BaseHTTPResponse, deadline: float) -> Iterator[bytes]:
        try:
            with _translated(url):
                while chunk := response.read1(CHUNK, decode_content=False):
                    yield chunk
                    if time.monotonic() > deadline:
                        raise OriginRefused(f"{url} did not arrive within {self._longest:,.0f} s.")
        finally:
            _close(response)


def _check_literal(host: str, rule: Callable[[str], bool]) -> None:
    """Raise ForbiddenAddress for a forbidden IP address in place of a host, before it is connected to."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return
    if not rule(host):
        raise ForbiddenAddress("the address is forbidden")


def _close(response: BaseHTTPResponse) -> None:
    response.close()  # a connection with unread data cannot be reused
    response.release_conn()


def _without_query(url: str) -> str:
    """Return an address without its query, which may hold a signature that is as good as a credential."""
    return url.partition("?")[0]


@contextmanager
def _translated(url: str) -> Iterator[None]:
    try:
        yield
    except ForbiddenAddress:
        raise OriginRefused(
            f"The host of {_without_query(url)} resolves to an address that is not public; the operator allows that by"
            " `private` (docs/model-references.md)."
        ) from None
    except HTTPError as error:
        raise OriginFailed(f"{_without_query(url)} cannot be read: {type(error).__name__}.") from None
