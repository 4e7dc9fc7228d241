"""Local gang: runs a launch's tasks on one machine, each in a shared sandbox of its own, as a child of the node agent.

A task's sandbox ends with it, so no task finds anything of another. A lost sandbox is made again for the next task.
"""

import contextlib
import ctypes
import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Mapping
from typing import NoReturn, Protocol

import msgspec

from ..evaluator.result_batch import Played, RankTiming, unworldly
from ..runner.captured_output import CapturedOutput
from ..runner.framed_socket import receive_with_rights
from ..runner.runner import (
    DONE,
    INTERNAL_ERROR,
    PR_SET_DUMPABLE,
    PR_SET_NAME,
    UNREACHABLE,
)
from ..runner.runner_api_client import Credentials, LaunchOver, RequestRejected, RunnerApiClient, Unreachable
from .delivered_files import OUTPUT, Delivery, NotDeliverable
from .gang_log import GangLog
from .gang_nodes import SpreadTask
from .gang_runner import (
    SEARCH_TOO_LONG,
    UNFINISHED_TASK,
    UNREAD_RESULT,
    GangLaunch,
    GangRunner,
    GangStopped,
    result_of,
)
from .gang_task import FOLDER, GangEnd, GangTask, LocalGangSpec
from .gang_transport import ReplicaLost
from .program_build import BuildFailed, ProgramBuild
from .rank_ends import fault
from .sandboxed_task import SandboxedTask
from .task_storage import CheckpointUploads, TaskStorage


class GangRunnerOptions(msgspec.Struct):
    """Options of this process; ``control``: the descriptor of its connection to the node agent."""

    control: int
    gang: LocalGangSpec


class GangOrder(msgspec.Struct):
    """A launch, as it arrives over the control socket; ``model``: path of its files.

    ``folder``: of the launch; ``builds``: of the builds of programs on this machine.
    """

    url: str
    launch: str
    token: str
    model: str
    folder: str
    builds: str


class GangSpread(Protocol):
    """Where a gang is that is on several machines."""

    #: What the machines print.
    outputs: CapturedOutput

    @property
    def returns(self) -> bool:
        """Whether its machines are there again after one of them was lost."""

    def spread(self, task: GangTask) -> SpreadTask:
        """Start a task on all machines. Raise ReplicaLost if one is lost."""

    def built_by(self, task: GangTask) -> SandboxedTask | SpreadTask:
        """Start the build of the program, on one machine. Raise ReplicaLost if it is lost."""


class LocalGang:
    """A gang on this machine. ``model``: path of its files; ``folder``: of the launch, for files of its tasks.

    The node agent ends it by closing ``control``. ``spread``: where the gang is, if that is several machines.
    ``shown``: whether people may look into its tasks.
    """

    def __init__(
        self,
        gang: LocalGangSpec,
        model: str,
        control: socket.socket,
        folder: str,
        spread: GangSpread | None = None,
        *,
        shown: bool = False,
    ) -> None:
        self.outputs = CapturedOutput() if spread is None else spread.outputs
        self._spread = spread
        self._shown = shown
        self._gang = gang
        self._model = model
        self._control = control
        self._folder = folder
        self._built: str | None = None
        self._sandboxes = contextlib.ExitStack()
        self._sandboxed: SandboxedTask | SpreadTask | None = None
        self._delivered = Delivery(OUTPUT)
        self._problem: str | None = None

    def build(self, builds: str, digest: str) -> None:
        """Compile the program, if it is to be compiled; ``builds``: the folder of builds, ``digest``: of the model.

        Raise BuildFailed, GangStopped or ReplicaLost.
        """
        if self._gang.build:
            build = ProgramBuild(self._gang, self._model, digest, builds, self._start_build)
            self._built = build.folder(self._folder, self._control)

    @property
    def returns(self) -> bool:
        """Whether it is there again for the next task after it was lost."""
        return self._spread is None or self._spread.returns

    @property
    def at_work(self) -> SandboxedTask | SpreadTask | None:
        """The task that it runs, to look into; None: there is none."""
        return self._sandboxed if self._shown else None

    def _start_build(self, task: GangTask) -> SandboxedTask | SpreadTask:
        return SandboxedTask(task, self.outputs) if self._spread is None else self._spread.built_by(task)

    def run(self, scenario: Mapping[str, object], patience: float, storage: TaskStorage) -> Played:
        """Run one task; raise ReplicaLost, or GangStopped once the agent closes its connection."""
        began, needed = time.monotonic(), False
        uploads = CheckpointUploads(storage, lambda text: self.outputs.add("gang", text.encode() + b"\n"))
        try:
            end = self._run(scenario, began + patience, storage, uploads)
            seconds = time.monotonic() - began
            if end is None:
                return Played("timed_out", {}, error=f"the program took longer than {patience:g} s", seconds=seconds)
            return self._outcome(end, seconds, storage)
        except ReplicaLost:
            needed = True
            raise
        finally:
            uploads.end(needed=needed)

    def _run(
        self, scenario: Mapping[str, object], until: float, storage: TaskStorage, uploads: CheckpointUploads
    ) -> GangEnd | None:
        """Have a sandbox run a task, the one that is there if its program goes on; return its end, None if it is late.

        It is closed unless the program goes on to the next task.
        """
        sandboxed, going = self._sandboxed, False
        try:
            message: bytes | None = b""
            if sandboxed is not None and not storage.has_checkpoint:
                sandboxed.tell(scenario)
                message = sandboxed.listen(self._control, until, uploads.add, storage.tell_progress)
            if sandboxed is None or message == b"":  # there is none, or its program has ended after the task before
                self._sandboxes.close()
                sandboxed = self._sandboxed = self._start(scenario, storage)
                message = sandboxed.listen(self._control, until, uploads.add, storage.tell_progress)
            if message is None:
                return None
            if not message:
                raise ReplicaLost(f"its sandbox ended: {sandboxed.ending}")
            try:
                end = GangEnd.of(message)
            except ValueError as error:
                raise ReplicaLost(f"its sandbox told something else than its end: {error}") from None
            self._delivered, self._problem = sandboxed.delivered, sandboxed.problem
            going = end.going
            return end
        finally:
            if not going:
                self.close()

    def close(self) -> None:
        """End a program that goes on."""
        self._sandboxed = None
        self._sandboxes.close()

    def _start(self, scenario: Mapping[str, object], storage: TaskStorage) -> SandboxedTask | SpreadTask:
        """Start a sandbox with a task, and with the newest checkpoint of it."""
        folder = tempfile.TemporaryDirectory(prefix="task-", dir=self._folder, ignore_cleanup_errors=True)
        task = self._task(scenario, self._sandboxes.enter_context(folder), storage)
        if self._spread is not None:
            return self._sandboxes.enter_context(self._spread.spread(task))
        return self._sandboxes.enter_context(SandboxedTask(task, self.outputs))

    def _task(self, scenario: Mapping[str, object], folder: str, storage: TaskStorage) -> GangTask:
        """Return the task as its sandbox is told, with the newest checkpoint beside it."""
        os.chmod(folder, 0o755)
        restore = f"{folder}/restore"
        restored = storage.restore(restore)
        built = [self._built] if self._built is not None else []
        confinement = self._gang.confinement([self._model, *built, *([restore] if restored else [])])
        return GangTask(
            gang=self._gang,
            confinement=confinement,
            model=self._model,
            scenario=scenario,
            folder=f"{folder}/own" if confinement is None else FOLDER,
            restore=restore if restored else None,
            built=self._built,
            shown=self._shown,
        )

    def _outcome(self, end: GangEnd, seconds: float, storage: TaskStorage) -> Played:
        """Return the outcome of a task, with its outputs. Raise ReplicaLost if a rank was lost."""
        try:
            played = outcome(end, self._gang.ranks, seconds, self._gang.metrics)
        except ReplicaLost:
            self._delivered.close()
            raise
        problem = self._problem
        try:
            played.outputs = storage.outputs(self._delivered)
        except NotDeliverable as error:
            problem = str(error)
        if problem is not None and played.status == "ok":
            played.status, played.metrics = "invalid", {}
            played.error = unworldly(f"the files that the program leaves cannot be kept: {problem}")
        return played


def outcome(end: GangEnd, ranks: int, seconds: float, read: Collection[str] = ()) -> Played:
    """Return a task's outcome from what its sandbox told. Raise ReplicaLost if a rank was lost.

    ``read``: the names of the metrics that are read from its lines.
    """
    problem = None if end.going else end.problem or fault(end.ranks, ranks, end.status)
    timing = [
        RankTiming(rank.host, round(rank.computing, 6), rank.waiting, rank.sent, rank.all_reduce)
        for rank in sorted(end.ranks, key=lambda rank: rank.rank)
    ]
    if problem is not None:
        return Played("crashed", {}, error=unworldly(problem), seconds=seconds, ranks=timing)
    first = next((rank for rank in end.ranks if rank.rank == 0), None)
    error = None
    if first is not None and first.given_up:
        error = f"the expression of {first.given_up[0]} {SEARCH_TOO_LONG}"
    elif end.unread is not None:
        error = UNREAD_RESULT + end.unread
    elif end.going and (end.result or "").strip() in ("", "null"):
        error = UNFINISHED_TASK
    if error is not None:
        return Played("invalid", {}, error=unworldly(error), seconds=seconds, ranks=timing)
    result = end.result if end.result is not None or first is None else first.result
    played = result_of(result, seconds, read, first.lines if first is not None else ())
    played.ranks = timing
    return played


def main() -> None:
    """Run one launch, which arrives over the control socket, to its end."""
    # Processes of the same user must not read the token from this process's memory.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    options = msgspec.json.decode(sys.argv[1], type=GangRunnerOptions)
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"gang-runner")
    control = socket.socket(fileno=options.control)
    data, _lock = receive_with_rights(control)  # kept: the lock shows others that the launch is alive

    def end(code: int, reason: str) -> NoReturn:
        try:
            control.send(json.dumps({"reason": reason}).encode())
        except OSError:
            print(reason, file=sys.stderr)  # the agent exited first
        os._exit(code)

    if not data:
        end(DONE, "the agent is gone")
    order = msgspec.json.decode(data, type=GangOrder)
    credentials = Credentials(url=order.url, launch=order.launch, token=order.token)
    try:
        launch = msgspec.convert(RunnerApiClient(credentials, threading.Event()).launch(), GangLaunch)
        gang = LocalGang(options.gang, order.model, control, order.folder, shown=launch.shown)
        log = GangLog(gang.outputs, credentials)
        runner = GangRunner(credentials, launch, gang, "gang", log, ended=end)
        log.begin()
        try:
            gang.build(order.builds, launch.model.digest)
            runner.run()
        except GangStopped as stopped:
            runner.leave()
            end(DONE, str(stopped))
        except BuildFailed as failure:
            RunnerApiClient(credentials, threading.Event()).refuse_model(str(failure), "failed")
        log.finish()
    except LaunchOver as error:
        end(DONE, f"the launch is over ({error})")
    except (Unreachable, RequestRejected) as error:
        end(UNREACHABLE, str(error))
    except Exception as error:
        end(INTERNAL_ERROR, f"a fault of the gang's runner: {type(error).__name__}: {error}")
    end(DONE, "there is no more work")
