"""HTTP server of files for tests, whose answers a test sets by path: content, redirects, statuses, endless bodies."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class WebFiles:
    """A server on loopback. ``answers``: by path. ``requests``: (path, Authorization) in the order of arrival.

    ``bodies`` and ``headers``: of POST requests.
    """

    port: int
    answers: dict[str, Answer] = field(default_factory=dict)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    @property
    def origin(self) -> str:
        """The origin by address; ``named`` is the same server by a host name."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def named(self) -> str:
        return f"http://localhost:{self.port}"


def content(data: bytes, **headers: str) -> Answer:
    """Answer with these bytes."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(data)

    return answer


def redirect(location: str, status: int = 302) -> Answer:
    """Answer with a redirect."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Location", location)
        request.send_header("Content-Length", "0")
        request.end_headers()

    return answer


def status(code: int, headers: Mapping[str, str] | None = None) -> Answer:
    """Answer with a status and no content."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(code)
        for name, value in (headers or {}).items():
            request.send_header(name, value)
        request.send_header("Content-Length", "0")
        request.end_headers()

    return answer


def endless(request: BaseHTTPRequestHandler) -> None:
    """Answer with bytes without end, and without a length."""
    request.send_response(200)
    request.end_headers()
    try:
        while True:
            request.wfile.write(bytes(65536))
    except OSError:  # the client has had enough
        request.close_connection = True


@contextmanager
def web_files() -> Iterator[WebFiles]:
    """Run a server while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            files.requests.append((self.path, self.headers.get("Authorization")))
            files.answers.get(self.path, status(404))(self)

        def do_POST(self) -> None:
            files.headers.append(dict(self.headers))
            files.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    files = WebFiles(server.server_port)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield files
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
