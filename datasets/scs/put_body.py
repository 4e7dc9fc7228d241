"""A PUT's body, from its socket into the store; in a thread, for it takes as long as its client likes."""

import logging
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

from datasets.scs.config import Limits
from datasets.scs.connection import Request
from datasets.scs.requests import Intake
from datasets.scs.store import BadDigest, Cut, Full, Object, Store, TooLarge, Unmet

logger = logging.getLogger(__name__)
_CHUNK = 256 << 10


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it: an object ``made``, or a refusal's status, or a client that is ``lost``."""

    made: Object | None = None
    evicted: int = 0
    status: int = 500
    detail: str | None = None
    lost: bool = False


def receive(store: Store, sock: socket.socket, request: Request, intake: Intake, limits: Limits) -> Outcome:
    """Store a body; never raise. The socket is left as the loop wants it."""
    try:
        made, evicted = store.put(
            intake.bucket,
            intake.key,
            intake.size,
            lambda: _body(sock, request, intake.size, limits),
            digest=intake.digest,
            condition=intake.condition,
        )
        return Outcome(made=made, evicted=evicted)
    except TooLarge as error:
        return Outcome(status=413, detail=str(error))
    except Full as error:
        return Outcome(status=507, detail=f"{error}.".capitalize())
    except Unmet:
        return Outcome(status=412)
    except BadDigest:
        return Outcome(status=400, detail="The body is not what its Content-Digest announces. Nothing was kept.")
    except (Cut, OSError) as error:
        logger.info("a body was cut off: %s", type(error).__name__)
        return Outcome(lost=True)
    except Exception:
        logger.exception("a PUT failed")
        return Outcome(status=500)
    finally:
        sock.setblocking(False)


def _body(sock: socket.socket, request: Request, size: int, limits: Limits) -> Iterator[bytes | memoryview]:
    """Yield what has come with the head, then what comes; begun once there is room for it."""
    left = size
    for chunk in request.body:
        left -= len(chunk)
        yield chunk
    request.body.clear()
    if not left:
        return
    sock.settimeout(limits.stall)
    if left == size and b"expect" in request.headers:
        sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    deadline = time.monotonic() + limits.stall + size / limits.slowest
    buffer = memoryview(bytearray(min(_CHUNK, left)))
    while left:
        got = sock.recv_into(buffer, min(left, len(buffer)))
        if not got or time.monotonic() > deadline:
            raise Cut
        left -= got
        yield buffer[:got]
