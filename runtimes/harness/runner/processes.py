"""Evaluators and model servers as processes: what each is told, the ways to it, and where processes come from."""

import contextlib
import mmap
import os
import selectors
import signal
import socket
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from .cpu_pinning import pin
from .framed_socket import Channel
from .process_spec import Birth, Ground, bear, ending


@dataclass(frozen=True, kw_only=True, slots=True)
class Kit:
    """All it takes to start the evaluators and model servers of one kind; made of strings and numbers, so that it
    travels as JSON.

    ``sandbox`` is the level to confine at, or None for no sandbox. ``isolation`` is "scenario" or "launch". Memory is
    in bytes. Where posts start the processes, they bring interpreter, harness, packages and level themselves. Where the
    dataset's folder is still to come, ``within`` is the one it will lie in, and ``world`` says what an evaluator may
    import meanwhile: as the dataset's description does.
    """

    dataset: str
    format: str
    isolation: str
    sandbox: int | None
    python: str = ""
    harness: str = ""
    evaluator_site: str = ""
    model_server_site: str = ""
    evaluator_memory: int = 4 << 30
    model_server_memory: int = 4 << 30
    within: str = ""
    world: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Kit":
        """Read the JSON form."""
        return cls(**values)

    def describe(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


class Process(ABC):
    """One process, whoever started it: ``output`` is what it prints, ``end`` is readable once it has ended."""

    def __init__(self, name: str, output: int, end: int) -> None:
        self.name = name
        self.output = output
        self.end = end
        self.how: str | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def kill(self) -> None:
        """End it, and what it started, at once; harmless afterwards."""
        with self._lock:
            if self.how is None:
                self._kill()

    def reap(self) -> str:
        """Wait for its end, let go of its descriptors, and tell how it came. Once, by whoever started it."""
        how = self._await()
        with self._lock:
            self.how = how
            os.close(self.output)
            self._let_go()
        self._ended.set()
        return how

    def wait(self, timeout: float) -> str | None:
        """Wait until it has been reaped; return how it ended, or None if it lives on."""
        self._ended.wait(timeout)
        return self.how

    @abstractmethod
    def pin(self, core: int) -> None:
        """Keep it, and what it has started, on one core: two that take turns wake each other faster there."""

    @abstractmethod
    def _kill(self) -> None: ...

    @abstractmethod
    def _await(self) -> str: ...

    @abstractmethod
    def _let_go(self) -> None: ...


class Child(Process):
    """A process of our own."""

    def __init__(self, name: str, popen: "subprocess.Popen[bytes]", output: int) -> None:
        super().__init__(name, output, os.pidfd_open(popen.pid))
        self.popen = popen

    @property
    def pid(self) -> int:
        return self.popen.pid

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # ended and waited for, but not yet told so here
            signal.pidfd_send_signal(self.end, signal.SIGKILL)

    def _await(self) -> str:
        return ending(self.popen.wait())

    def _let_go(self) -> None:
        os.close(self.end)

    def pin(self, core: int) -> None:
        """Keep it, and what it has started, on one core: two that take turns wake each other faster there."""
        pin(self.popen.pid, core)


class Spawner(Protocol):
    """Where processes come from. Used by the main thread only."""

    def register(self, selector: selectors.BaseSelector, lost: Callable[[str], None]) -> None:
        """Have what it waits for watched; each key's data is called. ``lost`` hears why there will be no more."""

    def ready(self, module: str) -> bool:
        """Tell whether processes of this module can be started now; if not, the selector will wake us."""

    def spawn(self, birth: Birth, descriptors: Mapping[str, int]) -> Process:
        """Start one. It gets descriptors of its own, told to it by these names; ours stay with us."""


class Here:
    """Starts processes as our own children, on this machine."""

    def __init__(self, kit: Kit) -> None:
        sites = {"evaluator": kit.evaluator_site, "model_server": kit.model_server_site}
        self._grounds = {
            module: Ground(python=kit.python, harness=kit.harness, site=site, level=kit.sandbox)
            for module, site in sites.items()
        }

    def register(self, selector: selectors.BaseSelector, lost: Callable[[str], None]) -> None:
        """Nothing to wait for."""

    def ready(self, module: str) -> bool:
        """Always."""
        return True

    def spawn(self, birth: Birth, descriptors: Mapping[str, int]) -> Process:
        """Fork it."""
        output, theirs = os.pipe()
        try:
            popen = bear(birth, self._grounds[birth.module], descriptors, theirs)
        finally:
            os.close(theirs)
        os.set_blocking(output, False)
        return Child(birth.name, popen, output)


class Page:
    """Sixteen bytes shared with an evaluator: the task at work, which it writes, and where to stop, which it reads."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("page", os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, 16)
        self._map = mmap.mmap(self.descriptor, 16)
        self._words = memoryview(self._map).cast("q")  # whole words: no half-written number is ever seen
        self._words[0] = -1

    @property
    def task(self) -> int:
        """The task at work, -1 before the first."""
        return self._words[0]

    @property
    def stop(self) -> int:
        """Where the evaluator stops; moved down when a thief took the rest."""
        return self._words[1]

    @stop.setter
    def stop(self, task: int) -> None:
        self._words[1] = task

    def close(self) -> None:
        """Unmap it."""
        self._words.release()
        self._map.close()
        os.close(self.descriptor)


@dataclass(slots=True, eq=False)
class EvaluatorProcess:
    """An evaluator's process and the ways to it."""

    process: Process
    channel: Channel
    page: Page

    def dismiss(self) -> None:
        """End it and close the ways to it; once."""
        self.process.kill()
        self.channel.close()
        self.page.close()


@dataclass(slots=True, eq=False)
class ModelServerProcess:
    """A model server's process and the socket on which its evaluator will speak to it."""

    process: Process
    socket: socket.socket

    def dismiss(self) -> None:
        """End it and close the way to it; twice is harmless."""
        self.process.kill()
        self.socket.close()


def spawn_evaluator(kit: Kit, name: str, spawner: Spawner | None = None) -> EvaluatorProcess:
    """Start an evaluator, which imports its simulator, confines itself and waits for its set-up."""
    birth = Birth(
        name=name,
        module="evaluator",
        told={"dataset": kit.dataset, "world": kit.world},
        confined=kit.sandbox is not None,
        memory=kit.evaluator_memory,
        readonly=(kit.within or kit.dataset,),
    )
    ours, theirs = socket.socketpair()
    page = Page()
    with theirs:
        process = (spawner or Here(kit)).spawn(birth, {"socket": theirs.fileno(), "page": page.descriptor})
    return EvaluatorProcess(process, Channel(ours), page)


def spawn_model_server(kit: Kit, name: str, spawner: Spawner | None = None) -> ModelServerProcess:
    """Start a model server, which imports its format's libraries, confines itself and says hello on its socket."""
    birth = Birth(
        name=name,
        module="model_server",
        told={"format": kit.format, "isolation": kit.isolation},
        confined=kit.sandbox is not None,
        memory=kit.model_server_memory,
        may_fork=kit.isolation == "scenario",
    )
    ours, theirs = socket.socketpair()
    with theirs:
        return ModelServerProcess((spawner or Here(kit)).spawn(birth, {"socket": theirs.fileno()}), ours)
