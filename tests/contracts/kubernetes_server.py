"""A server that answers as it is told: for what a real API server does not do when asked to."""

import json
import select
import socket
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[BaseHTTPRequestHandler], None]


class Quiet(ThreadingHTTPServer):
    """A server whose clients may leave, or refuse its certificate, without a word about it."""

    def handle_error(self, *_: Any) -> None:
        """Say nothing."""


class Server:
    """Answers each request by the next function it was given, the last one for ever; notes what it was asked."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.connections = 0
        self.answers: list[Answer] = []
        #: Common names of the certificates that clients showed, by request.
        self.shown: list[str] = []
        outer = self

        class Asked(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                outer.connections += 1
                super().setup()

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.asked.append((self.command, self.path, dict(self.headers), body))
                connection = self.connection
                shown: Any = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
                subject = [pair for part in (shown or {}).get("subject", ()) for pair in part]
                outer.shown += [value for key, value in subject if key == "commonName"]
                (outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0])(self)

            do_GET = do_POST = do_PATCH = do_DELETE = answer

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = Quiet(("127.0.0.1", 0), Asked)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}" if tls is None else f"https://localhost:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def says(status: int, document: Any, **headers: str) -> Answer:
    def answer(asked: BaseHTTPRequestHandler) -> None:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        asked.send_response(status)
        asked.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            asked.send_header(name.replace("_", "-"), value)
        asked.end_headers()
        asked.wfile.write(body)

    return answer


def streams(*lines: bytes) -> Answer:
    """Answer in chunks, as an API server sends watches and logs."""

    def answer(asked: BaseHTTPRequestHandler) -> None:
        asked.send_response(200)
        asked.send_header("Transfer-Encoding", "chunked")
        asked.end_headers()
        for line in (*lines, b""):
            asked.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

    return answer


def hangs_up(asked: BaseHTTPRequestHandler) -> None:
    asked.close_connection = True
    asked.connection.shutdown(socket.SHUT_RDWR)


def breaks_off(asked: BaseHTTPRequestHandler) -> None:
    asked.send_response(200)
    asked.send_header("Content-Length", "1000")
    asked.end_headers()
    asked.wfile.write(b'{"items": [')
    hangs_up(asked)


class Proxy:
    """An HTTP proxy that tunnels to any address, and notes which."""

    def __init__(self) -> None:
        self.tunnels: list[str] = []
        outer = self

        class Asked(BaseHTTPRequestHandler):
            def do_CONNECT(self) -> None:
                outer.tunnels.append(self.path)
                host, _, port = self.path.rpartition(":")
                with socket.create_connection((host, int(port))) as onward:
                    self.send_response(200)
                    self.end_headers()
                    ends = {self.connection: onward, onward: self.connection}
                    while True:
                        for end in select.select(list(ends), [], [])[0]:
                            if not (data := end.recv(1 << 16)):
                                return
                            ends[end].sendall(data)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = Quiet(("127.0.0.1", 0), Asked)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
