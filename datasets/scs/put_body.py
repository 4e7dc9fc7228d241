"""PUT body: copies a request's body from its socket into the store, in a thread, at the client's speed."""

import logging
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

from datasets.scs.config import Limits
from datasets.scs.object_request import ObjectRequest
from datasets.scs.requests import PutRequest
from datasets.scs.store import BadDigest, Cut, Full, ObjectTooLarge, Store, StoredObject, Unmet

logger = logging.getLogger(__name__)
_CHUNK = 256 << 10


@dataclass(frozen=True, slots=True)
class PutOutcome:
    """Result of a PUT: the object ``stored``, or a refusal's ``status``, or a ``disconnected`` client."""

    stored: StoredObject | None = None
    evicted: int = 0
    status: int = 500
    detail: str | None = None
    disconnected: bool = False


def receive(store: Store, sock: socket.socket, request: ObjectRequest, put: PutRequest, limits: Limits) -> PutOutcome:
    """Store a body; never raises. The socket is non-blocking again afterwards."""
    try:
        stored, evicted = store.put(
            put.bucket,
            put.key,
            put.size,
            lambda: _body(sock, request, put.size, limits),
            digest=put.digest,
            condition=put.condition,
        )
        return PutOutcome(stored=stored, evicted=evicted)
    except ObjectTooLarge as error:
        return PutOutcome(status=413, detail=str(error))
    except Full as error:
        return PutOutcome(status=507, detail=f"{error}.".capitalize())
    except Unmet:
        return PutOutcome(status=412)
    except BadDigest:
        return PutOutcome(status=400, detail="The body does not match its Content-Digest. Nothing was stored.")
    except (Cut, OSError) as error:
        logger.info("PUT: the body was cut off: %s", type(error).__name__)
        return PutOutcome(disconnected=True)
    except Exception:
        logger.exception("PUT failed")
        return PutOutcome(status=500)
    finally:
        sock.setblocking(False)


def _body(sock: socket.socket, request: ObjectRequest, size: int, limits: Limits) -> Iterator[bytes | memoryview]:
    """Yield the bytes that came with the head, then the rest from the socket; called once there is room."""
    remaining = size
    for chunk in request.body:
        remaining -= len(chunk)
        yield chunk
    request.body.clear()
    if not remaining:
        return
    sock.settimeout(limits.stall)
    if remaining == size and b"expect" in request.headers:
        sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    deadline = time.monotonic() + limits.stall + size / limits.slowest
    buffer = memoryview(bytearray(min(_CHUNK, remaining)))
    while remaining:
        got = sock.recv_into(buffer, min(remaining, len(buffer)))
        if not got or time.monotonic() > deadline:
            raise Cut
        remaining -= got
        yield buffer[:got]
