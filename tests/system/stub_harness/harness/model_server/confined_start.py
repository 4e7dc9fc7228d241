"""Stub model server: waits until its evaluator closes the socket."""

import json
import socket
import sys


def main() -> None:
    config = json.loads(sys.argv[1])
    socket.socket(fileno=config["socket"]).recv(1)
