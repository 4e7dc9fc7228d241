"""The victim of attacks in the same container: an unconfined process with files, sockets and a token."""

import os
import socket
import sys
from pathlib import Path
from typing import Any

import runner_stub as driver


def main(stage: dict[str, Any]) -> None:
    """Create files and sockets, and wait until standard input ends."""
    folder = Path(stage["folder"])
    (folder / "driver").mkdir(parents=True, exist_ok=True)
    for path in (stage["key"], stage["database"], stage["model"]):
        Path(path).write_text("wt-secret")
        os.chmod(path, 0o600)
    driver.bound(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", stage["tcp"]))
    driver.bound(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", stage["udp"]))
    driver.bound(socket.AF_UNIX, socket.SOCK_STREAM, stage["path_socket"])
    driver.bound(socket.AF_UNIX, socket.SOCK_DGRAM, stage["datagram_socket"])
    driver.bound(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + stage["abstract_socket"])
    (folder / "ready").touch()
    print("ready", flush=True)
    sys.stdin.read()
