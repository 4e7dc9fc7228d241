"""The API server, spoken to over connections that are kept: no typed objects, for they cost three times the call."""

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
#: Called after each call with its verb, how it ended ("ok", "409", "away"), and its seconds.
Observer = Callable[[str, str, float], None]

JSON = "application/json"
MERGE = "application/merge-patch+json"
#: A line of a log, or an event of a watch, is at most so long.
_LINE = 1 << 20
#: What will be better in a moment: too many requests, a server that fails, a gateway without one behind it.
_PASSING = frozenset({429, 500, 502, 503, 504})
_VERBS = {"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete"}


class Refused(Exception):
    """The API server answered no: an HTTP status, Kubernetes's word for the reason, and its sentence."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason, self.message = status, reason, message


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""


class Client:
    """Asks one API server. Safe for threads: each has a connection of its own.

    OSError: it did not answer, or not now; asking again is right, for everything asked here may be asked twice.
    """

    def __init__(self, access: Access, *, time_out: float = 10.0, observer: Observer = lambda *_: None) -> None:
        self._access, self._time_out, self._observer = access, time_out, observer
        self._own = threading.local()
        self._kept: list[http.client.HTTPConnection] = []

    def get(self, path: str, kind: type[T], **query: str) -> T:
        """Read an object or a list of them as this type; fields it does not name are skipped."""
        body = self._ask("GET", path, query=query, verb="list" if issubclass(kind, ListOf) else "get")
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.DecodeError as error:
            raise ConnectionError(f"{path} answered what is no {kind.__name__}: {error}") from None

    def create(self, path: str, document: Any, **query: str) -> bytes:
        """Create an object in a collection."""
        return self._ask("POST", path, json.dumps(document).encode(), query=query)

    def patch(self, path: str, document: Any) -> None:
        """Merge these members into an object."""
        self._ask("PATCH", path, json.dumps(document).encode(), content=MERGE)

    def delete(self, path: str) -> bool:
        """Delete an object, what it owns after it; tell whether there was one."""
        try:
            self._ask("DELETE", path, b'{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}')
        except Refused as refused:
            if refused.status == 404:
                return False
            raise
        return True

    def lines(self, path: str, *, quiet: float, **query: str) -> Iterator[bytes]:
        """Follow a log or a watch, line by line, on a connection of its own; OSError after so long a silence."""
        with closing(self._connect(quiet)) as connection:
            answer = self._begin(connection, "GET", path, None, {}, query)
            if answer.status >= 300:
                raise self._refusal("GET", path, answer.status, answer.read())
            while line := self._read(lambda: answer.readline(_LINE)):
                yield line

    def close(self) -> None:
        """Close every thread's connection; who asks again gets a new one."""
        for connection in self._kept:
            connection.close()

    def _ask(
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
        """Ask on this thread's connection. One that was kept may have been closed meanwhile: then once more."""
        kept: http.client.HTTPConnection | None = getattr(self._own, "connection", None)
        fresh = kept is None or kept.sock is None
        if kept is None:
            self._own.connection = kept = self._connect(self._time_out)
            self._kept.append(kept)
        connection = kept
        headers = {"Accept-Encoding": "gzip", **({"Content-Type": content} if body is not None else {})}
        try:
            answer = self._begin(connection, method, path, body, headers, query)
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
        return _Secure(access, time_out)

    def _begin(
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
            said = msgspec.json.decode(body, type=_Status)
        except msgspec.DecodeError:
            said = _Status(message=body[:500].decode(errors="replace"))
        if status in _PASSING or status == 401:  # a token is replaced, and read anew for the next request
            return ConnectionError(f"the API server answered {status} to {method} {path}: {said.message[:500]}")
        return Refused(status, said.reason, said.message)


class _Secure(http.client.HTTPSConnection):
    """A connection whose server may be known by another name than it is reached by."""

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


class ListOf(msgspec.Struct):
    """The base of every list, so that a call is counted as one."""


def path_of(api: str, plural: str, namespace: str = "", name: str = "", part: str = "") -> str:
    """Return a place in the API; ``api`` is ``v1`` or ``group/version``."""
    root = f"/apis/{api}" if "/" in api else f"/api/{api}"
    space = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{root}{space}/{plural}" + (f"/{quote(name, safe='')}" if name else "") + (f"/{part}" if part else "")
