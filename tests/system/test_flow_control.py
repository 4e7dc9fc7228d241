"""The dataset flow_control by the platform: ranks beside the evaluator, which are lost and replaced."""

import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.system.gang_places import wait
from tests.system.platform_process import FINAL, PlatformProcess, lives
from tests.waiting import until

#: The module of the ranks' program, as their command lines name it; and that of the process which starts them.
RANKS, LAUNCHER = b"harness.simulators.flow.flow_ranks", b"harness.gang.simulator_ranks"
MODEL = b"class Model:\n    def act(self, observation):\n        return [-0.2 * float(observation[1])]\n"
#: Seconds in which a flow develops on a busy machine, and some scenarios are played.
LONG = 300.0
#: Simulations until a process of the ranks is killed.
TRIES = 3

StartPlatform = Callable[..., PlatformProcess]


def processes(platform: PlatformProcess, part: bytes) -> list[int]:
    """Return the descendants of a platform whose command line contains a part, in the order of their numbers."""
    return sorted(pid for pid in platform.processes() if part in command(pid))


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def ranks(platform: PlatformProcess) -> list[int]:
    """Return the processes of the program of ranks, without those that start and watch them."""
    return [pid for pid in processes(platform, RANKS) if command(pid).split(b"\0")[1:3] == [b"-m", RANKS]]


def busy_rank(platform: PlatformProcess) -> int:
    """Return a rank that has computed for a second, as only those of a worker with tasks have; 0 if there is none."""
    for pid in ranks(platform):
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            if int(fields[11]) > os.sysconf("SC_CLK_TCK"):
                return pid
    return 0


def outcomes(platform: PlatformProcess, id: str) -> list[tuple[Any, ...]]:
    return [(result["status"], result["metrics"]) for result in platform.results(id)]


def test_a_controlled_flow_is_computed_by_ranks_of_the_worker(start_platform: StartPlatform) -> None:
    platform = start_platform()
    simulation = platform.submit(
        model=MODEL, dataset="flow_control", scenarios={"range": [0, 2]}, params={"steps": 4}, workers=1
    )
    until(lambda: busy_rank(platform), LONG)
    rank = busy_rank(platform)
    opened = {os.readlink(link) for link in descriptors(rank)}
    assert not any(str(platform.home) in path for path in opened), opened
    ended = platform.wait_for_end(simulation["id"], LONG)
    assert ended["state"] == "succeeded", ended["reason"]
    results = outcomes(platform, simulation["id"])
    assert [status for status, _ in results] == ["ok", "ok"], results
    assert all(3.0 < metrics["drag"] < 3.8 and metrics["length"] == 4 for _, metrics in results), results
    assert results[0] != results[1]
    until(lambda: not Path(f"/proc/{rank}").exists(), LONG)


def descriptors(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/fd").iterdir())


#: The processes of a worker's ranks, by what their command lines contain.
KINDS: Mapping[str, bytes] = {
    "what starts them": LAUNCHER,
    "launcher": b"mpiexec",
    "proxy": b"hydra_pmi_proxy",
    "watcher": b"/gang/rank.py",
    "rank": b"-m\0" + RANKS,
}
FIELDS: Mapping[str, Any] = {"dataset": "flow_control", "scenarios": {"range": [0, 5]}, "params": {"steps": 10}}


@pytest.fixture(scope="module")
def own_platform(
    prepared_environments: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[PlatformProcess, list[Any]]]:
    """A platform whose ranks tests kill, with the outcomes of a simulation whose ranks were not."""
    platform = PlatformProcess(tmp_path_factory.mktemp("flows"), settings={"LEASE_TTL": "3"}).start()
    try:
        undisturbed = platform.run(model=MODEL, wait_timeout=LONG, workers=1, **FIELDS)
        assert undisturbed["state"] == "succeeded", undisturbed["reason"]
        yield platform, outcomes(platform, undisturbed["id"])
    finally:
        platform.stop()


def kill_one(platform: PlatformProcess, id: str, rng: random.Random) -> str:
    """Kill a process of the ranks that compute, of a kind that is drawn; return its kind, "none" at the end."""

    def killed() -> str:
        rank = busy_rank(platform)
        if not rank:
            return "none" if platform.get(id)["state"] in FINAL else ""
        parents = platform.processes_with_parents()
        top = launcher_of(platform, rank)
        below = [pid for pid in parents if top in ancestors(parents, pid)]
        kind = rng.choice(list(KINDS))
        found = [pid for pid in below if KINDS[kind] in command(pid)]
        return kind if found and platform.kill_process(rng.choice(found)) else ""

    return until(killed, LONG)


def ancestors(parents: Mapping[int, int], pid: int) -> list[int]:
    """Return a process and those that it descends from."""
    found = [pid]
    while found[-1] in parents:
        found.append(parents[found[-1]])
    return found


@pytest.mark.parametrize("done", range(3))
@pytest.mark.parametrize("seed", range(5))
def test_a_lost_rank_is_a_strike_and_the_task_is_run_again_with_the_same_result(
    own_platform: tuple[PlatformProcess, list[Any]], done: int, seed: int
) -> None:
    """While the first flow develops, and in the scenarios after it."""
    platform, undisturbed = own_platform
    rng = random.Random(f"{done} {seed}")
    for _ in range(TRIES):  # on a busy machine a simulation may have ended before
        id = platform.submit(model=MODEL, workers=1, **FIELDS)["id"]
        until(lambda id=id: platform.get(id)["tasks"]["done"] >= done, LONG, every=0.005)
        wait(rng.uniform(0.0, 0.5))
        kind = kill_one(platform, id, rng)
        ended = platform.wait_for_end(id, LONG)
        assert ended["state"] == "succeeded", (kind, ended["reason"])
        assert outcomes(platform, id) == undisturbed, kind
        if kind != "none":
            return
    raise AssertionError("no process was killed")


def test_without_a_sandbox_ranks_end_with_their_evaluator_and_leave_nothing(
    start_platform: StartPlatform,
) -> None:
    platform = start_platform(sandbox="none", lease_ttl=3)
    id = platform.submit(model=MODEL, workers=1, **FIELDS)["id"]
    rank = until(lambda: busy_rank(platform), LONG)
    folder = Path(os.readlink(f"/proc/{rank}/cwd"))
    below = [pid for pid in platform.processes_with_parents() if KINDS["watcher"] in command(pid)]
    started = {pid: at for pid, at in platform.processes().items() if pid in (rank, *below)}
    platform.kill("evaluator", random.Random(0))
    ended = platform.wait_for_end(id, LONG)
    assert ended["state"] == "succeeded", ended["reason"]
    platform.stop()
    until(lambda: not [pid for pid, at in started.items() if lives(pid, at)])
    until(lambda: not folder.exists())


def launcher_of(platform: PlatformProcess, rank: int) -> int:
    """Return the process that the runner has started, of a rank."""
    above = ancestors(platform.processes_with_parents(), rank)
    return [pid for pid in above if LAUNCHER in command(pid)][-1]
