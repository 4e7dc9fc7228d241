"""The dataset flow_control by the platform: ranks beside the evaluator, which are lost and replaced."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.system.platform_process import PlatformProcess
from tests.waiting import until

#: The module of the ranks' program, as their command lines name it; and that of the process which starts them.
RANKS, LAUNCHER = b"harness.simulators.flow.flow_ranks", b"harness.gang.simulator_ranks"
MODEL = b"class Model:\n    def act(self, observation):\n        return [-0.2 * float(observation[1])]\n"
#: Seconds in which a flow develops on a busy machine, and some scenarios are played.
LONG = 300.0

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


@pytest.mark.parametrize(
    ("lost", "told"),
    [("a rank", b"simulator's ranks were lost: rank"), ("what starts them", b"simulator's ranks")],
)
def test_a_lost_rank_is_a_strike_and_the_task_is_run_again_with_the_same_result(
    start_platform: StartPlatform, lost: str, told: bytes
) -> None:
    platform = start_platform()
    fields: dict[str, Any] = {"dataset": "flow_control", "scenarios": {"range": [0, 2]}, "params": {"steps": 40}}
    undisturbed = platform.run(model=MODEL, wait_timeout=LONG, workers=1, **fields)
    assert undisturbed["state"] == "succeeded", undisturbed["reason"]
    id = platform.submit(model=MODEL, workers=1, **fields)["id"]
    killed = until(lambda: busy_rank(platform), LONG)
    os.kill(killed if lost == "a rank" else launcher_of(platform, killed), signal.SIGKILL)
    until(lambda: killed not in ranks(platform), LONG)
    ended = platform.wait_for_end(id, LONG)
    assert ended["state"] == "succeeded", ended["reason"]
    assert outcomes(platform, id) == outcomes(platform, undisturbed["id"])
    assert told in log(platform, id)


def launcher_of(platform: PlatformProcess, rank: int) -> int:
    """Return the process that the runner has started, of a rank."""
    parents = platform.processes_with_parents()
    above = [rank]
    while above[-1] in parents:
        above.append(parents[above[-1]])
    return [pid for pid in above if LAUNCHER in command(pid)][-1]


def log(platform: PlatformProcess, id: str) -> bytes:
    return platform.http.get(f"/v1/simulations/{id}/logs").content
