"""Stand-in for a runner: a process with sockets, a token and files, which attacks aim at; ends with standard input."""

import json
import os
import socket
import sys
import threading
from pathlib import Path


def greet(server: socket.socket) -> None:
    """Send a greeting on every connection, until the process ends."""
    while True:
        connection, _ = server.accept()
        connection.sendall(b"hello")
        connection.close()


def echo(server: socket.socket) -> None:
    """Send every datagram back to its sender."""
    while True:
        datagram, sender = server.recvfrom(100)
        if sender:
            server.sendto(datagram, sender)


def serve(server: socket.socket) -> socket.socket:
    if server.type == socket.SOCK_STREAM:
        server.listen()
    target = greet if server.type == socket.SOCK_STREAM else echo
    threading.Thread(target=target, args=[server], daemon=True).start()
    return server


def bound(family: int, kind: int, address: object) -> socket.socket:
    server = socket.socket(family, kind)
    server.bind(address)
    return serve(server)


def main(folder: Path) -> None:
    (folder / "key").write_text("wt-secret")
    (folder / "key").chmod(0o600)
    (folder / "database").write_bytes(b"SQLite format 3\0")
    tcp = bound(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
    udp = bound(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
    bound(socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "agent"))
    bound(socket.AF_UNIX, socket.SOCK_DGRAM, str(folder / "log"))
    bound(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{folder}")
    for name in ("agent", "log"):
        (folder / name).chmod(0o666)
    targets = {
        "runner": os.getpid(),
        "key": str(folder / "key"),
        "database": str(folder / "database"),
        "tcp": tcp.getsockname()[1],
        "udp": udp.getsockname()[1],
        "path_socket": str(folder / "agent"),
        "datagram_socket": str(folder / "log"),
        "abstract_socket": str(folder),
    }
    print(json.dumps(targets), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
