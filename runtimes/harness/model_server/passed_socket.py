"""Passed socket: a model server passes the socket of a scenario's process in a frame's ancillary data."""

import os
import select
import socket

from .model_faults import Crashed, Garbage
from .model_protocol import SOCKET_FRAME


def receive_passed(connection: socket.socket) -> tuple[bytes, socket.socket | None]:
    """Receive a frame that passes a socket, or the beginning of another frame."""
    try:
        data, descriptors, _, _ = socket.recv_fds(connection, len(SOCKET_FRAME), 1)
    except OSError:
        raise Crashed("the model's process ended") from None
    if not data:
        raise Crashed("the model's process ended")
    if not descriptors:
        return data, None
    passed = _local_stream(descriptors[0])
    if passed is None:
        raise Garbage("the model server passed a descriptor that is not a socket")
    if data != SOCKET_FRAME:
        passed.close()
        raise Garbage("the model server passed a descriptor with another frame than `socket`")
    return data, passed


def is_readable(connection: socket.socket) -> bool:
    """Return whether a socket has bytes to read, or has been closed at its other end."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


def _local_stream(descriptor: int) -> socket.socket | None:
    """Return a descriptor as a connected Unix stream socket; close it and return None if it is anything else."""
    try:
        connected = socket.socket(fileno=descriptor)
    except OSError:
        os.close(descriptor)
        return None
    if (connected.family, connected.type) == (socket.AF_UNIX, socket.SOCK_STREAM):
        return connected
    connected.close()
    return None
