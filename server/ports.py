"""Ports: whether one can be had, asked before anybody is started who needs it."""

import socket
import time

#: Seconds between two tries.
LOOK = 0.1


def free(host: str, port: int, patience: float = 0.0) -> bool:
    """Tell whether a port can be listened on, now or within some seconds."""
    deadline = time.monotonic() + patience
    while not _free(host, port):
        if time.monotonic() >= deadline:
            return False
        time.sleep(LOOK)
    return True


def _free(host: str, port: int) -> bool:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
            0
        ]
        with socket.socket(family, kind) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen()
    except OSError:
        return False
    return True
