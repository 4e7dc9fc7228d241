"""Gang job: the runner of a gang that is a job of several machines, on the first of them.

``python -m workers.gang_job --launch FILE START...`` runs the launch that FILE describes. ``START`` starts, on each
machine of the job, ``python -m runtimes.harness.gang.gang_node`` with the arguments that follow it, and its number.
Ranks share no folder but that of the launch, and of it only what their sandboxes show them.
"""

import argparse
import contextlib
import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

from core.domain.scheduling.communications.members import ORDERS, RENDEZVOUS, ReplicaPosition
from core.domain.scheduling.communications.mpi import PORT
from runtimes.harness.gang.gang_joining import DONE, PATIENCE, Gathering
from runtimes.harness.gang.gang_nodes import JoinedNode
from runtimes.harness.gang.gang_task import GangTask
from runtimes.harness.gang.gang_transport import GangConnection, ReplicaLost, dying_with
from runtimes.harness.gang.sandboxed_task import SandboxedTask
from workers.local_gangs import ProgramFiles
from workers.spread_gangs import GangDocument, NotStartable, SpreadGang, run, serve

#: Ports are moved by a number below this: those of programs stay below the ports that the kernel gives to clients.
PORTS = 3000


class GangStep:
    """The processes on all nodes of the job. With the end of the context they end."""

    def __init__(self, start: Sequence[str], document: GangDocument, places: Sequence[tuple[int, int]]) -> None:
        self._key_file = Path(document.folder, "gang.key")
        key = secrets.token_hex()
        descriptor = os.open(self._key_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w") as file:
            file.write(key)
        self._listener = socket.create_server(("", 0), backlog=1024)
        port = str(self._listener.getsockname()[1])
        host = document.host or socket.gethostname()
        arguments = [host, port, str(self._key_file), str(document.level)]
        self._process = subprocess.Popen(
            [*start, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=dying_with(os.getpid())
        )
        self._gathering = Gathering(self._listener, key, places)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._gathering.dismiss(DONE)
        self._process.terminate()
        self._process.wait()
        self._listener.close()

    @property
    def output(self) -> int:
        """The pipe with what all nodes print."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def gather(self) -> Sequence[GangConnection]:
        """Wait for all nodes; return their connections. Raise NotStartable if they do not come."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self._gathering.gather(1.0)
                threading.Thread(target=self._lose_with_the_step, name="step", daemon=True).start()
                return self._gathering.joined
            except ReplicaLost as error:
                if self._process.poll() is not None or time.monotonic() > until:
                    raise NotStartable(f"the gang's nodes did not join: {error}") from None

    def _lose_with_the_step(self) -> None:
        """Cut the nodes off when what started them has ended: Slurm may leave them running."""
        self._process.wait()
        for connection in self._gathering.joined:
            with contextlib.suppress(OSError):
                connection.connection.shutdown(socket.SHUT_RDWR)


class JobGang(SpreadGang):
    """The nodes of a job: started with the first task, and again after one was lost."""

    def __init__(self, start: Sequence[str], document: GangDocument, files: ProgramFiles, largest: int) -> None:
        super().__init__(document, files, largest)
        self._start_nodes = start
        self._stack = contextlib.ExitStack()

    def built_by(self, task: GangTask) -> SandboxedTask:
        """Start the build in a sandbox of this node, the first one."""
        return SandboxedTask(task, self.outputs)

    def _join(self) -> Sequence[JoinedNode]:
        step = self._stack.enter_context(GangStep(self._start_nodes, self._document, self.places))
        self.outputs.watch(step.output, "gang")
        connections = step.gather()
        self._members = replace(self._members, sandboxed=True, ports=free_offset(), leader=self._members.first)
        addresses = {
            self._members.host(ReplicaPosition(index=str(index))): connection.connection.getpeername()[0]
            for index, connection in enumerate(connections)
        }
        if len(connections) == 1:
            addresses = {}  # one node: a network of its own
        return [
            JoinedNode(connection, replace(self._part(index), addresses=addresses))
            for index, connection in enumerate(connections)
        ]

    def close(self) -> None:
        """End the processes on all nodes."""
        super().close()
        self._stack.close()


def free_offset() -> int:
    """Return a number by which a gang's ports are moved, such that no process of this machine has them."""
    while True:
        offset = secrets.randbelow(PORTS)
        with contextlib.suppress(OSError), contextlib.ExitStack() as listeners:
            for port in (PORT, ORDERS, RENDEZVOUS):
                listeners.enter_context(socket.create_server(("", port + offset)))
            return offset


def main() -> None:
    """Run one launch, given by a document."""
    parser = argparse.ArgumentParser(prog="workers.gang_job", description=__doc__.split("\n")[0])
    parser.add_argument("--launch", type=Path, required=True, help="the JSON document that describes the launch")
    parser.add_argument("start", nargs=argparse.REMAINDER, help="starts the processes of all nodes")
    options = parser.parse_args()
    run(options.launch, partial(serve, spreading=partial(JobGang, options.start)))


if __name__ == "__main__":
    main()
