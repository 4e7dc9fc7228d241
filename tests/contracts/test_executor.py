"""Contract of executors: the in-memory executor, the local executor with a real agent, and the executor of Slurm."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

import pytest

from common.errors import NotPrepared, PlatformError, StoreUnavailable, Unsafe
from common.ids import digest_of
from core.domain.scheduling.launches import Launch, Phase
from core.domain.usage.granted_resources import WarmGrant
from datasets.catalogue import datasets
from datasets.nodecache.model_files import ModelFiles
from datasets.nodecache.node_cache import NodeCache
from datasets.objectstore.filesystem import FilesystemStore
from tests.fake_executor import FakeExecutor
from tests.slurm import Slurm, executor_on, prepared
from tests.slurm import shared_slurm as shared_slurm  # a fixture
from tests.slurm import slurm as slurm
from tests.system.platform_process import name_of, role_of
from tests.system.runner_api import LAUNCH, SIMULATION, TOKEN, RunnerApi
from tests.waiting import TIMEOUT, until
from workers.executors.base import Executor
from workers.executors.local import LocalExecutor

ROOT = Path(__file__).parents[2]
MODEL = (ROOT / "runtimes/harness/simulators/noop/baselines/zero.py").read_bytes()


class Bench:
    """An executor and a launch that it can run; ``finish`` ends the launch."""

    def __init__(self, executor: Executor, launch: Launch, finish: Callable[[], None]) -> None:
        self.executor, self.launch, self.finish = executor, launch, finish

    def phase(self) -> Phase | None:
        status = self.executor.observe([self.launch.id]).get(self.launch.id)
        return status and status.phase


def children_of(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []  # it has ended


class Agent:
    """A real node agent with its own home."""

    def __init__(self, home: Path, *, stderr: IO[bytes] | None = None, **settings: str) -> None:
        self.home = home
        self.stderr = stderr
        self.environ = {"WINDTUNNEL_HOME": str(home), "WINDTUNNEL_WORKERS": "2", **settings}
        (home / "run").mkdir(parents=True, exist_ok=True)
        if not (home / "environments").exists():
            (home / "environments").symlink_to(prepared())
        FilesystemStore(home / "objects").put("models/m", (MODEL,))
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "server", "agent"]
        self.process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **self.environ}, stderr=self.stderr)
        self.executor = LocalExecutor(self.home / "run/agent.sock")
        until(self.is_ready)

    def is_ready(self) -> bool:
        try:
            return self.executor.observe([]) == {}
        except OSError:
            return False

    def runners(self) -> list[int]:
        children = children_of(self.process.pid)
        servers = [pid for pid in children if name_of(pid) == "fork_server"]
        forked = [pid for server in servers if role_of(server) == "fork_server" for pid in children_of(server)]
        return [pid for pid in (*children, *forked) if role_of(pid) == "runner"]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(20)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    agent_process = Agent(tmp_path / "home")
    yield agent_process
    if agent_process.process.poll() is None:
        agent_process.end()


def test_a_second_agent_of_a_home_is_refused_and_the_first_goes_on(agent: Agent) -> None:
    command = [sys.executable, "-m", "server", "agent"]
    second = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **agent.environ}, capture_output=True, text=True, timeout=60
    )
    assert second.returncode == 2 and "Traceback" not in second.stderr, second.stderr
    assert f"A node agent of this home runs already (process {agent.process.pid})" in second.stderr
    assert agent.is_ready()
    agent.end(signal.SIGKILL)
    agent.start()


def launch_of(url: str, **changes: Any) -> Launch:
    launch = Launch(
        id=LAUNCH,
        simulation_id=SIMULATION,
        attempt=1,
        url=url,
        workers=2,
        runtime="python",
        format="python",
        dataset="noop",
        version=datasets()["noop"].version,
        model_digest=digest_of(MODEL),
        model_key="models/m",
        token=TOKEN,
    )
    return replace(launch, **changes)


@pytest.fixture
def runner_api(tmp_path: Path) -> Iterator[RunnerApi]:
    """A runner API with a hundred thousand tasks of a millisecond, so that a launch runs until it is cancelled."""
    definition = dict(datasets()["noop"].definition)
    play = {"definition": definition, "deadline": 5.0, "isolation": "launch", "params": {"sleep_ms": 1}}
    server = RunnerApi(tmp_path, total=100_000, play=play, model=MODEL)
    yield server
    server.close()


@pytest.fixture(params=["fake", "local", "slurm"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    if request.param == "fake":
        fake = FakeExecutor()
        return Bench(fake, launch_of("http://127.0.0.1:1"), lambda: fake.end(LAUNCH))
    runner_api = request.getfixturevalue("runner_api")
    if request.param == "slurm":
        slurm: Slurm = request.getfixturevalue("slurm")
        return Bench(executor_on(slurm, tmp_path, prepared()), launch_of(runner_api.url), runner_api.cancel)
    agent = request.getfixturevalue("agent")
    return Bench(agent.executor, launch_of(runner_api.url), runner_api.cancel)


def test_a_launch_is_observed_until_it_has_ended(bench: Bench) -> None:
    assert bench.phase() is None
    bench.executor.submit(bench.launch)
    until(lambda: bench.phase() is Phase.RUNNING)
    bench.finish()
    until(lambda: bench.phase() is Phase.ENDED)
    assert bench.executor.observe([bench.launch.id])[bench.launch.id].exit == 0


def test_submission_is_idempotent(bench: Bench) -> None:
    bench.executor.submit(bench.launch)
    bench.executor.submit(bench.launch)
    assert list(bench.executor.orphans([])) == [bench.launch.id]
    bench.finish()
    until(lambda: bench.phase() is Phase.ENDED)
    bench.executor.submit(bench.launch)
    assert bench.phase() is Phase.ENDED  # an id is never used again


def test_a_launch_that_was_never_submitted_is_not_observed(bench: Bench) -> None:
    bench.executor.submit(bench.launch)
    assert set(bench.executor.observe([bench.launch.id, "another"])) == {bench.launch.id}
    assert bench.executor.observe([]) == {}


def test_cancelling_removes_a_launch_and_is_idempotent(bench: Bench) -> None:
    bench.executor.submit(bench.launch)
    bench.executor.cancel(bench.launch.id)
    assert bench.phase() is None
    bench.executor.cancel(bench.launch.id)
    bench.executor.cancel("another")


def test_launches_unknown_to_the_platform_are_orphans(bench: Bench) -> None:
    bench.executor.submit(bench.launch)
    assert list(bench.executor.orphans([])) == [bench.launch.id]
    assert list(bench.executor.orphans([bench.launch.id])) == []
    bench.executor.cancel(bench.launch.id)
    assert list(bench.executor.orphans([])) == []


# -- the local executor only


def test_a_warm_runner_has_memory_and_no_cores_until_a_launch_takes_it(agent: Agent, runner_api: RunnerApi) -> None:
    def others(known: Collection[str]) -> list[WarmGrant]:
        return [grant for grant in agent.executor.warm_grants() if grant.id not in known]

    until(lambda: others(()))
    at_start = {grant.id for grant in others(())}
    agent.executor.submit(launch_of(runner_api.url))
    until(lambda: others(at_start), message="of the kind that was used, there is another soon")
    waiting = others(at_start)[0]
    assert waiting.project == "" and waiting.granted.millicores == 0
    assert 8 <= waiting.granted.mebibytes <= 500
    agent.executor.submit(launch_of(runner_api.url, id="another"))
    until(lambda: waiting not in others(at_start), message="it is taken")
    agent.end(signal.SIGKILL)
    agent.start()
    until(lambda: others(()))
    assert not {grant.id for grant in others(())} & {waiting.id, *at_start}, "another process, other ids"


def test_an_unreachable_agent_raises_oserror(tmp_path: Path) -> None:
    executor = LocalExecutor(tmp_path / "missing.sock")
    with pytest.raises(OSError):
        executor.observe(["x"])


def test_a_restarted_agent_observes_the_launches_of_a_killed_agent_as_ended(
    agent: Agent, runner_api: RunnerApi
) -> None:
    agent.executor.submit(launch_of(runner_api.url))
    until(lambda: "report" in runner_api.requests)
    runners = agent.runners()
    agent.end(signal.SIGKILL)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in runners))
    agent.start()
    status = agent.executor.observe([LAUNCH])[LAUNCH]
    assert status.phase is Phase.ENDED and status.reason == "the node agent that supervised it ended"


def test_a_killed_runner_is_observed_as_ended_with_its_reason(agent: Agent, runner_api: RunnerApi) -> None:
    agent.executor.submit(launch_of(runner_api.url))
    until(lambda: "report" in runner_api.requests)
    lock = agent.home / "launches" / LAUNCH / "lock"
    (holder,) = [pid for pid in agent.runners() if has_open(pid, lock)]
    os.kill(holder, signal.SIGKILL)
    until(lambda: agent.executor.observe([LAUNCH])[LAUNCH].phase is Phase.ENDED)
    assert "SIGKILL" in str(agent.executor.observe([LAUNCH])[LAUNCH].reason)


def has_open(pid: int, path: Path) -> bool:
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it is closed while they are read, or has no file
            if descriptor.samefile(path):
                return True
    return False


def test_a_stopped_agent_leaves_no_process(agent: Agent, runner_api: RunnerApi) -> None:
    agent.executor.submit(launch_of(runner_api.url))
    until(lambda: "report" in runner_api.requests)
    runners = agent.runners()
    assert agent.end() == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in runners)
    assert not (agent.home / "run/agent.sock").exists()


def test_an_agent_that_is_ended_while_a_client_is_connected_logs_no_error(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with open(log, "wb") as output:
        agent = Agent(tmp_path / "home", stderr=output)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(agent.home / "run/agent.sock"))
        client.sendall(b'{"verb": "running"}\n')
        assert client.recv(100)  # the connection is open, and waits for the next request
        assert agent.end() == 0
    assert "node agent is ready" in log.read_text() and "ERROR" not in log.read_text()


@pytest.fixture
def agent_with_one_warm_runner(tmp_path: Path) -> Iterator[Agent]:
    """An agent with one warm runner, of the kind of its last launch; none before, whichever environments are there."""
    run = tmp_path / "home/run"
    run.mkdir(parents=True)
    (run / "warm.json").write_text("[]")
    agent_process = Agent(tmp_path / "home", WINDTUNNEL_WARM_RUNNERS="1")
    yield agent_process
    if agent_process.process.poll() is None:
        agent_process.end()


def test_a_warm_runner_that_was_taken_is_replaced(agent_with_one_warm_runner: Agent, runner_api: RunnerApi) -> None:
    agent = agent_with_one_warm_runner
    agent.executor.submit(launch_of(runner_api.url))
    until(lambda: len(agent.runners()) == 2)  # the launch's runner, and a warm runner for the next launch of its kind
    agent.executor.cancel(LAUNCH)
    until(lambda: len(agent.runners()) == 1)
    (warm,) = agent.runners()
    agent.executor.submit(launch_of(runner_api.url))
    until(lambda: len(agent.runners()) == 2)
    assert warm in agent.runners()  # the warm runner got the launch


def test_a_launch_whose_environment_is_not_on_this_machine_is_refused(agent: Agent, runner_api: RunnerApi) -> None:
    with pytest.raises(NotPrepared, match="not on this machine"):
        agent.executor.submit(launch_of(runner_api.url, version="0"))
    assert agent.executor.observe([LAUNCH]) == {}


def test_a_model_with_another_digest_is_refused(agent: Agent, runner_api: RunnerApi) -> None:
    with pytest.raises(PlatformError, match="do not match"):
        agent.executor.submit(launch_of(runner_api.url, model_digest=digest_of(b"other")))


def test_only_the_agents_user_may_use_its_socket(agent: Agent) -> None:
    assert (agent.home / "run").stat().st_mode & 0o777 == 0o700


def test_a_launch_whose_model_does_not_arrive_in_time_is_refused_and_can_be_submitted_again(tmp_path: Path) -> None:
    import asyncio

    from workers.node_agent import Agent as NodeAgent
    from workers.warm_runner_pool import WarmRunnerOptions

    arrives = threading.Event()

    class StalledStore(FilesystemStore):
        def size(self, key: str) -> int:
            arrives.wait(TIMEOUT)
            return super().size(key)

    agent = NodeAgent(
        home=tmp_path,
        models=ModelFiles(NodeCache(tmp_path / "cache", StalledStore(tmp_path / "objects"))),
        cores=1,
        sandbox=None,
        refusal=None,
        warm=WarmRunnerOptions(),
        fetch_timeout=0.01,
    )
    launch = asdict(launch_of("http://127.0.0.1:1"))

    async def submit() -> None:
        with pytest.raises(StoreUnavailable, match="has not arrived"):
            await agent.submit(launch)
        assert await agent.observe([launch["id"]]) == {}, "the launch is not known, so that it can be submitted again"
        arrives.set()

    asyncio.run(submit())


def test_a_launch_on_a_machine_with_a_too_weak_sandbox_is_refused(tmp_path: Path) -> None:
    import asyncio

    from workers.node_agent import Agent as NodeAgent
    from workers.warm_runner_pool import WarmRunnerOptions

    agent = NodeAgent(
        home=tmp_path,
        models=ModelFiles(NodeCache(tmp_path / "cache", FilesystemStore(tmp_path / "objects"))),
        cores=1,
        sandbox=1,
        refusal="This machine lacks Landlock.",
        warm=WarmRunnerOptions(),
    )
    with pytest.raises(Unsafe, match="Landlock"):
        asyncio.run(agent.submit({"id": "x"}))
