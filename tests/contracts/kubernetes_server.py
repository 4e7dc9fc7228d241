"""A server that answers as it is told: for what a real API server does not do when asked to."""

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[BaseHTTPRequestHandler], None]


class Server:
    """Answers each request by the next function it was given, the last one for ever; notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.connections = 0
        self.answers: list[Answer] = []
        outer = self

        class Asked(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                outer.connections += 1
                super().setup()

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.asked.append((self.command, self.path, dict(self.headers), body))
                (outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0])(self)

            do_GET = do_POST = do_PATCH = do_DELETE = answer

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Asked)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
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


def hangs_up(asked: BaseHTTPRequestHandler) -> None:
    asked.close_connection = True
    asked.connection.shutdown(socket.SHUT_RDWR)


def breaks_off(asked: BaseHTTPRequestHandler) -> None:
    asked.send_response(200)
    asked.send_header("Content-Length", "1000")
    asked.end_headers()
    asked.wfile.write(b'{"items": [')
    hangs_up(asked)
