"""Response sending: pending bytes first, then a file with sendfile, never blocking on the socket or the disk.

A window of a file is verified before any byte of it is sent, and the first window before the head.
"""

import os
import socket
import time
from enum import Enum, auto

from datasets.scs.connection import ClientConnection
from datasets.scs.open_files import TRUSTED_SECONDS, Cold, OpenFile, OpenFiles

#: Bytes verified and sent at once, and windows sent before other connections are served.
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


def begin_response(connection: ClientConnection, head: bytes, file: OpenFile, start: int, end: int) -> None:
    """Make a head and a part of a file the connection's pending response."""
    if file.body is not None:
        connection.out = head + (file.body if end - start == len(file.body) else file.body[start:end])
        return
    connection.out, connection.open_file, connection.file = head, file, file.descriptor
    connection.offset = connection.verified = start
    connection.end = end


def send_pending(connection: ClientConnection, open_files: OpenFiles) -> SendResult:
    """Send without blocking; raise Damaged for a file, and OSError if the connection is broken."""
    try:
        for _ in range(_WINDOWS_PER_TURN):
            if connection.file >= 0 and not _verify(connection, open_files):
                return COLD
            connection.unsent = None
            if out := connection.out:
                more = socket.MSG_MORE if connection.file >= 0 else 0
                while (sent := connection.sock.send(out, more)) < len(out):
                    connection.out = out = out[sent:]
                connection.out = b""
            if connection.file < 0:
                return DONE
            while connection.offset < connection.verified:
                sent = os.sendfile(
                    connection.fd, connection.file, connection.offset, connection.verified - connection.offset
                )
                if not sent:  # the file was truncated after it was verified; the next to open it drops the object
                    return FAILED
                connection.offset += sent
            if connection.offset >= connection.end:
                connection.release_file()
                return DONE
    except BlockingIOError:
        return BLOCKED
    return BLOCKED


def _verify(connection: ClientConnection, open_files: OpenFiles) -> bool:
    """Verify the next window of a file, unless it was verified a moment ago; return whether it is in memory."""
    now = time.monotonic()
    if connection.offset < connection.verified and now < connection.trusted_until:
        return True
    start, end = next_window(connection)
    try:
        if connection.open_file is not None:
            open_files.verify(connection.open_file, start, end, now)
    except Cold:
        return False
    mark_verified(connection, end, now)
    return True


def mark_verified(connection: ClientConnection, end: int, now: float) -> None:
    """Record that the file is verified up to ``end``."""
    connection.verified, connection.trusted_until = end, now + TRUSTED_SECONDS


def next_window(connection: ClientConnection) -> tuple[int, int]:
    """Return start and end (exclusive) of the next window of the file: windows end at multiples of their size."""
    return connection.offset, min(connection.end, window_end(connection.offset))


def window_end(start: int) -> int:
    """Return the end of the window that begins at ``start``."""
    return (start // _WINDOW + 1) * _WINDOW
