"""Local gang: runs a launch's tasks on one machine, each in a shared sandbox of its own, as a child of the node agent.

A task's sandbox ends with it, so no task finds anything of another. A lost sandbox is made again for the next task.
"""

import ctypes
import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import NoReturn

import msgspec

from .. import python_process
from ..evaluator.result_batch import Played, RankTiming, unworldly
from ..runner.captured_output import CapturedOutput
from ..runner.framed_socket import receive_with_rights
from ..runner.runner import (
    DONE,
    INTERNAL_ERROR,
    LAST_REQUEST,
    LOG_INTERVAL,
    PR_SET_DUMPABLE,
    PR_SET_NAME,
    UNREACHABLE,
    deliver,
)
from ..runner.runner_api_client import Credentials, LaunchOver, RequestRejected, RunnerApiClient, Unreachable
from .gang_runner import GangLaunch, GangRunner, GangStopped, result_of
from .gang_task import GangEnd, GangTask, LocalGangSpec
from .gang_transport import ReplicaLost
from .rank_ends import fault
from .shared_sandbox import LONGEST_END

#: Address space of a rank, in bytes: MPI maps memory that it does not use. What it uses is limited otherwise.
ADDRESSES = 1 << 46
#: Processes and threads of each rank, and open files.
TASKS_OF_RANK, FILES = 64, 1024
#: The folder of a task's files in its sandbox, where it is in memory.
FOLDER = "/tmp/windtunnel"
PIECE = 64 << 10


class GangRunnerOptions(msgspec.Struct):
    """Options of this process; ``control``: the descriptor of its connection to the node agent."""

    control: int
    gang: LocalGangSpec


class GangOrder(msgspec.Struct):
    """A launch, as it arrives over the control socket; ``model``: path of its files."""

    url: str
    launch: str
    token: str
    model: str


class LocalGang:
    """A gang on this machine. ``model``: path of its files. The node agent ends it by closing ``control``."""

    returns = True

    def __init__(self, gang: LocalGangSpec, model: str, control: socket.socket) -> None:
        self.outputs = CapturedOutput()
        self._gang = gang
        self._model = model
        self._control = control

    def run(self, scenario: Mapping[str, object], patience: float) -> Played:
        """Run one task; raise ReplicaLost, or GangStopped once the agent closes its connection."""
        if self._gang.level is not None:
            return self._run(scenario, patience, FOLDER)
        with tempfile.TemporaryDirectory(prefix="windtunnel-gang-", ignore_cleanup_errors=True) as folder:
            return self._run(scenario, patience, f"{folder}/task")

    def _run(self, scenario: Mapping[str, object], patience: float, folder: str) -> Played:
        began = time.monotonic()
        output, printed = os.pipe()
        os.set_blocking(output, False)
        told, telling = socket.socketpair()
        self.outputs.watch(output, "gang")
        with told:
            with telling:
                process = self._start(scenario, folder, telling, printed)
            os.close(printed)
            try:
                message = self._listen(told, output, began + patience)
            finally:
                process.kill()  # with it all that is left of the task
                code = process.wait()
                self.outputs.forget(output)
                os.close(output)
        seconds = time.monotonic() - began
        if message is None:
            return Played("timed_out", {}, error=f"the program took longer than {patience:g} s", seconds=seconds)
        if not message:
            raise ReplicaLost(f"its sandbox ended: {python_process.ending(code)}")
        try:
            end = GangEnd.of(message)
        except ValueError as error:
            raise ReplicaLost(f"its sandbox told something else than its end: {error}") from None
        return outcome(end, self._gang.ranks, seconds)

    def _start(
        self, scenario: Mapping[str, object], folder: str, telling: socket.socket, printed: int
    ) -> "subprocess.Popen[bytes]":
        """Start the sandbox of a task, which tells its end on a socket and prints to a pipe."""
        return python_process.start(
            self._gang.python,
            "gang.shared_sandbox",
            [os.path.dirname(self._gang.harness)],
            asdict(self._task(scenario, folder)),
            {"socket": telling.fileno()},
            printed,
        )

    def _task(self, scenario: Mapping[str, object], folder: str) -> GangTask:
        gang = self._gang
        confinement = None
        if gang.level is not None:
            confinement = {
                "readonly": [*gang.packages, self._model],
                "hosts": gang.hosts,
                "level": gang.level,
                "memory": gang.memory,
                "libraries": ADDRESSES,
                "writable_tmp_mb": gang.memory >> 20,
                "processes": TASKS_OF_RANK * (gang.ranks + 1),
                "files": FILES,
            }
        return GangTask(gang=gang, confinement=confinement, model=self._model, scenario=scenario, folder=folder)

    def _listen(self, told: socket.socket, output: int, until: float) -> bytes | None:
        """Return what the sandbox tells until it closes its end; None if that takes too long."""
        message, most = b"", LONGEST_END * (self._gang.ranks + 1)
        with selectors.DefaultSelector() as selector:
            for source in (told, output, self._control):
                selector.register(source, selectors.EVENT_READ)
            while (left := until - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    if key.fileobj is self._control:
                        raise GangStopped("the node agent ended it")
                    if key.fileobj == output:
                        if not self.outputs.collect(output):
                            selector.unregister(output)
                        continue
                    if not (piece := told.recv(PIECE)):
                        return message
                    message += piece
                    if len(message) > most:
                        raise ReplicaLost("its sandbox told too much")
        return None


def outcome(end: GangEnd, ranks: int, seconds: float) -> Played:
    """Return a task's outcome from what its sandbox told. Raise ReplicaLost if a rank was lost."""
    problem = end.problem or fault(end.ranks, ranks, end.status)
    timing = [
        RankTiming(rank.host, round(rank.computing, 6), rank.waiting, rank.sent)
        for rank in sorted(end.ranks, key=lambda rank: rank.rank)
    ]
    if problem is not None:
        return Played("crashed", {}, error=unworldly(problem), seconds=seconds, ranks=timing)
    first = next((rank.result for rank in end.ranks if rank.rank == 0), None)
    played = result_of(end.result if end.result is not None else first, seconds)
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
    gang = LocalGang(options.gang, order.model, control)
    try:
        launch = msgspec.convert(RunnerApiClient(credentials, threading.Event()).launch(), GangLaunch)
        runner = GangRunner(credentials, launch, gang, "gang", ended=end)
        log = RunnerApiClient(credentials, threading.Event(), patience=0.0)
        threading.Thread(target=_deliver, args=(gang, log), name="log", daemon=True).start()
        try:
            runner.run()
        except GangStopped as stopped:
            runner.leave()
            end(DONE, str(stopped))
        deliver(gang.outputs, RunnerApiClient(credentials, threading.Event(), patience=0.0, time_out=LAST_REQUEST))
    except LaunchOver as error:
        end(DONE, f"the launch is over ({error})")
    except (Unreachable, RequestRejected) as error:
        end(UNREACHABLE, str(error))
    except Exception as error:
        end(INTERNAL_ERROR, f"a fault of the gang's runner: {type(error).__name__}: {error}")
    end(DONE, "there is no more work")


def _deliver(gang: LocalGang, client: RunnerApiClient) -> None:
    """Send what the gang prints, until the launch is over."""
    while True:
        time.sleep(LOG_INTERVAL)
        try:
            deliver(gang.outputs, client)
        except (LaunchOver, Unreachable, RequestRejected):
            return
