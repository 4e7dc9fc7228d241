"""Free TCP ports for servers that tests start later; no other test process gets the same ports."""

import itertools
import os
import random
import socket

#: Below the ephemeral ports of clients, from 32,768 on: between the check here and the server's start, a client
#: takes the port now and then. Each of the concurrent test processes uses its own part of the range.
FIRST, PORTS_PER_PROCESS, PROCESSES = 12_000, 2_500, 8
_PROCESS = int(os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw") or os.getpid()) % PROCESSES
_FIRST_STEP = random.randrange(PORTS_PER_PROCESS)
_ports = (FIRST + _PROCESS * PORTS_PER_PROCESS + (_FIRST_STEP + step) % PORTS_PER_PROCESS for step in itertools.count())


def free_ports(count: int) -> list[int]:
    """Return ports on which no process listens, each at most once."""
    ports: list[int] = []
    while len(ports) < count:
        port = next(_ports)
        with socket.socket() as listener:
            try:
                listener.bind(("", port))
            except OSError:
                continue
        ports.append(port)
    return ports
