"""Messages to the program that started this one: JSON objects, a line each, on standard output."""

import os
import sys
import threading
from typing import Any

import msgspec

_lock = threading.Lock()


def send(kind: str, body: Any) -> None:
    """Send a message; end this process if nobody reads it any more. Thread-safe."""
    send_raw(kind, msgspec.json.encode(body))


def send_raw(kind: str, encoded: bytes) -> None:
    """Send a message whose body is JSON already, without a line end."""
    with _lock:
        try:
            sys.stdout.buffer.write(b'{"%s":%s}\n' % (kind.encode(), encoded))
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            os._exit(0)  # every process that this one started ends with it


def refuse(detail: str, slug: str = "refused") -> None:
    """Send the error that ends the conversation: a slug for programs, a sentence with the next step for people."""
    send("error", {"type": slug, "detail": detail})
