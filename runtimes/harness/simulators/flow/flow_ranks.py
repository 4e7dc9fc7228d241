"""Flow ranks: the program of the ranks that a worker brings for a flow; each has a slab of the channel's columns.

``python -m harness.simulators.flow.flow_ranks`` under an MPI launcher takes messages of the evaluator as tasks of a
program that goes on (gang/task_server.py), all ranks each message; the first one answers for all.
"""

import json
import os
import socket
from collections.abc import Callable
from dataclasses import asdict

import numpy as np
from mpi4py import MPI

from .flow import FlowOrder, FlowPart, merge
from .lattice import LEFT, RIGHT, Array

#: Said to ranks that are only to be there (gang/simulator_ranks.py).
WAIT = b'{"do": "wait"}\n'


def main() -> None:
    """Serve messages until the sandbox ends."""
    everyone = MPI.COMM_WORLD
    rank, ranks = everyone.Get_rank(), everyone.Get_size()
    part = FlowPart(rank, ranks, neighbours(everyone))
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["WINDTUNNEL_TASKS"])
        connection.sendall(b"%d\n" % rank)
        for line in connection.makefile("rb"):
            answer: dict[str, object] = {}
            if line == WAIT:
                everyone.Barrier()
            else:
                order = FlowOrder(**json.loads(line))
                shares = everyone.gather(part.execute(order))
                answer = {} if shares is None else asdict(merge(order, shares))
            connection.sendall(json.dumps(answer).encode() + b"\n")


def neighbours(everyone: "MPI.Comm") -> Callable[[Array], None]:
    """Return what fills a slab's halo with the neighbours' populations, those that move into the slab."""
    rank, ranks = everyone.Get_rank(), everyone.Get_size()
    left = rank - 1 if rank else MPI.PROC_NULL
    right = rank + 1 if rank + 1 < ranks else MPI.PROC_NULL
    to_right, to_left = list(RIGHT), list(LEFT)

    def exchange(populations: Array) -> None:
        for source, target, moving, given, filled in ((left, right, to_right, -2, 0), (right, left, to_left, 1, -1)):
            sent = np.ascontiguousarray(populations[moving, given])
            received = np.empty_like(sent)
            everyone.Sendrecv(sent, target, recvbuf=received, source=source)
            if source != MPI.PROC_NULL:
                populations[moving, filled] = received

    return exchange


if __name__ == "__main__":
    main()
