"""HTTP transport of the client: retries with back-off, problem documents as errors, streams that resume."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from windtunnel import retries
from windtunnel.contexts import Server
from windtunnel.errors import CannotConnect, Interrupted, Refused, WindtunnelError

#: Seconds without a byte after which a connection counts as broken; streams send heartbeats more often.
READ_TIMEOUT = 60.0
CONNECT_TIMEOUT = 10.0
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class AsyncTransport:
    """Connections to one platform.

    ``patience``: seconds for which a request is repeated while the platform does not answer. It counts once the
    platform has answered; until then, an address at which nobody listens is an error at once.
    """

    def __init__(self, server: Server, *, patience: float = 60.0) -> None:
        self.server = server
        self.patience = patience
        self.answered = False
        headers = {"User-Agent": f"windtunnel/{_version()}"}
        if server.token:
            headers["Authorization"] = f"Bearer {server.token}"
        self._http = httpx.AsyncClient(
            base_url=server.url,
            headers=headers,
            timeout=httpx.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT),
            # A proxy of the environment does not reach this machine's own addresses.
            trust_env=urlsplit(server.url).hostname not in LOOPBACK,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def json(self, method: str, path: str, **options: Any) -> Any:
        """Send a request and return the JSON of its response."""
        response = await self.request(method, path, **options)
        return response.json() if response.content else None

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool | None = None,
        timeout: float = READ_TIMEOUT,
    ) -> httpx.Response:
        """Send a request, again if it is worth it, and return a successful response; raise Refused otherwise."""
        if repeatable is None:
            repeatable = method in retries.REPEATABLE_METHODS or "Idempotency-Key" in (headers or {})
        began, attempt = time.monotonic(), 0
        while True:
            attempt += 1
            try:
                response = await self._http.request(
                    method, path, params=query(params), json=json, headers=headers, timeout=timeout
                )
            except httpx.TransportError as error:
                if not repeatable and not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                    raise _broken(error) from None
                await self.wait(attempt, began, error)
                continue
            except httpx.InvalidURL as error:
                raise WindtunnelError(f"{self.server.url}{path}: {error}") from None
            self.answered = True
            if response.is_success:
                return response
            refusal = refused(response)
            if not retries.after_status(response.status_code, repeatable=repeatable):
                raise refusal
            await self.wait(attempt, began, refusal, retries.seconds_of(response.headers.get("Retry-After")))

    async def wait(
        self, attempt: int, began: float, error: httpx.TransportError | Refused, retry_after: float | None = None
    ) -> None:
        """Wait before the next attempt; raise an error for the user if there is none.

        ``attempt`` counts from 1, ``began`` is the monotonic time of the first one, ``error`` what ended the last one.
        """
        if isinstance(error, httpx.TransportError) and not self.answered:
            raise CannotConnect(
                f"No platform answers at {self.server.url} ({error or type(error).__name__}). Start one with"
                " `windtunnel up`, or name another: --url, WINDTUNNEL_URL, `windtunnel context add`."
            ) from None
        delay = retries.pause(
            attempt, elapsed=time.monotonic() - began, patience=self.patience, retry_after=retry_after
        )
        if delay is not None:
            await asyncio.sleep(delay)
        elif isinstance(error, Refused):
            raise error
        else:
            raise Interrupted(
                f"{self.server.url} has not answered for {self.patience:.0f} s ({error or type(error).__name__})."
                " What is submitted goes on there; try again when it is back."
            ) from None

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[httpx.Response]:
        """Open a response whose body is read as it arrives; raise Refused, and httpx's errors of the transport."""
        async with self._http.stream("GET", path, params=query(params), headers=headers) as response:
            self.answered = True
            if not response.is_success:
                await response.aread()
                raise refused(response)
            yield response

    async def send(
        self, method: str, url: str, *, headers: Mapping[str, str], content: AsyncIterator[bytes] | bytes | None = None
    ) -> httpx.Response:
        """Send a request once, whatever its response; for protocols with rules of their own."""
        return await self._http.request(method, url, headers=headers, content=content)

    async def save(
        self,
        path: str,
        write: Callable[[bytes], object],
        *,
        params: Mapping[str, Any] | None = None,
        progress: Callable[[int, int | None], None] | None = None,
    ) -> None:
        """Pass the bytes of a download to ``write``; a broken download is continued where it broke.

        ``progress`` is called with the bytes so far and their total, None if that is not known.
        """
        done, total, etag = 0, None, ""
        began, attempt = time.monotonic(), 0
        while True:
            attempt += 1
            headers = {"Range": f"bytes={done}-", "If-Range": etag} if done and etag else {}
            try:
                async with self.stream(path, params=params, headers=headers) as response:
                    if done and response.status_code != 206:
                        raise Interrupted("The download broke and cannot be continued where it broke; start it again.")
                    etag = response.headers.get("ETag", "")
                    length = response.headers.get("Content-Length")
                    total = done + int(length) if length else None
                    async for piece in response.aiter_bytes():
                        write(piece)
                        done += len(piece)
                        began, attempt = time.monotonic(), 0
                        if progress is not None:
                            progress(done, total)
                    return
            except httpx.TransportError as error:
                await self.wait(max(attempt, 1), began, error)
            except Refused as error:
                if not retries.after_status(error.status, repeatable=True):
                    raise
                await self.wait(max(attempt, 1), began, error)


def query(params: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the parameters of a query without those that are None; truth values as the API spells them."""
    return {
        key: str(value).lower() if isinstance(value, bool) else value
        for key, value in (params or {}).items()
        if value is not None
    }


def path(*segments: object) -> str:
    """Return a path below `/v1`, with each segment escaped."""
    return "/v1/" + "/".join(quote(str(segment), safe="@:") for segment in segments)


def refused(response: httpx.Response) -> Refused:
    """Return the error of a response; also of one from a proxy, which has no problem document."""
    try:
        problem = response.json()
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        text = response.text.strip()[:300]
        problem = {"detail": f"{response.request.url.copy_with(query=None)} answered {response.status_code}: {text}"}
    if response.status_code == 401:
        problem["detail"] = (
            f"{problem.get('detail') or 'A token is required.'} Give it as WINDTUNNEL_TOKEN, or store it:"
            " `windtunnel context add NAME URL --token`."
        )
    url = response.request.url
    return Refused(response.status_code, problem, f"{url.scheme}://{url.netloc.decode()}")


def _broken(error: httpx.TransportError) -> Interrupted:
    return Interrupted(
        f"The connection broke before the response ({error or type(error).__name__}); whether the request was served is"
        " not known. Look, and repeat it if it was not."
    )


def _version() -> str:
    try:
        return version("windtunnel")
    except PackageNotFoundError:  # imported from a source tree that is not installed
        return "unknown"
