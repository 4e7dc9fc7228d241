"""WSGI application of tests, behind the gateway and granian: `python -m tests.contracts.streaming_application PORT`."""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from api.problems import encode
from server import granian_server, slow_readers
from server.request_bodies import BodyLimits
from server.wsgi_gateway import Gateway

#: Bytes of a chunk, and number of chunks of the response of `/stream`.
CHUNK, CHUNKS = 1 << 20, 256


def application(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
    """Answer with what was sent, with a long stream, or with a stream that fails."""
    path = environ["PATH_INFO"]
    if path == "/echo":
        body = environ["wsgi.input"].read()
        start("200 OK", [("Content-Length", str(len(body)))])
        return [body]
    if path == "/announced":
        start("200 OK", [("Content-Length", str(CHUNK * CHUNKS))])
        return stream()
    if path == "/stream":
        start("200 OK", [])
        return stream()
    if path == "/broken":
        start("200 OK", [("Content-Length", str(CHUNK * CHUNKS))])
        return broken()
    raise RuntimeError("not expected by the application")


def stream() -> Iterator[bytes]:
    """Yield CHUNKS different chunks."""
    for number in range(CHUNKS):
        yield bytes([number % 256]) * CHUNK


def broken() -> Iterator[bytes]:
    """Yield a chunk, and fail."""
    yield bytes(CHUNK)
    raise RuntimeError("the disk is gone")


def create() -> Gateway:
    """Build the gateway; a client that reads nothing for 2 seconds is disconnected."""
    slow_readers.SlowReader.__init__.__kwdefaults__["patience"] = 2.0
    return Gateway(application, threads=8, limits=BodyLimits(idle=1.0, grace=1.0), answer=encode)


if __name__ == "__main__":
    granian_server.serve(create, address="127.0.0.1", port=int(sys.argv[1]))
