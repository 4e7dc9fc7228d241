"""Ports for servers that are started later: nobody listens there now, and nobody else is given them meanwhile."""

import itertools
import os
import random
import socket

#: Below what a kernel gives to those who connect, from 32,768 on: between our look and the server's start one of them
#: would take it now and then. And a part of them for each process of tests, which run side by side.
FIRST, EACH, PARTS = 12_000, 2_500, 8
_PART = int(os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw") or os.getpid()) % PARTS
_BEGIN = random.randrange(EACH)
_ports = (FIRST + _PART * EACH + (_BEGIN + step) % EACH for step in itertools.count())


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, each once."""
    found: list[int] = []
    while len(found) < count:
        port = next(_ports)
        with socket.socket() as end:
            try:
                end.bind(("", port))
            except OSError:
                continue
        found.append(port)
    return found
