"""Loopback listener: a TCP socket in the network of a confined process, on which its parent accepts connections.

A socket belongs to the network namespace in which it was made. A process that made it, and passed it out before it was
confined, reaches the process that accepts on it, and nothing else.
"""

import array
import fcntl
import socket
import struct

_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1
#: struct ifreq of the loopback device: a name, and flags.
_REQUEST = struct.Struct("16sH14x")


def pass_listener(descriptor: int, *, isolated: bool) -> int:
    """Listen on a free loopback port, pass the socket over a Unix socket, and close both; return the port.

    ``isolated``: this process has just got a network namespace of its own, whose loopback device is down.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        if isolated:
            raise_loopback(listener)
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        with socket.socket(fileno=descriptor) as parent:
            rights = array.array("i", [listener.fileno()])
            parent.sendmsg([b"listener"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        return int(listener.getsockname()[1])


def name_host(name: str, *, isolated: bool) -> None:
    """Give this process's namespaces their host name, and bring up the loopback device of a network of its own."""
    socket.sethostname(name)
    if not isolated:
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        raise_loopback(any_socket)


def raise_loopback(any_socket: socket.socket) -> None:
    """Bring up the loopback device of this process's network namespace."""
    name, flags = _REQUEST.unpack(fcntl.ioctl(any_socket, _GET_FLAGS, _REQUEST.pack(b"lo", 0)))
    fcntl.ioctl(any_socket, _SET_FLAGS, _REQUEST.pack(name, flags | _UP))
