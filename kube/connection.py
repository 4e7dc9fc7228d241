"""Connections to one API server: requests and watches by the `kubernetes` package's ApiClient and Watch.

Imports the package. Responses are raw bytes: typed objects cost a hundred times as much. All failures to get a response
raise OSError.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPException
from typing import Any

from kubernetes.client import ApiClient, ApiException
from kubernetes.watch import Watch
from urllib3 import HTTPResponse
from urllib3.exceptions import HTTPError, ProtocolError
from urllib3.exceptions import TimeoutError as TransportTimeout

from kube.access import Access
from kube.configuration import open_client
from kube.messages import Request, refusal, refusal_of

#: Seconds between two renewals of credentials that the API server rejects, each of which may run an exec plugin.
RENEWAL_PAUSE = 10.0


class ApiConnection:
    """Pooled connections with credentials, shared by threads. Credentials are loaded before the first request."""

    def __init__(self, access: Access, time_out: float) -> None:
        self._access, self._time_out = access, time_out
        self._client: ApiClient | None = None
        self._renewal_at = float("-inf")
        self._lock = threading.Lock()

    def exchange(self, request: Request) -> tuple[int, bytes]:
        """Send a request; return status and decompressed body."""
        with _as_os_errors():
            response = self._send(request, self._time_out)
            return response.status, response.data

    def events(self, request: Request, version: str, quiet: float) -> Iterator[tuple[str, dict[str, Any], str]]:
        """Watch a collection from a resource version on; yield type, object and resource version of each event."""
        watch = Watch(return_type="object")

        def listed(*, resource_version: str, **_: Any) -> HTTPResponse:
            options = {"watch": "true"} | ({"resourceVersion": resource_version} if resource_version else {})
            return self._stream(replace(request, query={**request.query, **options}), quiet)

        with _as_os_errors():
            try:
                # With a time-out, the package sends one request and leaves it to its caller to continue.
                for event in watch.stream(listed, resource_version=version, timeout_seconds=None):
                    if event is not None:
                        yield event["type"], event["object"], watch.resource_version
            except ApiException as error:
                if not error.status:
                    raise
                reason, _, message = str(error.reason).partition(": ")
                raise refusal_of(request, error.status, reason, message) from None
            except (LookupError, TypeError) as error:
                raise ConnectionError(f"{request.path} sent an invalid event ({type(error).__name__})") from None

    def close(self) -> None:
        """Close idle connections; the next request opens a new one."""
        if self._client is not None:
            self._client.close()

    def _stream(self, request: Request, quiet: float) -> HTTPResponse:
        response = self._send(request, quiet)
        if response.status >= 300:
            raise refusal(request, response.status, response.data)
        return response

    def _send(self, request: Request, patience: float) -> HTTPResponse:
        """Send a request; with renewed credentials once more if the API server answers 401."""
        client = self._loaded()
        response = self._try_twice(client, request, patience)
        if response.status == 401 and (renewed := self._renewed(client)) is not client:
            response.drain_conn()
            response.release_conn()
            response = self._try_twice(renewed, request, patience)
        return response

    def _try_twice(self, client: ApiClient, request: Request, patience: float) -> HTTPResponse:
        """Send a request; once more if the server closed the connection, as it may have closed a kept-alive one.

        Time-outs and refused connections are not retried. What was done before the connection closed is done twice,
        so requests are idempotent: objects have names, and a second creation is answered with AlreadyExists.
        """
        try:
            return self._try(client, request, patience)
        except ProtocolError:
            return self._try(client, request, patience)

    def _try(self, client: ApiClient, request: Request, patience: float) -> HTTPResponse:
        try:
            serialized = client.param_serialize(
                request.method,
                request.path,
                query_params=dict(request.query),
                header_params=dict(request.headers),
                body=request.document,
                auth_settings=["BearerToken"],  # runs the hook that refreshes credentials
            )
        except OSError:
            raise
        except Exception as error:  # its message may contain a secret
            raise ConnectionError(f"the API server's credentials cannot be renewed: {type(error).__name__}") from None
        headers = serialized[2]
        if credentials := headers.get("authorization"):
            headers["authorization"] = credentials = credentials.strip()
            if not (credentials.isascii() and credentials.isprintable()):
                # http.client would raise an error that repeats the token.
                raise ConnectionError("the API server's token has characters that HTTP does not permit")
        answer = client.call_api(*serialized, _request_timeout=(self._time_out, patience))
        response: HTTPResponse = answer.response
        return response

    def _loaded(self) -> ApiClient:
        with self._lock:
            if self._client is None:
                self._client = _opened(self._access)
            return self._client

    def _renewed(self, rejected: ApiClient) -> ApiClient:
        """Return a client with reloaded credentials, or ``rejected`` itself if they were reloaded a moment ago."""
        with self._lock:
            now = time.monotonic()
            if self._client is rejected and now >= self._renewal_at:
                self._renewal_at = now + RENEWAL_PAUSE
                self._client = _opened(self._access)
            assert self._client is not None
            return self._client


def _opened(access: Access) -> ApiClient:
    try:
        return open_client(access)
    except ValueError as error:  # its file has changed since it was checked
        raise ConnectionError(str(error)) from None


@contextmanager
def _as_os_errors() -> Iterator[None]:
    """Raise TimeoutError or ConnectionError for the errors of urllib3, http.client and the package."""
    try:
        yield
    except TransportTimeout as error:
        raise TimeoutError(f"the API server does not answer in time: {error}") from None
    except ApiException as error:
        reason = " ".join(str(error.reason).split())
        raise ConnectionError(f"the connection to the API server failed: {reason}") from None
    except (HTTPError, HTTPException) as error:
        raise ConnectionError(f"the connection to the API server failed: {type(error).__name__}: {error}") from None
