"""Processes of evaluators and model servers: specs, sockets, shared memory, and the local spawner."""

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from ..python_process import KILLED, ending
from ..task_page import SharedPage
from .cpu_pinning import pin
from .framed_socket import FramedSocket
from .memory_kills import memory_kills
from .process_spec import ENVIRONMENT_FOLDERS, Installation, ProcessSpec, start_process
from .process_times import process_times

#: The reason for which a process is ended that did nothing wrong.
UNNEEDED = "it was not needed any more"
#: Members of a dataset's description that tell an evaluator what to import and whether it starts processes.
WORLD = ("simulator", "package", "starts_processes", "ranks")


def _memory() -> int:
    from ..sandbox.allowances import MEMORY  # not at the top: a runner, which gets its spec as JSON, does without

    return MEMORY


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSpec:
    """What is needed to start a launch's evaluators and model servers; strings and numbers only, to travel as JSON.

    ``sandbox`` is the level to confine at, or None for no sandbox. ``isolation`` is "scenario" or "launch". Memory is
    in bytes. A container init supplies interpreter, harness, packages and level itself, but for the packages of a model
    that has its own (``model_environment``: their folder), whose servers have address space for them besides
    (``model_server_libraries``). If the dataset is still to be downloaded, ``within`` is the folder that will contain
    its folder, and ``world`` is the part of the dataset's description that tells an evaluator what to import meanwhile.
    ``trusted``: evaluators load the model themselves, too, and see its packages and folder (trusted_model.py).
    ``ranks``: the task of the ranks that each evaluator's simulator has beside it (gang/simulator_ranks.py); None: it
    has none, and computes alone.
    ``model_folder`` is a folder for the files of a model that is an archive (model_folder.py); empty: there is none.
    """

    dataset: str
    format: str
    isolation: str
    sandbox: int | None
    python: str = ""
    harness: str = ""
    evaluator_site: str = ""
    model_server_site: str = ""
    model_environment: str = ""
    evaluator_memory: int = field(default_factory=_memory)
    model_server_memory: int = field(default_factory=_memory)
    model_server_libraries: int = 0
    within: str = ""
    world: Mapping[str, Any] | None = None
    model_folder: str = ""
    trusted: bool = False
    ranks: Mapping[str, object] | None = None

    def describe(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


class Process(ABC):
    """A process, local or remote: ``output`` is the pipe it prints to, ``end`` is readable once it has ended."""

    def __init__(self, name: str, output: int, end: int) -> None:
        self.name = name
        self.output = output
        self.end = end
        self.how: str | None = None
        self._killed_because: str | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def kill(self, reason: str) -> None:
        """Kill the process and its descendants, for a reason that stands in the log; harmless after its end."""
        with self._lock:
            if self.how is None:
                self._killed_because = self._killed_because or reason
                self._kill()

    def reap(self) -> str:
        """Wait for the end, close the descriptors, return how the process ended. Called once, by the main thread."""
        how = self._await()
        with self._lock:
            if how == KILLED and self._killed_because:
                how = f"killed by the platform: {self._killed_because}"
            self.how = how
            os.close(self.output)
            self._close()
        self._ended.set()
        return how

    def wait(self, timeout: float) -> str | None:
        """Wait until the process has been reaped; return how it ended, or None after ``timeout`` seconds."""
        self._ended.wait(timeout)
        return self.how

    @abstractmethod
    def pin(self, core: int) -> None:
        """Pin it and its descendants to one core: two processes that alternate wake each other faster there."""

    @abstractmethod
    def times(self) -> dict[str, Any] | None:
        """Return `process_times` of the process and its descendants; None if they cannot be read."""

    @abstractmethod
    def _kill(self) -> None: ...

    @abstractmethod
    def _await(self) -> str: ...

    @abstractmethod
    def _close(self) -> None: ...


class ChildProcess(Process):
    """A child process of this runner."""

    def __init__(self, name: str, popen: "subprocess.Popen[bytes]", output: int) -> None:
        super().__init__(name, output, os.pidfd_open(popen.pid))
        self.popen = popen
        self._kills_before = memory_kills()

    @property
    def pid(self) -> int:
        return self.popen.pid

    def times(self) -> dict[str, Any] | None:
        return process_times(self.popen.pid)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # it was reaped, but ``how`` is not set yet
            signal.pidfd_send_signal(self.end, signal.SIGKILL)

    def _await(self) -> str:
        return ending(self.popen.wait(), kills_before=self._kills_before, kills_after=memory_kills())

    def _close(self) -> None:
        os.close(self.end)

    def pin(self, core: int) -> None:
        """Pin it and its descendants to one core: two processes that alternate wake each other faster there."""
        pin(self.popen.pid, core)


class Spawner(Protocol):
    """Starts processes. Used by the main thread only."""

    def register(self, selector: selectors.BaseSelector, lost: Callable[[str], None]) -> None:
        """Register its sockets; each key's data is a callback. ``lost`` gets the reason of a permanent failure."""

    def ready(self, module: str) -> bool:
        """Tell whether processes of this module can be started; if not, a registered socket becomes readable later."""

    def spawn(self, process_spec: ProcessSpec, descriptors: Mapping[str, int]) -> Process:
        """Start a process. It gets duplicates of the descriptors, under these names; the caller keeps its own."""


class LocalSpawner:
    """Starts processes as children of the runner, on this machine."""

    def __init__(self, spec: WorkerSpec) -> None:
        sites = {"evaluator": spec.evaluator_site, "model_server": spec.model_server_site, "ranks": spec.evaluator_site}
        self._installations = {
            module: Installation(python=spec.python, harness=spec.harness, site=site, level=spec.sandbox)
            for module, site in sites.items()
        }

    def register(self, selector: selectors.BaseSelector, lost: Callable[[str], None]) -> None:
        """Nothing to register: local processes can always be started."""

    def ready(self, module: str) -> bool:
        """Return True."""
        return True

    def spawn(self, process_spec: ProcessSpec, descriptors: Mapping[str, int]) -> Process:
        """Start the process as a child."""
        output, remote = os.pipe()
        try:
            popen = start_process(process_spec, self._installations[process_spec.module], descriptors, remote)
        finally:
            os.close(remote)
        os.set_blocking(output, False)
        return ChildProcess(process_spec.name, popen, output)


@dataclass(slots=True, eq=False)
class EvaluatorProcess:
    """An evaluator's process, its socket and its task page; ``ranks``: the process of its simulator's ranks, if any."""

    process: Process
    channel: FramedSocket
    page: SharedPage
    ranks: Process | None = None

    @property
    def processes(self) -> Sequence[Process]:
        """Its process, and that of the ranks."""
        return (self.process,) if self.ranks is None else (self.process, self.ranks)

    def dismiss(self, reason: str = UNNEEDED) -> None:
        """Kill the processes, close socket and page; call it once."""
        for process in self.processes:
            process.kill(reason)
        self.channel.close()
        self.page.close()


@dataclass(slots=True, eq=False)
class ModelServerProcess:
    """A model server's process and the socket that will be passed to its evaluator."""

    process: Process
    socket: socket.socket

    @property
    def processes(self) -> Sequence[Process]:
        """Its process."""
        return (self.process,)

    def dismiss(self, reason: str = UNNEEDED) -> None:
        """Kill the process and close the socket; may be called twice."""
        self.process.kill(reason)
        self.socket.close()


def spawn_evaluator(spec: WorkerSpec, name: str, spawner: Spawner | None = None) -> EvaluatorProcess:
    """Start an evaluator, which imports its simulator, confines itself and waits for its set-up."""
    process_spec = ProcessSpec(
        name=name,
        module="evaluator",
        options={"dataset": spec.dataset, "world": spec.world},
        confined=spec.sandbox is not None,
        memory=spec.evaluator_memory,
        readonly=(spec.within or spec.dataset,),
    )
    if spec.trusted:
        process_spec = with_model(process_spec, spec)
    spawner = spawner or LocalSpawner(spec)
    local, remote = socket.socketpair()
    page = SharedPage()
    with remote, contextlib.ExitStack() as sockets:
        descriptors, ranks = {"socket": remote.fileno(), "page": page.descriptor}, None
        if spec.ranks is not None:
            asking, asked = map(sockets.enter_context, socket.socketpair())
            rank_spec = ProcessSpec(
                name=f"{name}-ranks", module="ranks", options={"task": spec.ranks}, confined=False, memory=0
            )
            ranks = spawner.spawn(rank_spec, {"connection": asked.fileno()})  # which confines itself as its task says
            descriptors["ranks"] = asking.fileno()
        process = spawner.spawn(process_spec, descriptors)
    return EvaluatorProcess(process, FramedSocket(local), page, ranks)


def with_model(evaluator: ProcessSpec, spec: WorkerSpec) -> ProcessSpec:
    """Return the spec of an evaluator that loads a trusted model itself."""
    environment, site = spec.model_environment, spec.model_server_site
    folders = [site] if site else []  # else they are in the image of this container, or come to it (container_init.py)
    if environment:
        folders = [f"{environment}/{folder}" for folder in ENVIRONMENT_FOLDERS]
    return replace(
        evaluator,
        trusted_format=spec.format,
        trusted_folders=folders,
        trusted_declared=folders[-1] if environment else "",
        memory=max(spec.evaluator_memory, spec.model_server_memory),  # which the text of a MemoryError names
        libraries=spec.model_server_libraries,
        readonly=(*evaluator.readonly, *filter(None, (environment or site, spec.model_folder))),
    )


def spawn_model_server(spec: WorkerSpec, name: str, spawner: Spawner | None = None) -> ModelServerProcess:
    """Start a model server, which imports its format's libraries, confines itself and greets on its socket."""
    process_spec = ProcessSpec(
        name=name,
        module="model_server",
        options={"format": spec.format, "isolation": spec.isolation},
        confined=spec.sandbox is not None,
        memory=spec.model_server_memory,
        libraries=spec.model_server_libraries,
        readonly=(spec.model_folder,) if spec.model_folder else (),
        site=spec.model_server_site,
        environment=spec.model_environment,
        may_fork=spec.isolation == "scenario",
    )
    local, remote = socket.socketpair()
    with remote:
        return ModelServerProcess(
            (spawner or LocalSpawner(spec)).spawn(process_spec, {"socket": remote.fileno()}), local
        )
