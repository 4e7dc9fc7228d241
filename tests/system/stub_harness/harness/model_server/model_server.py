"""Stub model server: waits until its evaluator closes the socket."""

import json
import socket
import sys


def main() -> None:
    told = json.loads(sys.argv[1])
    socket.socket(fileno=told["socket"]).recv(1)
