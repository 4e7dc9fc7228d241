"""Free TCP ports for servers that tests start later; no other test process is given the same ports."""

import itertools
import os
import random
import socket

#: Below the ephemeral ports of clients, from 32,768 on: between the check here and the server's start, a client
#: would take the port now and then. Each of the concurrent test processes uses its own part of the range.
FIRST, EACH, PARTS = 12_000, 2_500, 8
_PART = int(os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw") or os.getpid()) % PARTS
_BEGIN = random.randrange(EACH)
_ports = (FIRST + _PART * EACH + (_BEGIN + step) % EACH for step in itertools.count())


def free_ports(count: int) -> list[int]:
    """Return ports on which no process listens, each at most once."""
    ports: list[int] = []
    while len(ports) < count:
        port = next(_ports)
        with socket.socket() as end:
            try:
                end.bind(("", port))
            except OSError:
                continue
        ports.append(port)
    return ports
