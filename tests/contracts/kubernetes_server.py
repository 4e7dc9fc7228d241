"""A scripted HTTP server, for responses that a real API server does not give on demand."""

import json
import selectors
import socket
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[BaseHTTPRequestHandler], None]


class QuietHTTPServer(ThreadingHTTPServer):
    """An HTTP server that logs nothing when clients disconnect or refuse its certificate."""

    def handle_error(self, *_: Any) -> None:
        """Log nothing."""


class ScriptedServer:
    """Answers each request with the next of its answers, repeats the last, and records the requests."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.connections = 0
        self.answers: list[Answer] = []
        #: Common names of the clients' certificates, in the order of requests.
        self.client_names: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                outer.connections += 1
                super().setup()

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.requests.append((self.command, self.path, dict(self.headers), body))
                connection = self.connection
                certificate: Any = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
                subject = [pair for part in (certificate or {}).get("subject", ()) for pair in part]
                outer.client_names += [value for key, value in subject if key == "commonName"]
                (outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0])(self)

            do_GET = do_POST = do_PATCH = do_DELETE = answer

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self._server = QuietHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}" if tls is None else f"https://localhost:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def response(status: int, document: Any, **headers: str) -> Answer:
    """Return an answer with a document, as JSON unless it is bytes."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(body)

    return answer


def chunked_response(*lines: bytes) -> Answer:
    """Answer in chunks, as an API server sends watches and logs."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        for line in (*lines, b""):
            request.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

    return answer


def close_connection(request: BaseHTTPRequestHandler) -> None:
    request.close_connection = True
    request.connection.shutdown(socket.SHUT_RDWR)


def truncate_response(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.send_header("Content-Length", "1000")
    request.end_headers()
    request.wfile.write(b'{"items": [')
    close_connection(request)


class Proxy:
    """An HTTP proxy that tunnels to any address and records the addresses."""

    def __init__(self) -> None:
        self.tunnels: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_CONNECT(self) -> None:
                outer.tunnels.append(self.path)
                host, _, port = self.path.rpartition(":")
                # `select.select` refuses descriptors above 1,023, which a long test run may reach.
                with socket.create_connection((host, int(port))) as onward, selectors.DefaultSelector() as selector:
                    self.send_response(200)
                    self.end_headers()
                    selector.register(self.connection, selectors.EVENT_READ, (self.connection, onward))
                    selector.register(onward, selectors.EVENT_READ, (onward, self.connection))
                    while True:
                        for key, _ in selector.select():
                            source, target = key.data
                            if not (data := source.recv(1 << 16)):
                                return
                            target.sendall(data)

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self._server = QuietHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
