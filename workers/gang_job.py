"""Gang job: the runner of a gang that is a job of several machines, on the first of them.

``python -m workers.gang_job --launch FILE START...`` runs the launch that FILE describes. ``START`` starts, on each
machine of the job, ``python -m runtimes.harness.gang.gang_node`` with the arguments that follow it, and its number.
Ranks share no folder but that of the launch, and of it only what their sandboxes show them.
"""

import argparse
import contextlib
import ctypes
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import msgspec

from common.errors import Unsafe
from core.domain.scheduling.communications.members import ORDERS, RENDEZVOUS, ReplicaPosition
from core.domain.scheduling.communications.mpi import PORT
from core.domain.scheduling.launches import Launch
from runtimes.harness.gang.gang_nodes import JoinedNode, SpreadTask
from runtimes.harness.gang.gang_runner import GangLaunch, GangRunner, GangStopped
from runtimes.harness.gang.gang_task import GangTask, LocalGangSpec
from runtimes.harness.gang.gang_transport import GangConnection, ReplicaLost, dying_with
from runtimes.harness.gang.local_gang import LocalGang, keep_delivering
from runtimes.harness.gang.program_build import BuildFailed
from runtimes.harness.gang.replica import PATIENCE, Leader
from runtimes.harness.runner.runner import (
    DONE,
    INTERNAL_ERROR,
    LAST_REQUEST,
    PR_SET_DUMPABLE,
    SETUP_FAILED,
    STOPPED,
    UNREACHABLE,
    deliver,
)
from runtimes.harness.runner.runner_api_client import (
    Credentials,
    LaunchOver,
    RequestRejected,
    RunnerApiClient,
    Unreachable,
)
from workers.executors.kubernetes.gang_pods import members_of
from workers.gang_runner import LOST
from workers.launch_inputs import LaunchInputs
from workers.local_gangs import ProgramFiles, gang_spec_of_node, program_files, whole_gang_spec
from workers.standalone_runner import report_end

#: Ports are moved by a number below this: those of programs stay below the ports that the kernel gives to clients.
PORTS = 3000


class NotStartable(Exception):
    """The gang cannot be started here: its packages or its nodes are not as they should be."""


class GangJobDocument(msgspec.Struct, kw_only=True):
    """The description of a launch. ``folder``: of its files, which all nodes see; ``level``: of sandboxes, 0: none.

    ``environments`` and ``builds``: folders of what is prepared, and of compiled programs; ``environment``: of the
    packages that the model declares. ``host``: the name by which the nodes reach this one; empty: its own.
    """

    launch: Launch
    token_file: str
    folder: str
    environments: str
    builds: str
    level: int
    environment: str | None = None
    host: str = ""


class GangJobLaunch(GangLaunch):
    """Description of a launch with the files that its job downloads, by name."""

    files: dict[str, dict[str, object]] = msgspec.field(default_factory=dict)


class GangStep:
    """The processes on all nodes of the job. With the end of the context they end."""

    def __init__(self, start: Sequence[str], document: GangJobDocument, size: int) -> None:
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
        self._leader = Leader(self._listener, key, [(0, index) for index in range(size)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._leader.dismiss(DONE)
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
                self._leader.gather(1.0)
                return self._leader.followers
            except ReplicaLost as error:
                if self._process.poll() is not None or time.monotonic() > until:
                    raise NotStartable(f"the gang's nodes did not join: {error}") from None


class JobGang:
    """The nodes of a job: started with the first task, and again after one was lost."""

    def __init__(self, document: GangJobDocument, start: Sequence[str], files: ProgramFiles) -> None:
        self._document, self._start = document, start
        self._launch = document.launch
        self._files = files
        self._stack = contextlib.ExitStack()
        self._nodes: Sequence[JoinedNode] = ()
        self._tasks = 0
        self._task: SpreadTask | None = None
        self.gang: LocalGang | None = None

    @property
    def whole(self) -> LocalGangSpec:
        """The gang as if one machine had all ranks: to compile its program, and to judge its ends."""
        return whole_gang_spec(self._launch, self._files, self._level)

    @property
    def _level(self) -> int | None:
        return self._document.level or None

    def spread(self, task: GangTask) -> SpreadTask:
        """Start a task on all nodes. Raise ReplicaLost if one is lost."""
        if self._task is not None and self._task.broken:
            self.close()
        if not self._nodes:
            self._nodes = self._join()
        self._tasks += 1
        try:
            self._task = SpreadTask(self._nodes, task, self._tasks)
            return self._task
        except ReplicaLost:
            self.close()
            raise

    def _join(self) -> Sequence[JoinedNode]:
        """Start the processes on all nodes; return the nodes."""
        nodes = members_of(self._launch).gang.nodes
        step = self._stack.enter_context(GangStep(self._start, self._document, nodes))
        if self.gang is not None:
            self.gang.outputs.watch(step.output, "gang")
        connections = step.gather()
        if nodes == 1:  # a network of its own
            return [JoinedNode(connections[0], self.whole)]
        members = replace(members_of(self._launch), sandboxed=True, ports=free_offset())
        members = replace(members, leader=members.first)
        addresses = {
            members.host(ReplicaPosition(index=str(index))): connection.connection.getpeername()[0]
            for index, connection in enumerate(connections)
        }
        parts = [gang_spec_of_node(self._launch, members, self._files, self._level, index) for index in range(nodes)]
        return [
            JoinedNode(connection, replace(part, addresses=addresses))
            for connection, part in zip(connections, parts, strict=True)
        ]

    def close(self) -> None:
        """End the processes on all nodes."""
        self._nodes, self._task = (), None
        self._stack.close()


def free_offset() -> int:
    """Return a number by which a gang's ports are moved, such that no process of this machine has them."""
    while True:
        offset = secrets.randbelow(PORTS)
        with contextlib.suppress(OSError), contextlib.ExitStack() as listeners:
            for port in (PORT, ORDERS, RENDEZVOUS):
                listeners.enter_context(socket.create_server(("", port + offset)))
            return offset


def serve(document: GangJobDocument, start: Sequence[str]) -> tuple[int, str]:
    """Run a launch to its end; return the exit code and the reason."""
    control, closing = socket.socketpair()

    def stop(*_: object) -> None:
        closing.close()

    launch = document.launch
    credentials = Credentials(url=launch.url, launch=launch.id, token=Path(document.token_file).read_text().strip())
    description = RunnerApiClient(credentials, threading.Event()).launch()
    described = msgspec.convert(description, GangJobLaunch)
    inputs = LaunchInputs(credentials, threading.Event(), Path(document.folder))
    model, _ = inputs.download(described.files, model=None, dataset="none")
    environment = None if document.environment is None else Path(document.environment)
    try:
        files = program_files(launch, Path(document.environments), environment, document.level or None, Path(model))
    except Unsafe as error:
        return SETUP_FAILED, str(error)
    if files is None:
        return SETUP_FAILED, "the packages of the gang's program are not in the shared folder"
    job = JobGang(document, start, files)
    gang = job.gang = LocalGang(job.whole, model, control, document.folder, job.spread)
    signal.signal(signal.SIGTERM, stop)
    try:
        runner = GangRunner(credentials, described, gang, "gang", ended=end)
        log = RunnerApiClient(credentials, threading.Event(), patience=0.0)
        threading.Thread(target=keep_delivering, args=(gang, log), name="log", daemon=True).start()
        try:
            gang.build(document.builds, described.model.digest)
            runner.run()
        except GangStopped:
            runner.leave()
            return STOPPED, "the gang's runner was stopped by a signal"
        except BuildFailed as failure:
            RunnerApiClient(credentials, threading.Event()).refuse_model(str(failure), "failed")
        deliver(gang.outputs, RunnerApiClient(credentials, threading.Event(), patience=0.0, time_out=LAST_REQUEST))
    finally:
        gang.close()
        job.close()
    return DONE, "there is no more work"


def end(code: int, reason: str) -> None:
    """End this process: the launch is over, or cannot go on."""
    report_end(reason)
    os._exit(code)


def main() -> None:
    """Run one launch, given by a document."""
    parser = argparse.ArgumentParser(prog="workers.gang_job", description=__doc__.split("\n")[0])
    parser.add_argument("--launch", type=Path, required=True, help="the JSON document that describes the launch")
    parser.add_argument("start", nargs=argparse.REMAINDER, help="starts the processes of all nodes")
    options = parser.parse_args()
    logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s", level=logging.INFO)
    # Processes of the same user must not read the token from this process's memory.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    try:
        document = msgspec.json.decode(options.launch.read_bytes(), type=GangJobDocument)
        code, reason = serve(document, options.start)
    except LaunchOver as error:
        code, reason = DONE, f"the launch is over ({error})"
    except (ReplicaLost, NotStartable) as error:
        code, reason = LOST, f"the gang is lost: {error}"
    except (Unreachable, RequestRejected) as error:
        code, reason = UNREACHABLE, str(error)
    except (OSError, ValueError, KeyError, TypeError) as error:
        code, reason = INTERNAL_ERROR, f"the launch document cannot be read: {type(error).__name__}: {error}"
    report_end(f"{reason} ({code})")
    os._exit(code)


if __name__ == "__main__":
    main()
