"""Spread gangs: a gang whose ranks are on several machines, as its runner runs it to the end of its launch.

Machines are reached in different ways: nodes of a job (gang_job.py), pods (gang_runner.py). They do the same.
"""

import ctypes
import logging
import os
import signal
import socket
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

from common.errors import Unsafe
from core.domain.scheduling.launches import Launch
from datasets.versions.program_files import FILES
from runtimes.harness.gang.gang_log import GangLog
from runtimes.harness.gang.gang_nodes import JoinedNode, SpreadTask
from runtimes.harness.gang.gang_runner import GangLaunch, GangRunner, GangStopped
from runtimes.harness.gang.gang_task import GangTask, LocalGangSpec
from runtimes.harness.gang.gang_transport import ReplicaLost
from runtimes.harness.gang.local_gang import LocalGang
from runtimes.harness.gang.program_build import BuildFailed
from runtimes.harness.gang.sandboxed_task import SandboxedTask
from runtimes.harness.runner.captured_output import CapturedOutput
from runtimes.harness.runner.runner import (
    DONE,
    INTERNAL_ERROR,
    PR_SET_DUMPABLE,
    SETUP_FAILED,
    STOPPED,
    UNREACHABLE,
)
from runtimes.harness.runner.runner_api_client import (
    Credentials,
    LaunchOver,
    RequestRejected,
    RunnerApiClient,
    Unreachable,
)
from runtimes.harness.runner.worker import ModelRejected
from workers.executors.kubernetes.gang_pods import members_of
from workers.launch_inputs import ENVIRONMENT_FOLDER, LaunchInputs, unpacked_model
from workers.local_gangs import ProgramFiles, gang_spec_of_node, program_files, whole_gang_spec
from workers.standalone_runner import report_end

if TYPE_CHECKING:
    from datasets.scs_client.client import CacheClient

#: Name of the folder with the files of a model that is an archive.
UNPACKED = "unpacked"
#: Exit code: a machine of the gang is lost, so the whole gang starts again, or ends.
LOST = 77


class NotStartable(Exception):
    """The gang cannot be started here: its packages or its machines are not as they should be."""


class GangDocument(msgspec.Struct, kw_only=True):
    """The description of a launch. ``folder``: of its files; ``level``: of sandboxes, 0: none.

    ``environments`` and ``builds``: folders of what is prepared, and of compiled programs; ``environment``: of the
    packages that the model declares, ``data``: of its dataset's files; None: they are downloaded. ``host``: the name
    by which other machines reach this one; empty: its own. ``ports``: added to each port of the gang, where several
    share a network.
    """

    launch: Launch
    token_file: str
    folder: str
    environments: str
    builds: str
    level: int
    environment: str | None = None
    data: str | None = None
    host: str = ""
    ports: int = 0


class SpreadGang(ABC):
    """The machines of a gang: they join with its first task. ``largest``: bytes of what a task may leave."""

    def __init__(self, document: GangDocument, files: ProgramFiles, largest: int) -> None:
        self.outputs = CapturedOutput()
        self._document = document
        self._launch = document.launch
        self._members = replace(members_of(self._launch), ports=document.ports)
        self._files = files
        self._largest = largest
        self._nodes: Sequence[JoinedNode] = ()
        self._tasks = 0
        self._task: SpreadTask | None = None

    @property
    def returns(self) -> bool:
        """Whether its machines are there again after one of them was lost."""
        return True

    @property
    def whole(self) -> LocalGangSpec:
        """The gang as if one machine had all ranks: to compile its program, and to judge its ends."""
        return whole_gang_spec(self._launch, self._members, self._files, self._document.level or None)

    def _part(self, number: int) -> LocalGangSpec:
        if self._members.gang.nodes == 1:
            return self.whole
        return gang_spec_of_node(self._launch, self._members, self._files, self._document.level or None, number)

    @property
    def places(self) -> Sequence[tuple[int, int]]:
        """The positions of the replicas that have a machine each."""
        gang = self._members.gang
        if gang.nodes == 1:
            return [(0, 0)]
        return [(slice, index) for slice in range(gang.slices) for index in range(gang.size)]

    def spread(self, task: GangTask) -> SpreadTask:
        """Start a task on all machines. Raise ReplicaLost if one is lost."""
        self._task = self._start(self.gather(), task)
        return self._task

    def gather(self) -> Sequence[JoinedNode]:
        """Return the machines; wait for them unless they are there."""
        if self._task is not None and self._task.broken:
            self.close()
        if not self._nodes:
            self._nodes = self._join()
        return self._nodes

    def _start(self, nodes: Sequence[JoinedNode], task: GangTask) -> SpreadTask:
        self._tasks += 1
        try:
            return SpreadTask(
                nodes,
                task,
                self._tasks,
                scratch=self._document.folder,
                largest=self._largest,
                printed=self.outputs,
            )
        except ReplicaLost:
            self.close()
            raise

    def close(self) -> None:
        """Let its machines go."""
        self._nodes, self._task = (), None

    @abstractmethod
    def built_by(self, task: GangTask) -> SandboxedTask | SpreadTask:
        """Start the build of the program, on one machine. Raise ReplicaLost if it is lost."""

    @abstractmethod
    def _join(self) -> Sequence[JoinedNode]:
        """Wait for all machines. Raise ReplicaLost, or NotStartable if they do not come."""


Spreading = Callable[[GangDocument, ProgramFiles, int], SpreadGang]


def serve(
    document: GangDocument, spreading: Spreading, site: Path | None = None, cache: "CacheClient | None" = None
) -> tuple[int, str]:
    """Run a launch to its end; return the exit code and the reason. ``spreading``: makes the gang.

    ``site``: the packages of the program's format, where they are not prepared in a folder of this machine.
    """
    signal.signal(signal.SIGTERM, interrupt)
    control, closing = socket.socketpair()
    launch, folder = document.launch, Path(document.folder)
    credentials = Credentials(url=launch.url, launch=launch.id, token=Path(document.token_file).read_text().strip())
    description = RunnerApiClient(credentials, threading.Event()).launch()
    described = msgspec.convert(description, GangLaunch)
    inputs = LaunchInputs(credentials, threading.Event(), folder, cache)
    dataset = "" if launch.play and document.data is None else "none"
    model, play = inputs.download(description.get("files") or {}, model=None, dataset=dataset)
    largest = description["model"].get("largest_unpacked")
    try:
        if largest is not None:
            (folder / UNPACKED).mkdir(exist_ok=True)
            model = unpacked_model(model, folder / UNPACKED, largest)
    except ModelRejected as rejected:
        RunnerApiClient(credentials, threading.Event()).refuse_model(str(rejected), rejected.status)
        return DONE, str(rejected)
    environment = Path(document.environment or folder / ENVIRONMENT_FOLDER) if launch.environment else None
    files = program_files(launch, Path(document.environments), environment, document.level or None, Path(model), site)
    if files is None:
        return SETUP_FAILED, "the packages of the gang's program are not here"
    if launch.play:
        files = replace(files, data=Path(document.data or f"{play}/{FILES}"))
    spread = spreading(document, files, described.largest_output)
    gang = LocalGang(spread.whole, model, control, document.folder, spread, shown=described.shown)
    try:
        spread.gather()  # before a lease is taken, which would expire while machines start
        signal.signal(signal.SIGTERM, lambda *_: closing.close())
        log = GangLog(gang.outputs, credentials)
        runner = GangRunner(credentials, described, gang, "gang", log, ended=end)
        log.begin()
        try:
            gang.build(document.builds, described.model.digest)
            runner.run()
        except GangStopped:
            runner.leave()
            return STOPPED, "the gang's runner was stopped by a signal"
        except BuildFailed as failure:
            RunnerApiClient(credentials, threading.Event()).refuse_model(str(failure), "failed")
        log.finish()
    finally:
        gang.close()
        spread.close()
    return DONE, "there is no more work"


def interrupt(*_: object) -> NoReturn:
    """Signal handler while no lease is held."""
    raise GangStopped("the gang's runner was stopped by a signal")


def end(code: int, reason: str) -> None:
    """End this process: the launch is over, or cannot go on."""
    report_end(reason)
    os._exit(code)


def run(launch: Path, serve: Callable[[GangDocument], tuple[int, str]]) -> NoReturn:
    """Run the launch that a file describes, and end this process."""
    logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s", level=logging.INFO)
    # Processes of the same user must not read the token from this process's memory.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    try:
        code, reason = serve(msgspec.json.decode(launch.read_bytes(), type=GangDocument))
    except LaunchOver as error:
        code, reason = DONE, f"the launch is over ({error})"
    except GangStopped as error:
        code, reason = STOPPED, str(error)
    except Unsafe as error:
        code, reason = SETUP_FAILED, str(error)
    except (ReplicaLost, NotStartable) as error:
        code, reason = LOST, f"the gang is lost: {error}"
    except (Unreachable, RequestRejected) as error:
        code, reason = UNREACHABLE, str(error)
    except (OSError, ValueError, KeyError, TypeError) as error:
        code, reason = INTERNAL_ERROR, f"the launch document cannot be read: {type(error).__name__}: {error}"
    report_end(f"{reason} ({code})")
    os._exit(code)
