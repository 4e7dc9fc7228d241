"""The victim: what a driver has, its sockets, its token and its files; it ends when its standard input does."""

import json
import os
import socket
import sys
import threading
from pathlib import Path


def greet(listening: socket.socket) -> None:
    """Say hello to whoever connects, for as long as there is a socket."""
    while True:
        connection, _ = listening.accept()
        connection.sendall(b"hello")
        connection.close()


def echo(bound: socket.socket) -> None:
    """Send datagrams back."""
    while True:
        said, sender = bound.recvfrom(100)
        if sender:
            bound.sendto(said, sender)


def serve(bound: socket.socket) -> socket.socket:
    if bound.type == socket.SOCK_STREAM:
        bound.listen()
    work = greet if bound.type == socket.SOCK_STREAM else echo
    threading.Thread(target=work, args=[bound], daemon=True).start()
    return bound


def bound(family: int, kind: int, address: object) -> socket.socket:
    made = socket.socket(family, kind)
    made.bind(address)
    return serve(made)


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
    stage = {
        "driver": os.getpid(),
        "key": str(folder / "key"),
        "database": str(folder / "database"),
        "tcp": tcp.getsockname()[1],
        "udp": udp.getsockname()[1],
        "path_socket": str(folder / "agent"),
        "datagram_socket": str(folder / "log"),
        "abstract_socket": str(folder),
    }
    print(json.dumps(stage), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
