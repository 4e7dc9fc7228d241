"""Response sending: pending bytes first, then a file with sendfile, never blocking on the socket or the disk."""

import os
import socket
import time
from enum import Enum, auto

from datasets.scs.connection import ClientConnection
from datasets.scs.open_files import OpenFile
from datasets.scs.page_cache import PageCache

#: Bytes sent between two checks of the page cache, and windows sent before other connections are served.
_WINDOW, _WINDOWS_PER_TURN = 1 << 20, 4


class SendResult(Enum):
    """State of a response after sending."""

    DONE = auto()
    #: The socket is full, or other connections are due.
    BLOCKED = auto()
    #: The file's `next_window` is not in memory: a thread has to read it first.
    COLD = auto()
    #: The file became shorter; the response cannot be completed.
    FAILED = auto()


#: Module-level names, because attribute access on an Enum class is slow (Python 3.11), and every response needs it.
DONE, BLOCKED, COLD, FAILED = SendResult


def begin_response(connection: ClientConnection, head: bytes, file: OpenFile, start: int, end: int, now: float) -> None:
    """Make a head and a part of a file the connection's pending response."""
    if file.body is not None:
        connection.out = head + (file.body if end - start == len(file.body) else file.body[start:end])
        return
    connection.out, connection.open_file, connection.file = head, file, file.descriptor
    connection.offset, connection.end = start, end
    connection.warm = end if now < file.warm else start


def send_pending(connection: ClientConnection, page_cache: PageCache) -> SendResult:
    """Send without blocking; raise OSError if the connection is broken."""
    try:
        if out := connection.out:
            more = socket.MSG_MORE if connection.file >= 0 else 0
            while (sent := connection.sock.send(out, more)) < len(out):
                connection.out = out = out[sent:]
            connection.out = b""
        return DONE if connection.file < 0 else _send_file(connection, page_cache)
    except BlockingIOError:
        return BLOCKED


def _send_file(connection: ClientConnection, page_cache: PageCache) -> SendResult:
    for _ in range(_WINDOWS_PER_TURN):
        if connection.offset >= connection.warm:
            start, end = next_window(connection)
            if not page_cache.resident(connection.file, start, end):
                return COLD
            if connection.open_file is not None and end - start == connection.open_file.size:
                connection.open_file.mark_warm(time.monotonic())
            connection.warm = end
        while connection.offset < connection.warm:
            sent = os.sendfile(connection.fd, connection.file, connection.offset, connection.warm - connection.offset)
            if not sent:  # the file was truncated after it was opened; the next to open it drops the object
                return FAILED
            connection.offset += sent
        if connection.offset >= connection.end:
            connection.release_file()
            return DONE
    return BLOCKED


def next_window(connection: ClientConnection) -> tuple[int, int]:
    """Return start and end (exclusive) of the next window of the file."""
    return connection.offset, min(connection.end, connection.offset + _WINDOW)
