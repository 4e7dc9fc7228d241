"""Warm runners: a runner with its evaluators and model servers, started before it is known for which launch.

Spawn from the main thread only: a process's request to die with its parent follows the thread that forked it.
"""

import asyncio
import json
import os
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from core.domain.scheduling.communications import mpi
from core.domain.scheduling.launches import Launch
from datasets.catalogue import versions
from datasets.catalogue.declaration import DatasetRanks
from datasets.nodecache.disk_cache import DiskCache
from runtimes import catalogue, environments, harness
from runtimes.harness.gang.gang_task import FOLDER, GangTask, LaunchedProgram, LocalGangSpec
from runtimes.harness.python_process import ending
from runtimes.harness.runner.process_spec import ENTRIES
from runtimes.harness.runner.processes import WorkerSpec
from runtimes.harness.sandbox.allowances import LIBRARIES, MEMORY
from workers.runner_processes import ForkedProcess, StartedProcess

HARNESS = Path(harness.__file__).parent
#: Ranks of several workers share the processors: one that waits for a message of another lets it run.
RANK_SETTINGS = {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1"}


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmKind:
    """Kind of a warm runner: the launches it can take. ``play``: name of a registered dataset's staged folder.

    ``environment``: name of the model's own environment in the node cache; empty: that of its format. ``trusted``: its
    evaluators load the model themselves. ``project``: whose environment or play its processes have loaded, so that they
    serve no other project, even one with the same content; empty if they have loaded what is the platform's alone.
    """

    runtime: str
    format: str
    dataset: str
    version: str
    play: str = ""
    environment: str = ""
    trusted: bool = False
    project: str = ""

    def __post_init__(self) -> None:
        if not self.loads_own:
            object.__setattr__(self, "project", "")  # the class is frozen

    @property
    def loads_own(self) -> bool:
        """Whether its processes load packages or plants that a project has brought."""
        return bool(self.environment or self.play)

    @classmethod
    def of(cls, launch: Launch) -> "WarmKind":
        """Return the kind of the runners that can take a launch."""
        return cls(**{field.name: getattr(launch, field.name) for field in fields(cls)})


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedFolders:
    """Where a machine has what staging prepared: ``environments``, ``plays`` (staged datasets), the ``cache``."""

    environments: Path
    plays: Path
    cache: DiskCache

    @property
    def builds(self) -> Path:
        """The folder of the builds of programs (runtimes/harness/gang/program_build.py)."""
        return self.plays.parent / "builds"

    @classmethod
    def below(cls, home: Path, environments: Path | None = None) -> "PreparedFolders":
        """Return the folders of a home; its environments may be elsewhere."""
        home = home.resolve()
        prepared = (environments or home / "environments").resolve()
        return cls(environments=prepared, plays=home / "plays", cache=DiskCache(home / "cache", None))


def worker_spec_for(
    kind: WarmKind, folders: PreparedFolders, sandbox: int | None, *, model_folder: str = "", ranks: bool = False
) -> WorkerSpec | None:
    """Return the worker spec of a kind; None if the kind is unknown or an environment or the dataset is not ready.

    ``ranks``: simulators that can have ranks beside them have them.
    """
    by_version = {dataset.version: dataset for dataset in versions().get(kind.dataset, ())}
    dataset = by_version.get(kind.version)
    runtime = catalogue.runtimes().get(kind.runtime)
    if dataset is None or runtime is None or kind.format not in runtime.formats:
        return None
    format = runtime.formats[kind.format]
    model_server = (
        own_environment(kind.environment, folders.cache)
        if kind.environment
        else environments.ready(format.environment, folders.environments)
    )
    evaluator = environments.ready(catalogue.simulators()[dataset.simulator], folders.environments)
    dataset_folder = folders.plays / kind.play if kind.play else dataset.folder
    if model_server is None or evaluator is None or not dataset_folder.is_dir():
        return None
    beside = None
    if ranks and dataset.declared.ranks is not None:
        packages = environments.ready(catalogue.communications()[mpi.NAME], folders.environments)
        if packages is None:
            return None
        beside = simulator_ranks(dataset.simulator, dataset.declared.ranks, [evaluator, packages], sandbox)
    isolation = format.isolation_on(dataset.declared.isolation)
    return WorkerSpec(
        python=base_interpreter(),
        harness=str(HARNESS),
        dataset=str(dataset_folder),
        evaluator_site=str(evaluator),
        model_server_site="" if kind.environment else str(model_server),
        model_environment=str(model_server) if kind.environment else "",
        model_server_libraries=LIBRARIES if kind.environment else 0,
        format=kind.format,
        isolation=isolation,
        sandbox=sandbox,
        model_folder=model_folder,
        trusted=kind.trusted,
        ranks=beside,
    )


def simulator_ranks(
    simulator: str, ranks: DatasetRanks, packages: Sequence[Path], sandbox: int | None
) -> Mapping[str, object]:
    """Return the task of the ranks beside an evaluator on this machine (runtimes/harness/gang/simulator_ranks.py)."""
    gang = LocalGangSpec(
        python=base_interpreter(),
        harness=str(HARNESS),
        packages=list(map(str, packages)),
        programs=[LaunchedProgram(launcher=mpi.alone(ranks.count), environ=RANK_SETTINGS)],
        command=["python", "-m", f"harness.simulators.{simulator}.{ranks.module}"],
        hosts=["simulator"],
        ranks=ranks.count,
        memory=MEMORY,
        name="",
        level=sandbox,
        start="launch",
    )
    confinement = gang.confinement([])
    return asdict(GangTask(gang=gang, confinement=confinement, model="", scenario={}, folder=FOLDER))


def own_environment(name: str, cache: DiskCache) -> Path | None:
    """Return the folder of an environment of a model's own packages; None if it is not on this node."""
    id = name.removeprefix("sha256:")
    return cache.tree(id) if cache.is_complete(id) else None


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


@cache
def base_interpreter() -> str:
    """Return the interpreter from which the server's virtual environment was created."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


class ControlledRunner:
    """A runner's process and its control socket, whose ``remote`` end the process gets."""

    _process: StartedProcess | ForkedProcess

    def __init__(self, log: Path) -> None:
        self.log = log
        self.exit: int | None = None
        self.over = asyncio.Event()  # set once it has been reaped
        self.reason: str | None = None
        self._control, self.remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    @property
    def end(self) -> int:
        """A descriptor that is readable when ``ended`` may have changed."""
        return self._process.end

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.ended()

    def start_launch(self, launch: Mapping[str, Any], lock: int) -> None:
        """Send the launch to the runner, with the descriptor of the lock that shows that the launch is running."""
        socket.send_fds(self._control, [json.dumps(launch).encode()], [lock])

    def dismiss(self) -> None:
        """Close the control socket: the runner ends its processes, delivers their output and exits."""
        self.reason = "the node agent ended it"
        self._control.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        """Kill the runner; its processes die with it."""
        if self.exit is None:
            self._process.kill()

    def reap(self) -> int:
        """Wait for the runner's exit; set and return its exit code, and set the reason."""
        self.exit = self._process.reap()
        self.reason = self._sent_reason() or self.reason or ending(self.exit)
        self._control.close()
        self.over.set()
        return self.exit

    def _sent_reason(self) -> str | None:
        try:
            data = self._control.recv(1 << 16, socket.MSG_DONTWAIT)
            return str(json.loads(data)["reason"]) if data else None
        except (OSError, ValueError):
            return None


class WarmRunner(ControlledRunner):
    """A warm runner's process and its control socket. ``name``: also that of its processes, as far as they are forked.

    ``connections``: to the fork servers of its modules, passed on to the runner. ``fork_server``: a connection to the
    one that forks the runner itself; without it, the runner is started.
    """

    def __init__(
        self,
        kind: WarmKind,
        spec: WorkerSpec,
        workers: int,
        log: Path,
        *,
        name: str = "runner",
        connections: Mapping[str, socket.socket] | None = None,
        fork_server: socket.socket | None = None,
    ) -> None:
        super().__init__(log)
        self.kind = kind
        self.name = name
        self.forked = fork_server is not None
        self._model_folder = spec.model_folder
        self._site = spec.model_environment or spec.model_server_site
        self._site_inode = _inode(self._site)
        forks = {f"{module}_forks": connection.fileno() for module, connection in (connections or {}).items()}
        options = {"worker_spec": spec.describe(), "workers": workers, "name": name}
        with open(log, "wb") as output, self.remote as remote:
            descriptors = {"control": remote.fileno(), **forks}
            self._process = (
                StartedProcess(spec.python, ENTRIES["runner"], options, descriptors, output)
                if fork_server is None
                else ForkedProcess(fork_server, options, descriptors, output)
            )

    @property
    def pid(self) -> int | None:
        """The process id of a started one; a forked one is known by its name."""
        return self._process.pid if isinstance(self._process, StartedProcess) else None

    def is_current(self) -> bool:
        """Whether the packages that its model servers were started with are still on this node."""
        return _inode(self._site) == self._site_inode

    def reap(self) -> int:
        """Wait for the runner's exit, and remove its model folder."""
        code = super().reap()
        if self._model_folder:
            shutil.rmtree(self._model_folder, ignore_errors=True)
        return code
