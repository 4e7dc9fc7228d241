"""Kubernetes API client: verbs with errors that tell what may be retried, metrics, and decoding by msgspec."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kube.access import Access
from kube.messages import JSON, MERGE_PATCH, METADATA, ApiRefused, Request, refusal

if TYPE_CHECKING:
    from kube.connection import ApiConnection

T = TypeVar("T")
#: Called after each request with verb, outcome ("ok", "409", "away") and seconds.
Observer = Callable[[str, str, float], None]


class ListResponse(msgspec.Struct):
    """Base of every list type; requests for it are counted with the verb `list`."""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """An event of a watch: ADDED, MODIFIED, DELETED or BOOKMARK; a later watch may start at ``resource_version``."""

    type: str
    object: dict[str, Any]
    resource_version: str


class KubernetesClient:
    """Client of one API server. Thread-safe: threads share a pool of connections.

    OSError: no answer, or a transient refusal; the request may be retried, since every request here is idempotent.
    The `kubernetes` package is imported, and credentials are loaded, before the first request or by ``check``.
    """

    def __init__(self, access: Access, *, time_out: float = 10.0, observer: Observer = lambda *_: None) -> None:
        self._access, self._time_out, self._observer = access, time_out, observer
        self._opened: ApiConnection | None = None
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raise ValueError if the kubeconfig or service account cannot be used; sends no request."""
        from kube.configuration import check

        check(self._access)

    def get(self, path: str, kind: type[T], **query: str) -> T:
        """Read an object or a list as this type; unknown fields are skipped."""
        verb = "list" if issubclass(kind, ListResponse) else "get"
        body = self._exchange(Request("GET", path, query=query, headers=_headers()), verb)
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.DecodeError as error:
            raise ConnectionError(f"{path} answered what is not a {kind.__name__}: {error}") from None

    def create(self, path: str, document: Any, **query: str) -> bytes:
        """Create an object in a collection; return it as JSON."""
        return self._exchange(
            Request(method="POST", path=path, document=document, query=query, headers=_headers(JSON)), "create"
        )

    def patch(self, path: str, document: Any) -> None:
        """Merge these members into an object."""
        self._exchange(Request("PATCH", path, document, headers=_headers(MERGE_PATCH)), "patch")

    def delete(self, path: str) -> bool:
        """Delete an object, and its dependents in the background; return whether it existed."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        try:
            self._exchange(Request("DELETE", path, options, headers=_headers(JSON)), "delete")
        except ApiRefused as refused:
            if refused.status == 404:
                return False
            raise
        return True

    def watch(
        self,
        path: str,
        *,
        seconds: int,
        quiet: float,
        resource_version: str = "",
        metadata_only: bool = False,
        **query: str,
    ) -> Iterator[WatchEvent]:
        """Watch a collection for ``seconds`` on its own connection, from a resource version on.

        Without a resource version, the watch begins with an ADDED event for each object. Raise ApiRefused with status
        410 if the resource version has expired, TimeoutError after ``quiet`` seconds of silence.
        """
        options = {**query, "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
        request = Request("GET", path, query=options, headers={"Accept": METADATA if metadata_only else JSON})
        for type, object, version in self._connection().events(request, resource_version, quiet):
            yield WatchEvent(type, object, version)

    def close(self) -> None:
        """Close idle connections; the next request opens a new one."""
        if self._opened is not None:
            self._opened.close()

    def _connection(self) -> "ApiConnection":
        with self._lock:
            if self._opened is None:
                from kube.connection import ApiConnection

                self._opened = ApiConnection(self._access, self._time_out)
            return self._opened

    def _exchange(self, request: Request, verb: str) -> bytes:
        began, outcome = time.perf_counter(), "away"
        try:
            status, body = self._connection().exchange(request)
            outcome = "ok" if status < 300 else str(status)
            if status >= 300:
                raise refusal(request, status, body)
            return body
        finally:
            self._observer(verb, outcome, time.perf_counter() - began)


def _headers(content: str = "") -> dict[str, str]:
    headers = {"Accept": JSON, "Accept-Encoding": "gzip"}
    return headers | {"Content-Type": content} if content else headers
