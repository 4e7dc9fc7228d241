"""Simulator ranks: the ranks that a worker brings for its evaluator's simulator, in a shared sandbox of their own.

``main`` confines its process, starts the program's ranks, and passes each line of the evaluator to them as a task of a
program that goes on (task_server.py). The evaluator gets a line of JSON back: rank_connection.py says which. The ranks
live on from scenario to scenario; those whose program has failed are started again for the next line, and with lost
ranks this process ends: the evaluator, which is replaced then, gets others. Closing the connection ends them.
"""

import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from ..sandbox import Confinement, confine
from .gang_task import GangEnd, GangTask
from .gang_transport import ReplicaLost, adopt_orphans, sweep
from .rank_ends import fault
from .shared_sandbox import SharedSandbox, rank_command
from .task_folder import TaskFolder

#: The message that ranks are started with: it asks for nothing, and all of them answer once all are there.
WAIT: Mapping[str, object] = {"do": "wait"}


class RanksFolder(TaskFolder):
    """The folder of the ranks' files: they have neither a model nor outputs."""

    def prepare(self) -> None:
        """Lay out the interpreter, and this harness in the working directory: a sandbox lists no folder above it."""
        self.ends.mkdir(parents=True)
        self.work.mkdir()
        (self.work / "harness").symlink_to(self._gang.harness)
        self._make_interpreter()

    def deliver_checkpoints(self, peer: socket.socket) -> None:
        """Pass nothing on."""

    def deliver_outputs(self, peer: socket.socket) -> None:
        """Pass nothing on."""


class SimulatorRanks:
    """The ranks of one evaluator, started again after their program has failed. ``watcher``: starts a rank."""

    def __init__(self, task: GangTask, connected: socket.socket, watcher: Sequence[str]) -> None:
        self._task, self._connected, self._watcher = task, connected, watcher
        self._started = 0
        self._sandbox: SharedSandbox | None = None

    def start(self) -> GangEnd:
        """Start the ranks; return once all of them have answered, or one has ended."""
        folder = RanksFolder(replace(self._task, folder=f"{self._task.folder}/{self._started}"))
        self._started += 1
        folder.prepare()
        self._sandbox = SharedSandbox(self._task, folder, self._connected, self._connected, self._watcher)
        return self._sandbox.run(WAIT)

    def execute(self, line: bytes) -> Mapping[str, object]:
        """Have the ranks execute a message; return what the evaluator is told."""
        if self._sandbox is None and not (end := self.start()).going:
            return self.told_of(end)
        assert self._sandbox is not None
        end = self._sandbox.go_on(json.loads(line))
        return {"answer": json.loads(end.result or "{}")} if end.going else self.told_of(end)

    def told_of(self, end: GangEnd) -> Mapping[str, object]:
        """Return what the evaluator is told of ranks that have ended."""
        self._sandbox = None
        try:
            how = end.problem or fault(end.ranks, self._task.gang.ranks, end.status)
        except ReplicaLost as lost:
            return {"lost": str(lost)}
        return {"failed": how or "its program has ended before its simulation"}


def main() -> None:
    """Start the ranks that the command line describes, and serve the evaluator."""
    _serve(**json.loads(sys.argv[1]))


def _serve(task: Mapping[str, object], connection: int, **others: object) -> NoReturn:
    """Start the ranks of a task, and serve the evaluator on the connection."""
    serve(GangTask.of(json.dumps(task)), socket.socket(fileno=connection))


def serve(task: GangTask, evaluator: socket.socket) -> NoReturn:
    """Confine this process, start the ranks of a task, and serve the evaluator."""
    watcher = rank_command(task)
    if task.confinement is not None:
        confine(Confinement(**task.confinement, keep=(evaluator.fileno(),)))
    else:
        adopt_orphans()
        task = replace(task, folder=_own_folder())
    threading.Thread(target=_end_with, args=(evaluator, task), name="evaluator", daemon=True).start()
    ranks = SimulatorRanks(task, evaluator, watcher)
    told: Mapping[str, object] = {}
    if not (end := ranks.start()).going:
        told = ranks.told_of(end)
    for line in evaluator.makefile("rb"):
        told = told or ranks.execute(line)
        evaluator.sendall(json.dumps(told).encode() + b"\n")
        if "lost" in told:
            break
        told = {}
    _end(task)


def _own_folder() -> str:
    """Make a folder without a sandbox, which a process of its own removes when this one has ended, also if killed."""
    folder, this = tempfile.mkdtemp(prefix="windtunnel-ranks-"), os.pidfd_open(os.getpid())
    if not os.fork():
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.closerange(3, this)
        os.closerange(this + 1, os.sysconf("SC_OPEN_MAX"))
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.dup2(null, 2)
        waiting = select.poll()
        waiting.register(this, select.POLLIN)
        waiting.poll()
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)
    os.close(this)
    return folder


def _end_with(evaluator: socket.socket, task: GangTask) -> None:
    """End when the evaluator's end of the connection is closed, also while the ranks compute."""
    waiting = select.poll()
    waiting.register(evaluator, 0)  # only POLLHUP
    waiting.poll()
    _end(task)


def _end(task: GangTask) -> NoReturn:
    """End this process, and with it the sandbox; without one, the ranks first."""
    if task.confinement is None:
        sweep()
    os._exit(0)
