"""Kubernetes API client over kept-alive connections. No typed client library: its objects cost three times the call."""

import gzip
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from workers.executors.kubernetes.access import Access

T = TypeVar("T")
#: Called after each request with verb, outcome ("ok", "409", "away") and seconds.
Observer = Callable[[str, str, float], None]

JSON = "application/json"
MERGE = "application/merge-patch+json"
#: Maximum bytes of a log line or a watch event.
_LINE = 1 << 20
#: Transient statuses: too many requests, a failing server, a gateway without a backend.
_TRANSIENT = frozenset({429, 500, 502, 503, 504})
_VERBS = {"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete"}


class ApiRefused(Exception):
    """The API server refused a request: HTTP status, Kubernetes reason and message."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason, self.message = status, reason, message


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""


class KubernetesClient:
    """Client of one API server. Thread-safe: each thread has its own connection.

    OSError: no answer, or a transient refusal; the request may be retried, since every request here is idempotent.
    """

    def __init__(self, access: Access, *, time_out: float = 10.0, observer: Observer = lambda *_: None) -> None:
        self._access, self._time_out, self._observer = access, time_out, observer
        self._own = threading.local()
        self._connections: list[http.client.HTTPConnection] = []

    def get(self, path: str, kind: type[T], **query: str) -> T:
        """Read an object or a list as this type; unknown fields are skipped."""
        body = self._request("GET", path, query=query, verb="list" if issubclass(kind, ListResponse) else "get")
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.DecodeError as error:
            raise ConnectionError(f"{path} answered what is no {kind.__name__}: {error}") from None

    def create(self, path: str, document: Any, **query: str) -> bytes:
        """Create an object in a collection."""
        return self._request("POST", path, json.dumps(document).encode(), query=query)

    def patch(self, path: str, document: Any) -> None:
        """Merge these members into an object."""
        self._request("PATCH", path, json.dumps(document).encode(), content=MERGE)

    def delete(self, path: str) -> bool:
        """Delete an object, and its dependents in the background; return whether it existed."""
        try:
            self._request(
                "DELETE", path, b'{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}'
            )
        except ApiRefused as refused:
            if refused.status == 404:
                return False
            raise
        return True

    def lines(self, path: str, *, quiet: float, **query: str) -> Iterator[bytes]:
        """Follow a log or a watch line by line on its own connection; OSError after ``quiet`` seconds of silence."""
        with closing(self._connect(quiet)) as connection:
            answer = self._send(connection, "GET", path, None, {}, query)
            if answer.status >= 300:
                raise self._refusal("GET", path, answer.status, answer.read())
            while line := self._read(lambda: answer.readline(_LINE)):
                yield line

    def close(self) -> None:
        """Close every thread's connection; the next request opens a new one."""
        for connection in self._connections:
            connection.close()

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content: str = JSON,
        query: dict[str, str] | None = None,
        verb: str = "",
    ) -> bytes:
        began, outcome = time.perf_counter(), "away"
        try:
            status, answer = self._exchange(method, path, body, content, query or {})
            outcome = "ok" if status < 300 else str(status)
            if status >= 300:
                raise self._refusal(method, path, status, answer)
            return answer
        finally:
            self._observer(verb or _VERBS[method], outcome, time.perf_counter() - began)

    def _exchange(
        self, method: str, path: str, body: bytes | None, content: str, query: dict[str, str]
    ) -> tuple[int, bytes]:
        """Send a request on this thread's connection; retry once if the server closed a kept-alive connection."""
        kept: http.client.HTTPConnection | None = getattr(self._own, "connection", None)
        fresh = kept is None or kept.sock is None
        if kept is None:
            self._own.connection = kept = self._connect(self._time_out)
            self._connections.append(kept)
        connection = kept
        headers = {"Accept-Encoding": "gzip", **({"Content-Type": content} if body is not None else {})}
        try:
            answer = self._send(connection, method, path, body, headers, query)
            whole = self._read(answer.read)
            if answer.will_close:
                connection.close()
        except OSError as error:
            connection.close()
            if fresh or isinstance(error, TimeoutError):
                raise
            return self._exchange(method, path, body, content, query)
        return answer.status, gzip.decompress(whole) if answer.headers.get("Content-Encoding") == "gzip" else whole

    def _connect(self, time_out: float) -> http.client.HTTPConnection:
        access = self._access
        if access.tls is None:
            return http.client.HTTPConnection(access.host, access.port, timeout=time_out)
        return _TlsConnection(access, time_out)

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        query: dict[str, str],
    ) -> http.client.HTTPResponse:
        whole = self._access.path + path + (f"?{urlencode(query)}" if query else "")
        sent = {"Accept": JSON, "User-Agent": "windtunnel", **headers, **self._access.headers()}
        try:
            connection.request(method, whole, body, sent)
            return connection.getresponse()
        except http.client.HTTPException as error:
            connection.close()
            raise ConnectionError(f"the API server hung up: {type(error).__name__}") from None

    def _read(self, read: Callable[[], bytes]) -> bytes:
        try:
            return read()
        except http.client.HTTPException as error:
            raise ConnectionError(f"the API server hung up: {type(error).__name__}") from None

    def _refusal(self, method: str, path: str, status: int, body: bytes) -> Exception:
        try:
            answer = msgspec.json.decode(body, type=_Status)
        except msgspec.DecodeError:
            answer = _Status(message=body[:500].decode(errors="replace"))
        if status in _TRANSIENT or status == 401:  # 401: the token file is replaced and read again for the next request
            return ConnectionError(f"the API server answered {status} to {method} {path}: {answer.message[:500]}")
        return ApiRefused(status, answer.reason, answer.message)


class _TlsConnection(http.client.HTTPSConnection):
    """TLS connection whose server certificate may name another host than the address."""

    def __init__(self, access: Access, time_out: float) -> None:
        assert access.tls is not None
        self._tls, self._name = access.tls, access.server_name or access.host
        super().__init__(access.host, access.port, timeout=time_out, context=access.tls)

    def connect(self) -> None:
        """Connect, and check the server's name."""
        plain = socket.create_connection((self.host, self.port), self.timeout)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.sock = self._tls.wrap_socket(plain, server_hostname=self._name)
        except BaseException:
            plain.close()
            raise


class ListResponse(msgspec.Struct):
    """Base of every list type; requests for it are counted with the verb `list`."""


def path_of(api: str, plural: str, namespace: str = "", name: str = "", part: str = "") -> str:
    """Return an API path; ``api`` is ``v1`` or ``group/version``."""
    root = f"/apis/{api}" if "/" in api else f"/api/{api}"
    space = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{root}{space}/{plural}" + (f"/{quote(name, safe='')}" if name else "") + (f"/{part}" if part else "")
