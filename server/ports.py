"""TCP ports: checks whether a port is free before the process that needs it is started."""

import socket
import time

#: Seconds between two attempts.
RETRY_INTERVAL = 0.1


def free(host: str, port: int, timeout: float = 0.0) -> bool:
    """Return whether a port can be listened on, now or within ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not _can_listen(host, port):
        if time.monotonic() >= deadline:
            return False
        time.sleep(RETRY_INTERVAL)
    return True


def _can_listen(host: str, port: int) -> bool:
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
