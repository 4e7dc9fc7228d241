"""Gateway from granian's RSGI to a WSGI application: threads, request bodies in bounded time, responses.

granian reads a WSGI request's body in the thread of the request, without any time limit. Here the event loop receives
the body, and a thread is taken when the body, or its first FIRST_BYTES, have arrived. Probes have threads of their own.
"""

import asyncio
import io
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from common.errors import PlatformError, TruncatedUpload
from server.request_bodies import FIRST_BYTES, BodyLimits, Reader, RequestBody, UnfinishedBodies
from server.request_threads import RequestThreads
from server.slow_readers import ClientStalled, SlowReader

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

logger = logging.getLogger(__name__)

#: Threads of each path that an orchestrator probes.
PROBE_THREADS = {"/healthz": 1, "/readyz": 2}
#: Most bytes of a response that is sent whole.
WHOLE = 1 << 20
#: Most bytes and seconds of a request body that is still received, and discarded, after its request was answered: a
#: client that sends its whole body before it reads cannot read the answer if the connection is reset.
DRAIN_BYTES, DRAIN_SECONDS = 64 << 20, 15.0
#: Seconds for which the first bytes of an upload are awaited without a thread: a small one is there by then.
UPLOAD_WAIT = 0.05
#: Seconds between two checks of the unfinished bodies.
CHECK_INTERVAL = 0.5

Environ = dict[str, Any]
#: Status, body and headers of a response.
Answer = tuple[int, bytes, Mapping[str, str]]
CLOSE = ("Connection", "close")


async def _no_delay(environ: Environ) -> PlatformError | None:
    return None


@dataclass(frozen=True, slots=True)
class HeadRules:
    """What the head of a request decides, before its body is received.

    ``delay`` waits before the request is looked at, and may refuse it unseen; ``refuse`` checks the head; ``is_upload``
    tells whether the body is that of a resumable upload, which may be slow. ``observe`` is told of the refusals.
    """

    delay: Callable[[Environ], Awaitable[PlatformError | None]] = _no_delay
    refuse: Callable[[Environ], PlatformError | None] = lambda environ: None
    is_upload: Callable[[Environ], bool] = lambda environ: False
    observe: Callable[[Environ, PlatformError], None] = lambda environ, error: None


class Gateway:
    """RSGI application that serves a WSGI application. ``answer`` encodes an error."""

    def __init__(
        self,
        application: "WSGIApplication",
        *,
        threads: int,
        limits: BodyLimits,
        answer: Callable[[PlatformError], Answer],
        rules: HeadRules = HeadRules(),
        on_start: Callable[[], None] = lambda: None,
    ) -> None:
        self._application = application
        self._answer = answer
        self._rules = rules
        self._on_start = on_start
        self._bodies = UnfinishedBodies(limits)
        self._threads = RequestThreads(threads + 2 * limits.threads, "request")
        self._probes = {path: RequestThreads(count, "probe") for path, count in PROBE_THREADS.items()}
        self._common = _common_environ()
        self._checking = False

    def __rsgi_init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called by granian before the event loop runs, which sets its own wake-up descriptor for signals then."""
        loop.call_soon(self._on_start)

    async def __rsgi__(self, scope: Any, protocol: Any) -> None:
        """Serve a request."""
        if scope.proto != "http":
            return
        environ = environ_of(scope) | self._common
        threads = self._probes.get(environ["PATH_INFO"], self._threads)
        length = environ.get("CONTENT_LENGTH")
        refused = await self._rules.delay(environ)
        if (length is None or length == "0") and "HTTP_TRANSFER_ENCODING" not in environ:
            if refused is not None:
                self._rules.observe(environ, refused)
                self._send_error(protocol, environ["REQUEST_METHOD"], refused)
                return
            environ["wsgi.input"] = io.BytesIO()
            await threads.run(self._serve, environ, protocol, scope.client)
        elif error := refused or self._rules.refuse(environ):
            self._rules.observe(environ, error)
            # Before the body is asked for: a client that expects `100 Continue` does not send it.
            self._send_error(protocol, environ["REQUEST_METHOD"], error)
            await self._stream(environ, protocol, scope.client, None)
        elif threads is not self._threads:
            environ["wsgi.input"] = io.BytesIO()
            await threads.run(self._serve, environ, protocol, scope.client)
            await self._stream(environ, protocol, scope.client, None)
        elif self._rules.is_upload(environ):
            await self._stream(environ, protocol, scope.client, Reader.UPLOAD)
        elif length is not None and int(length) <= FIRST_BYTES:
            await self._collect(environ, protocol, scope.client)
        else:
            await self._stream(environ, protocol, scope.client, Reader.THREAD)

    async def _collect(self, environ: Environ, protocol: Any, client: str) -> None:
        """Serve a request when its whole body has arrived."""
        loop = asyncio.get_running_loop()
        body = RequestBody(loop, Reader.LOOP)
        error = self._bodies.admit(body, Reader.LOOP, loop.time())
        self._check_bodies(loop)
        content = b""
        try:
            if error is None:
                content = await body.receive_whole(protocol())
                error = body.error
        except RuntimeError:  # the connection ended: granian's RSGIProtocolClosed
            error = TruncatedUpload()
        finally:
            self._bodies.remove(body)
        if error is not None:
            self._send_error(protocol, environ["REQUEST_METHOD"], error)
            return
        environ["wsgi.input"] = io.BytesIO(content)
        await self._threads.run(self._serve, environ, protocol, client)

    async def _stream(self, environ: Environ, protocol: Any, client: str, reader: Reader | None) -> None:
        """Serve a request while its body arrives; without a reader, the request is answered and the body discarded."""
        loop = asyncio.get_running_loop()
        body = environ["wsgi.input"] = RequestBody(loop, Reader.LOOP)
        receiving = loop.create_task(_receive(protocol, body, int(environ.get("CONTENT_LENGTH", -1))))
        try:
            if reader is not None:
                if error := await self._arrival(body, reader):
                    self._send_error(protocol, environ["REQUEST_METHOD"], error)
                else:
                    await self._threads.run(self._serve, environ, protocol, client)
            await _drain(body, receiving)
        finally:
            self._bodies.remove(body)
            receiving.cancel()

    async def _arrival(self, body: RequestBody, reader: Reader) -> PlatformError | None:
        """Wait until a thread may be taken for the request of this body; return the error that refuses the request."""
        loop = asyncio.get_running_loop()
        self._check_bodies(loop)
        if reader is Reader.UPLOAD:
            with suppress(TimeoutError):
                async with asyncio.timeout(UPLOAD_WAIT):
                    await body.ready.wait()
        elif reader is Reader.THREAD:
            if error := self._bodies.admit(body, Reader.LOOP, loop.time()):
                return error
            await body.ready.wait()
            if body.error is not None:
                return body.error
            if body.complete:
                self._bodies.remove(body)
                return None
        return self._bodies.admit(body, reader, loop.time())

    def _check_bodies(self, loop: asyncio.AbstractEventLoop) -> None:
        """Check the unfinished bodies now and then, as long as there are any."""
        if not self._checking:
            self._checking = True
            loop.call_later(CHECK_INTERVAL, self._check, loop)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        self._checking = False
        self._bodies.expire(loop.time())
        if len(self._bodies):
            self._check_bodies(loop)

    # -- thread of the request

    def _serve(self, environ: Environ, protocol: Any, client: str) -> None:
        head = _Head()
        chunks: Iterable[bytes] | None = None
        try:
            chunks = self._application(environ, head)
            _respond(environ, protocol, client, head, chunks)
        except Exception:
            logger.exception("%s %s failed", environ["REQUEST_METHOD"], environ["PATH_INFO"])
            self._send_error(protocol, environ["REQUEST_METHOD"], PlatformError())
        finally:
            if (close := getattr(chunks, "close", None)) is not None:
                close()

    def _send_error(self, protocol: Any, method: str, error: PlatformError) -> None:
        status, content, headers = self._answer(error)
        lines = [*headers.items(), CLOSE, ("Content-Length", str(len(content)))]
        protocol.response_bytes(status, lines, b"" if method == "HEAD" else content)


class _Head:
    """Status and headers of a response: WSGI's `start_response`."""

    def __init__(self) -> None:
        self.status = 200
        self.headers: list[tuple[str, str]] = []

    def __call__(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], object]:
        self.status = int(status.split(" ", 1)[0])
        self.headers = headers
        return _no_write


def _no_write(data: bytes) -> object:
    raise NotImplementedError("WSGI's write() is not supported; return an iterable")


def _respond(environ: Environ, protocol: Any, client: str, head: _Head, chunks: Iterable[bytes]) -> None:
    length = next((int(value) for name, value in head.headers if name.lower() == "content-length"), None)
    if isinstance(chunks, list) or environ["REQUEST_METHOD"] == "HEAD" or (length is not None and length <= WHOLE):
        content = b"" if environ["REQUEST_METHOD"] == "HEAD" else b"".join(chunks)
        protocol.response_bytes(head.status, head.headers, content)
        return
    # Each chunk of a chunked body has its length in hexadecimal digits, and two line ends (RFC 9112, section 7.1).
    framing = 4 if length is None and environ["SERVER_PROTOCOL"] == "HTTP/1.1" else None
    transport = protocol.response_stream(head.status, head.headers)
    reader = SlowReader(client)
    try:
        for chunk in chunks:
            if chunk:
                _pass_on(transport, chunk)
                reader.sent(len(chunk) + (0 if framing is None else framing + len(f"{len(chunk):x}")))
    except (ClientStalled, _Disconnected):
        pass
    except Exception:  # the status is sent already: the connection ends before the announced length
        logger.exception("%s %s failed within its response", environ["REQUEST_METHOD"], environ["PATH_INFO"])
    finally:
        reader.close()


class _Disconnected(Exception):
    """The client has closed its connection."""


def _pass_on(transport: Any, chunk: bytes) -> None:
    """Pass a chunk to granian. The call is complete when it returns; its awaitable only has the outcome."""
    try:
        next(iter(transport.send_bytes(chunk)))
    except StopIteration:
        return
    except RuntimeError as error:  # granian's RSGIProtocolClosed
        raise _Disconnected from error


async def _receive(protocol: Any, body: RequestBody, length: int) -> None:
    """Feed a body until its end, or until the connection ends: RSGI does not distinguish the two.

    ``length``: announced bytes, of which the last are the end; -1: not announced.
    """
    try:
        async for chunk in protocol:
            if chunk:
                await body.feed(chunk)
                if body.progress.received == length or body.discarded > DRAIN_BYTES:
                    break
    finally:
        body.finish()


async def _drain(body: RequestBody, receiving: "asyncio.Task[None]") -> None:
    """Receive the rest of an answered request's body for a bounded time, and discard it."""
    if receiving.done() or body.error is not None:
        return
    body.discard()
    await asyncio.wait([receiving], timeout=DRAIN_SECONDS)


def environ_of(scope: Any) -> Environ:
    """Return the WSGI environment of a request's head.

    The host of an absolute-form target replaces the Host header (RFC 9112, section 3.2.2).
    """
    environ: Environ = {}
    headers = scope.headers
    for name in headers.keys():
        key = name.upper().replace("-", "_")
        if key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            key = f"HTTP_{key}"
        environ[key] = (";" if name == "cookie" else ",").join(headers.get_all(name))
    if (authority := scope.authority) is not None:
        environ["HTTP_HOST"] = authority
    server_host, _, server_port = scope.server.rpartition(":")
    return environ | {
        "REQUEST_METHOD": scope.method,
        "PATH_INFO": scope.path.encode().decode("latin-1"),
        "QUERY_STRING": scope.query_string,
        "REMOTE_ADDR": scope.client.rpartition(":")[0].strip("[]"),
        "SERVER_NAME": server_host.strip("[]"),
        "SERVER_PORT": server_port,
        "SERVER_PROTOCOL": "HTTP/1.1" if scope.http_version == "1.1" else "HTTP/1.0",
        "wsgi.url_scheme": scope.scheme,
    }


def _common_environ() -> Environ:
    """Return the part of the WSGI environment that all requests share."""
    return {
        "SCRIPT_NAME": "",
        "SERVER_SOFTWARE": "granian",
        "wsgi.errors": sys.stderr,
        "wsgi.input_terminated": True,
        "wsgi.multiprocess": False,
        "wsgi.multithread": True,
        "wsgi.run_once": False,
        "wsgi.version": (1, 0),
    }
