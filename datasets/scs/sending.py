"""An answer's way out: first what is ready made, then a file from the page cache, as far as socket and memory allow."""

import os
import socket
import time
from enum import Enum, auto

from datasets.scs.connection import Connection
from datasets.scs.open_files import File
from datasets.scs.page_cache import Pages

#: Bytes sent before it is asked again whether the next lie in memory, and windows sent before others have their turn.
_WINDOW, _TURNS = 1 << 20, 4


class Pace(Enum):
    """How far an answer came."""

    DONE = auto()
    #: The client has to take some of it first, or others have their turn.
    BLOCKED = auto()
    #: The disk has to be waited for: the file's next `window` is not in memory.
    COLD = auto()
    #: It cannot be finished.
    CUT = auto()


#: As names of the module: to look one up in the class is slow (Python 3.11), and this is done for every answer.
DONE, BLOCKED, COLD, CUT = Pace


def begin(connection: Connection, head: bytes, file: File, start: int, end: int, now: float) -> None:
    """Make a head and a part of a file a connection's answer."""
    if file.body is not None:
        connection.out = head + (file.body if end - start == len(file.body) else file.body[start:end])
        return
    connection.out, connection.held, connection.file = head, file, file.descriptor
    connection.at, connection.end = start, end
    connection.warm = end if now < file.warm else start


def push(connection: Connection, pages: Pages) -> Pace:
    """Send what can be sent without waiting; raise OSError if the connection is broken."""
    try:
        if out := connection.out:
            more = socket.MSG_MORE if connection.file >= 0 else 0
            while (sent := connection.sock.send(out, more)) < len(out):
                connection.out = out = out[sent:]
            connection.out = b""
        return DONE if connection.file < 0 else _push_file(connection, pages)
    except BlockingIOError:
        return BLOCKED


def _push_file(connection: Connection, pages: Pages) -> Pace:
    for _ in range(_TURNS):
        if connection.at >= connection.warm:
            start, end = window(connection)
            if not pages.resident(connection.file, start, end):
                return COLD
            if connection.held is not None and end - start == connection.held.size:
                connection.held.lies_in_memory(time.monotonic())
            connection.warm = end
        while connection.at < connection.warm:
            sent = os.sendfile(connection.fd, connection.file, connection.at, connection.warm - connection.at)
            if not sent:  # it became shorter since it was opened; the next to open it drops it
                return CUT
            connection.at += sent
        if connection.at >= connection.end:
            connection.let_go()
            return DONE
    return BLOCKED


def window(connection: Connection) -> tuple[int, int]:
    """Return from where to where a file is looked at next."""
    return connection.at, min(connection.end, connection.at + _WINDOW)
