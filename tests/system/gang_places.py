"""Places where a gang runs, for the contract suite of gangs: this machine, a Slurm of two nodes, and pods."""

import contextlib
import itertools
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from common.errors import RunnerSilent, TaskNotAtWork, UnknownTaskFile
from core.domain.access.scopes import LOCAL_CALLER
from core.domain.scheduling.launches import Gang
from datasets.versions.archives.tar_writer import MeasuredTar
from datasets.versions.program_files import FILES
from tests import processes
from tests.gang_pods import GangPods, platform_mpi
from tests.provenances import PLAN
from tests.slurm import Slurm, slurm_alone
from tests.system.platform_process import FINAL, PlatformProcess
from tests.system.runner_api import SIMULATION, RunnerApi
from tests.system.test_datasets import register
from tests.waiting import until

#: Seconds that a simulation of a gang may take on a busy machine.
PATIENCE = 240.0
#: Times that pods are started at most.
ATTEMPTS = 4
#: Seconds that a runner may take to notice that a pod is lost.
NOTICING = 5.0


class StartedGang(Protocol):
    """A simulation with a gang. ``lost``: kills one of its ranks, of those whose command line ends with a word."""

    def logs(self) -> str:
        """Return what it has printed."""

    def ranks(self, word: str) -> list[int]:
        """Return the processes of its ranks, of which the command line ends with a word."""

    def names(self, path: str) -> set[str]:
        """Return the names in a folder of its first task, while that runs; none if it is not at work yet."""

    def read(self, path: str, offset: int = 0, wait: int = 0) -> bytes:
        """Return bytes of a file of its first task, while that runs."""

    def results(self) -> list[dict[str, Any]]:
        """Wait for its end; return its results."""

    def processes(self) -> list[int]:
        """Return processes that it runs, besides those whose command lines name its program."""

    @property
    def folders(self) -> Sequence[Path]:
        """The folders in which there is something of it while it runs."""

    @property
    def objects(self) -> Path:
        """The folder of the object store."""

    @property
    def id(self) -> str:
        """The id of the simulation."""

    def has_result(self) -> bool:
        """Return whether a task has a result."""

    def has_ended(self) -> bool:
        """Return whether the simulation has ended."""

    def fail_server(self, seconds: float) -> None:
        """Kill the server, and start it again after so many seconds."""


class GangPlace(Protocol):
    """Where gangs run."""

    def start(
        self,
        program: bytes,
        gang: Mapping[str, Any],
        *,
        tasks: int = 1,
        params: Mapping[str, Any] | None = None,
        data: Mapping[str, bytes] | None = None,
    ) -> contextlib.AbstractContextManager[StartedGang]:
        """Start a simulation of a program, a file or an archive. ``data``: the files of its dataset, if it has any."""


class PlatformGang:
    """A simulation of a platform."""

    def __init__(self, platform: PlatformProcess, id: str, slurm: Slurm | None) -> None:
        self._platform, self.id, self._slurm = platform, id, slurm

    def logs(self) -> str:
        return self._platform.http.get(f"/v1/simulations/{self.id}/logs").text

    def ranks(self, word: str) -> list[int]:
        return processes.ending_with(word)

    def names(self, path: str) -> set[str]:
        answer = self._platform.http.get(f"/v1/simulations/{self.id}/tasks/0/files", params={"path": path})
        return {entry["name"] for entry in answer.json()["entries"]} if answer.is_success else set()

    def read(self, path: str, offset: int = 0, wait: int = 0) -> bytes:
        query = {"path": path, "offset": offset, "wait_seconds": wait}
        answer = self._platform.http.get(f"/v1/simulations/{self.id}/tasks/0/files/content", params=query)
        assert answer.is_success, answer.text
        return answer.content

    def results(self) -> list[dict[str, Any]]:
        self._platform.wait_for_end(self.id, PATIENCE)
        return self._platform.results(self.id)

    def processes(self) -> list[int]:
        return [] if self._slurm is None else self._slurm.processes()

    @property
    def folders(self) -> Sequence[Path]:
        return [self._platform.home]

    @property
    def objects(self) -> Path:
        return self._platform.home / "objects"

    def has_result(self) -> bool:
        return bool(self._platform.get(self.id)["tasks"]["done"])

    def has_ended(self) -> bool:
        return self._platform.get(self.id)["state"] in FINAL

    def fail_server(self, seconds: float) -> None:
        self._platform.crash()
        wait(seconds)
        self._platform.start()


class PlatformPlace:
    """A platform with an executor."""

    def __init__(self, platform: PlatformProcess, slurm: Slurm | None = None) -> None:
        self._platform, self._slurm = platform, slurm

    @contextlib.contextmanager
    def start(
        self,
        program: bytes,
        gang: Mapping[str, Any],
        *,
        tasks: int = 1,
        params: Mapping[str, Any] | None = None,
        data: Mapping[str, bytes] | None = None,
    ) -> Iterator[PlatformGang]:
        dataset = "program" if data is None else register(self._platform, "data", data)["name"]
        fields = {"dataset": dataset, "scenarios": {"range": [0, tasks]}, "params": dict(params or {})}
        name = "program.zip" if program.startswith(b"PK") else "model.py"
        sent = self._platform.submit(model=program, filename=name, gang=dict(gang), **fields)
        yield PlatformGang(self._platform, str(sent["id"]), self._slurm)


class PodsGang:
    """A simulation whose gang is pods, which are started again as the dispatcher does when they have ended."""

    id = SIMULATION

    def __init__(self, runner_api: RunnerApi, start: Callable[[], GangPods]) -> None:
        self._runner_api, self._start = runner_api, start
        self._gang = start()
        self._lost_at: float | None = None

    def end(self) -> None:
        """Kill what still runs."""
        self._gang.end()

    def logs(self) -> str:
        return self._runner_api.logs()

    def ranks(self, word: str) -> list[int]:
        return self._gang.ranks(word)

    def names(self, path: str) -> set[str]:
        try:
            seen = self._runner_api.looks.list(LOCAL_CALLER, SIMULATION, 0, path)
        except (RunnerSilent, TaskNotAtWork, UnknownTaskFile):
            return set()
        return {entry.name for entry in seen.answer.entries}

    def read(self, path: str, offset: int = 0, wait: int = 0) -> bytes:
        options = {"offset": offset, "length": 1 << 19, "wait": wait}
        return self._runner_api.looks.read(LOCAL_CALLER, SIMULATION, 0, path, **options).data

    def results(self) -> list[dict[str, Any]]:
        for _ in range(ATTEMPTS):
            until(self._has_ended, PATIENCE, lambda: self._gang.output)
            if self._gang.runner.returncode == 0:
                return self._runner_api.results()
            output = self._gang.output
            self._gang.end()
            self._gang = self._start()
        raise AssertionError(output)

    def _has_ended(self) -> bool:
        """Return whether the runner has ended, or had time to, after a replica was lost: all pods start again then."""
        if self.has_ended():
            return True
        if self._lost_at is None and any(replica.process.poll() for replica in self._gang.replicas):
            self._lost_at = time.monotonic()
        over = self._lost_at is not None and time.monotonic() >= self._lost_at + NOTICING
        self._lost_at = None if over else self._lost_at
        return over

    def processes(self) -> list[int]:
        return [self._gang.runner.pid, *(pid for replica in self._gang.replicas for pid in replica.processes())]

    @property
    def folders(self) -> Sequence[Path]:
        return [self._gang.log.parent]  # those of pods that are gone are gone with them

    @property
    def objects(self) -> Path:
        return self._runner_api.store.root

    def has_result(self) -> bool:
        return bool(self._runner_api.results())

    def has_ended(self) -> bool:
        self._runner_api.settle()
        self._runner_api.leases.expire()  # of a runner that was killed
        return self._gang.runner.poll() is not None

    def fail_server(self, seconds: float) -> None:
        self._runner_api.stop_listening()
        wait(seconds)
        self._runner_api.listen()


class PodsPlace:
    """Pods as processes of this machine; each simulation has a runner API of its own."""

    def __init__(self, folder: Path, ttl: float = 10.0) -> None:
        self._folder, self._ttl = folder, ttl

    @contextlib.contextmanager
    def start(
        self,
        program: bytes,
        gang: Mapping[str, Any],
        *,
        tasks: int = 1,
        params: Mapping[str, Any] | None = None,
        data: Mapping[str, bytes] | None = None,
        environment: bytes | None = None,
    ) -> Iterator[PodsGang]:
        options = msgspec.convert(dict(gang), Gang)
        if options.communication == "mpi":
            platform_mpi()
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        plan = {**PLAN, "total_scenarios": tasks, "select": {"range": [0, tasks]}, "params": dict(params or {})}
        play = {"definition": {"task_patience": PATIENCE}, "tasks": plan}
        model = {"format": "gang_program"}
        files = {"packed": None if data is None else _bundle(folder / "data", data), "environment": environment}
        runner_api = RunnerApi(
            folder,
            total=tasks,
            play=play,
            model=program,
            described=model,
            gang=dict(gang),
            ttl=self._ttl,
            **files,
        )
        declared = {} if environment is None else {"environment": "of the model"}
        declared |= {} if data is None else {"play": "of the dataset"}
        numbers = itertools.count()
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)  # 350 MB of packages, forty times
            stack.callback(runner_api.close)
            gang_of_pods = PodsGang(
                runner_api, lambda: GangPods(folder / f"gang-{next(numbers)}", runner_api, options, **declared)
            )
            stack.callback(gang_of_pods.end)
            yield gang_of_pods


def _bundle(folder: Path, data: Mapping[str, bytes]) -> bytes:
    """Return the files of a dataset as a runner downloads them."""
    for name, content in data.items():
        path = folder / FILES / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return b"".join(MeasuredTar(folder))


@contextlib.contextmanager
def place(kind: str, folder: Path, lease_ttl: float = 10.0) -> Iterator[GangPlace]:
    """Open a place of a kind: ``local``, ``slurm`` or ``pods``. ``lease_ttl``: seconds of a lease."""
    if kind == "pods":
        yield PodsPlace(folder, lease_ttl)
        return
    with contextlib.ExitStack() as stack:
        slurm, settings = None, {"LEASE_TTL": str(lease_ttl), "LOOK_INSIDE": "yes"}
        if kind == "slurm":
            slurm = stack.enter_context(slurm_alone(nodes=2))
            options = {"conf": str(slurm.conf), "gang_network": True}
            executor = {"name": "hpc", "kind": "slurm", "workers": 4, "options": options}
            (folder / "executors.json").write_text(json.dumps({"executors": [executor]}))
            settings["EXECUTORS"] = str(folder / "executors.json")
        platform = PlatformProcess(folder / "home", settings=settings).start()
        stack.callback(platform.stop)
        yield PlatformPlace(platform, slurm)


def wait(seconds: float) -> None:
    """Let so many seconds pass, by the clock."""
    end = time.monotonic() + seconds
    until(lambda: time.monotonic() >= end, seconds + PATIENCE)


def waits(gang: StartedGang, text: str) -> None:
    """Wait until a gang has printed a text."""
    until(lambda: text in gang.logs(), PATIENCE)
