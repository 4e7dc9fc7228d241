"""Places where a gang runs, for the contract suite of gangs: this machine, a Slurm of two nodes, and pods."""

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from common.errors import RunnerSilent, TaskNotAtWork, UnknownTaskFile
from core.domain.scheduling.launches import Gang
from datasets.versions.archives.tar_writer import MeasuredTar
from datasets.versions.program_files import FILES
from tests import processes
from tests.gang_pods import GangPods, platform_mpi, pods
from tests.provenances import PLAN
from tests.slurm import slurm_alone
from tests.system.platform_process import PlatformProcess
from tests.system.runner_api import SIMULATION, RunnerApi
from tests.system.test_datasets import register
from tests.waiting import until

#: Seconds that a simulation of a gang may take on a busy machine.
PATIENCE = 240.0


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

    def __init__(self, platform: PlatformProcess, id: str) -> None:
        self._platform, self._id = platform, id

    def logs(self) -> str:
        return self._platform.http.get(f"/v1/simulations/{self._id}/logs").text

    def ranks(self, word: str) -> list[int]:
        return processes.ending_with(word)

    def names(self, path: str) -> set[str]:
        answer = self._platform.http.get(f"/v1/simulations/{self._id}/tasks/0/files", params={"path": path})
        return {entry["name"] for entry in answer.json()["entries"]} if answer.is_success else set()

    def read(self, path: str, offset: int = 0, wait: int = 0) -> bytes:
        query = {"path": path, "offset": offset, "wait": wait}
        answer = self._platform.http.get(f"/v1/simulations/{self._id}/tasks/0/files/content", params=query)
        assert answer.is_success, answer.text
        return answer.content

    def results(self) -> list[dict[str, Any]]:
        self._platform.wait_for_end(self._id, PATIENCE)
        return self._platform.results(self._id)


class PlatformPlace:
    """A platform with an executor."""

    def __init__(self, platform: PlatformProcess) -> None:
        self._platform = platform

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
        yield PlatformGang(self._platform, str(sent["id"]))


class PodsGang:
    """A simulation whose gang is pods, which are started again as the dispatcher does when they have ended."""

    def __init__(self, runner_api: RunnerApi, gang: GangPods) -> None:
        self._runner_api, self._gang = runner_api, gang

    def logs(self) -> str:
        return self._runner_api.logs()

    def ranks(self, word: str) -> list[int]:
        return self._gang.ranks(word)

    def names(self, path: str) -> set[str]:
        try:
            seen = self._runner_api.looks.list(SIMULATION, 0, path, by="a test")
        except (RunnerSilent, TaskNotAtWork, UnknownTaskFile):
            return set()
        return {entry.name for entry in seen.answer.entries}

    def read(self, path: str, offset: int = 0, wait: int = 0) -> bytes:
        options = {"offset": offset, "length": 1 << 19, "wait": wait}
        return self._runner_api.looks.read(SIMULATION, 0, path, by="a test", **options).data

    def results(self) -> list[dict[str, Any]]:
        self._runner_api.settle_until_exit(self._gang.runner, PATIENCE)
        assert self._gang.runner.returncode == 0, self._gang.output
        return self._runner_api.results()


class PodsPlace:
    """Pods as processes of this machine; each simulation has a runner API of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

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
        runner_api = RunnerApi(folder, total=tasks, play=play, model=program, described=model, gang=dict(gang), **files)
        try:
            declared = {} if environment is None else {"environment": "of the model"}
            declared |= {} if data is None else {"play": "of the dataset"}
            with pods(folder / "gang", runner_api, options, **declared) as started:
                yield PodsGang(runner_api, started)
        finally:
            runner_api.close()


def _bundle(folder: Path, data: Mapping[str, bytes]) -> bytes:
    """Return the files of a dataset as a runner downloads them."""
    for name, content in data.items():
        path = folder / FILES / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return b"".join(MeasuredTar(folder))


@contextlib.contextmanager
def place(kind: str, folder: Path) -> Iterator[GangPlace]:
    """Open a place of a kind: ``local``, ``slurm`` or ``pods``."""
    if kind == "pods":
        yield PodsPlace(folder)
        return
    with contextlib.ExitStack() as stack:
        settings = {"LOOK_INSIDE": "yes"}
        if kind == "slurm":
            slurm = stack.enter_context(slurm_alone(nodes=2))
            options = {"conf": str(slurm.conf), "gang_network": True}
            executor = {"name": "hpc", "kind": "slurm", "workers": 4, "options": options}
            (folder / "executors.json").write_text(json.dumps({"executors": [executor]}))
            settings |= {"EXECUTORS": str(folder / "executors.json")}
        platform = PlatformProcess(folder / "home", settings=settings).start()
        stack.callback(platform.stop)
        yield PlatformPlace(platform)


def waits(gang: StartedGang, text: str) -> None:
    """Wait until a gang has printed a text."""
    until(lambda: text in gang.logs(), PATIENCE)
