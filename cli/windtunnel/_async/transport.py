"""HTTP transport of the client: retries with back-off, problem documents as errors, streams that resume."""

import asyncio
import os
import re
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
#: Failed attempts in a row after which the user is told; a single failure passes unnoticed.
TOLD_AFTER = 2
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class AsyncTransport:
    """Connections to one platform.

    ``patience``: seconds for which a request is repeated while the platform does not answer. It counts once the
    platform has answered; until then, an address at which nobody listens is an error at once. ``timeout``: seconds
    without a byte after which a connection counts as broken. ``on_wait`` is called with a text while requests are
    repeated.
    """

    def __init__(
        self,
        server: Server,
        *,
        patience: float = 60.0,
        timeout: float = READ_TIMEOUT,
        on_wait: Callable[[str], object] | None = None,
    ) -> None:
        self.server = server
        self.patience = patience
        self.timeout = timeout
        self.on_wait = on_wait
        self.answered = False
        headers = {"User-Agent": f"windtunnel/{_version()}"}
        if server.token:
            headers["Authorization"] = f"Bearer {server.token}"
        if server.project:
            headers["Windtunnel-Project"] = server.project
        self._http = httpx.AsyncClient(
            base_url=server.url,
            headers=headers,
            timeout=httpx.Timeout(timeout, connect=min(timeout, CONNECT_TIMEOUT)),
            # A proxy of the environment does not reach this machine's own addresses.
            trust_env=urlsplit(server.url).hostname not in LOOPBACK,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def json(self, method: str, path: str, **options: Any) -> Any:
        """Send a request and return the JSON of its response."""
        response = await self.request(method, path, **options)
        try:
            return response.json() if response.content else None
        except ValueError:
            kind = response.headers.get("Content-Type", "no content type")
            raise CannotConnect(
                f"{self.server.url} answers, but not as a platform does ({kind} in place of JSON)."
                " Name the address of a platform: --url, WINDTUNNEL_URL, `windtunnel context add`."
            ) from None

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool | None = None,
        timeout: float | None = None,
    ) -> httpx.Response:
        """Send a request, again if it is worth it, and return a successful response; raise Refused otherwise.

        ``timeout``: seconds without a byte of the response, for a request that takes long to serve.
        """
        if not path.startswith("/"):  # httpx would send the token to the host of an address
            raise WindtunnelError(f"{path!r:.200} is not a path of the platform, such as /v1/datasets.")
        if repeatable is None:
            repeatable = method in retries.REPEATABLE_METHODS or "Idempotency-Key" in (headers or {})
        limits = self._http.timeout if timeout is None else httpx.Timeout(timeout, connect=self._http.timeout.connect)
        attempts = AsyncAttempts(self)
        while True:
            try:
                response = await self._http.request(
                    method, path, params=query(params), json=json, content=content, headers=headers, timeout=limits
                )
            except httpx.TransportError as error:
                if not repeatable and not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                    raise _broken(error) from None
                await attempts.failed(error)
                continue
            except httpx.InvalidURL as error:
                raise WindtunnelError(f"{self.server.url}{path}: {error}") from None
            self.answered = True
            if response.is_success:
                return response
            refusal = refused(response)
            if not retries.after_status(response.status_code, repeatable=repeatable):
                raise refusal
            await attempts.failed(refusal)

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
        rewind: Callable[[], object] | None = None,
        progress: Callable[[int, int | None], None] | None = None,
    ) -> None:
        """Pass the bytes of a download to ``write``; a broken download is continued where it broke.

        ``rewind`` is called where the platform cannot continue, and starts again: what was written does not count.
        ``progress`` is called with the bytes so far and their total, None if that is not known.
        """
        done, total, etag = 0, None, ""
        attempts = AsyncAttempts(self)
        while True:
            headers = {"Accept-Encoding": "identity"}  # a range is of the bytes as they are sent
            if done and etag:
                headers |= {"Range": f"bytes={done}-", "If-Range": etag}
            try:
                async with self.stream(path, params=params, headers=headers) as response:
                    if done and response.status_code != 206:
                        if rewind is None:
                            raise Interrupted("The download broke and cannot go on where it broke; start it again.")
                        rewind()
                        done = 0
                    etag = response.headers.get("ETag", "")
                    length = response.headers.get("Content-Length")
                    total = done + int(length) if length else None
                    async for piece in response.aiter_bytes():
                        write(piece)
                        done += len(piece)
                        attempts.succeeded()
                        if progress is not None:
                            progress(done, total)
                    return
            except (httpx.TransportError, Refused) as error:
                await attempts.failed(error)


class AsyncAttempts:
    """Attempts at one request or stream, with the pauses between them.

    The patience counts from the first failure after the last sign of life: a stream that was quiet for an hour before
    it broke has all of it left.
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self._failures, self._since = 0, 0.0

    def succeeded(self) -> None:
        """Note that the platform has answered: the next failure is the first one."""
        self._failures = 0

    async def failed(self, error: httpx.TransportError | Refused, *, temporary: bool | None = None) -> None:
        """Wait before the next attempt; raise an error for the user if there is none, because of ``error``.

        ``temporary``: whether a refusal may pass; by default, by its status.
        """
        server = self._transport.server.url
        if isinstance(error, Refused):
            if not (retries.after_status(error.status, repeatable=True) if temporary is None else temporary):
                raise error
        if isinstance(error, httpx.TransportError) and not self._transport.answered:
            raise CannotConnect(
                f"No platform answers at {server} ({error or type(error).__name__}). {_next_step(str(error))}"
            ) from None
        if self._failures == 0:
            self._since = time.monotonic()
        self._failures += 1
        patience = self._transport.patience
        delay = retries.pause(
            self._failures,
            elapsed=time.monotonic() - self._since,
            patience=patience,
            retry_after=error.retry_after if isinstance(error, Refused) else None,
        )
        if delay is not None:
            if self._failures == TOLD_AFTER and self._transport.on_wait is not None:
                reason = error or type(error).__name__
                self._transport.on_wait(
                    f"{server} cannot serve this now ({reason}); trying for up to {patience:.0f} s."
                )
            await asyncio.sleep(delay)
        elif isinstance(error, Refused):
            raise error
        else:
            raise Interrupted(
                f"{server} has not answered for {patience:.0f} s ({error or type(error).__name__})."
                " What is submitted goes on there; try again when it is back."
            ) from None


def _next_step(reason: str) -> str:
    """Return what to do about a platform that cannot be reached, by the text of the error."""
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        return "SSL_CERT_FILE=FILE names the certificate of an authority that this machine does not trust yet."
    if "SSL" in reason:
        return "Does it serve http, not https?"
    return "Start one with `windtunnel up`, or name another: --url, WINDTUNNEL_URL, `windtunnel context add`."


async def lines_of(response: httpx.Response) -> AsyncIterator[str]:
    """Yield the lines of a response. They end with a line feed only: JSON may have other line separators in a text."""
    rest = b""
    async for piece in response.aiter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")


def query(params: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the parameters of a query without those that are None; truth values as the API spells them."""
    return {
        key: str(value).lower() if isinstance(value, bool) else value
        for key, value in (params or {}).items()
        if value is not None
    }


def path(*segments: object) -> str:
    """Return a path below `/v1`, with each segment escaped; raise WindtunnelError for one that is not a name."""
    for segment in segments:
        if not isinstance(segment, str | int):
            raise WindtunnelError(f"{segment!r:.200} is not a name or an id; give its `id` or its `name`.")
        if segment in {"", ".", ".."}:  # a client or a server would resolve dots to another address
            raise WindtunnelError(f"{segment!r} is not a name or an id.")
    words = [str(segment) for segment in segments]
    if words[0] in {"models", "datasets"} and "/" in "".join(words[1:2]) and "@" not in words[1]:
        if words[2:3] != ["shares"]:  # of which a name alone is all versions
            words[1] += "@latest"  # else `x/content` would be read as the content of x
    return "/v1/" + "/".join(quote(word, safe="@:") for word in words)


def refused(response: httpx.Response) -> Refused:
    """Return the error of a response; also of one from a proxy, which has no problem document."""
    try:
        problem = response.json()
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        address = response.request.url.copy_with(query=None)
        problem = {"detail": f"{address} answered {response.status_code}: {_shown(response)}"}
    if (seconds := retries.seconds_of(response.headers.get("Retry-After"))) is not None:
        problem.setdefault("retry_after", seconds)
    if response.status_code == 401:
        problem["detail"] = (
            f"{problem.get('detail') or 'A token is required.'} Give it as WINDTUNNEL_TOKEN, or store it:"
            " `windtunnel login`."
        )
    if response.request.method == "POST" and str(problem.get("type", "")).endswith("/unknown-model"):
        problem["detail"] = (
            f"{problem.get('detail', '')} If a file was meant, name it by its path; this folder is {os.getcwd()}."
        ).lstrip()
    url = response.request.url
    return Refused(response.status_code, problem, f"{url.scheme}://{url.netloc.decode()}")


def _shown(response: httpx.Response) -> str:
    """Return what a person needs of a response that is not the platform's: a page's title, not its HTML."""
    if response.is_redirect:
        return f"it redirects to {response.headers.get('Location')}; name that address instead."
    text = response.text.strip()
    if "html" in response.headers.get("Content-Type", "") or text.startswith("<"):
        title = re.search(r"<title[^>]*>([^<]*)", text, re.IGNORECASE)
        text = " ".join(title[1].split()) if title else ""
    return text[:300] or response.reason_phrase


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
