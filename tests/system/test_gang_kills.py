"""Any process of a gang is killed at any moment; its results are those of a gang that is not, and nothing is left."""

import random
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.archives import zipped
from tests.system.gang_kills import MOMENTS, GangSight, reach
from tests.system.gang_places import GangPlace, place
from tests.waiting import until

#: Seconds of a lease, so that the tasks of a killed runner are leased again soon; of an outage; until nothing is left.
LEASE, OUTAGE, ENDING = 3.0, 60.0, 60.0
#: Tasks of a simulation; runs until a process is killed at a moment.
TASKS, TRIES = 2, 3

# It says by its name what it does. It leaves files, a process of its own, and shared memory behind.
PROGRAM = b"""
import ctypes, json, os, pathlib, subprocess, sys, time
from mpi4py import MPI
world, mark = MPI.COMM_WORLD, sys.argv[1]
task = json.load(open(os.environ["WINDTUNNEL_SCENARIO"]))
built = json.load(open("built.json"))["built"]
def tell(doing):
    ctypes.CDLL(None).prctl(15, doing.encode())
for folder in ("/tmp", "/dev/shm"):
    pathlib.Path(folder, f"left-{mark}-{world.rank}").write_text("x")
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", mark + "-left"], start_new_session=True)
restored = pathlib.Path(os.environ.get("WINDTUNNEL_RESTORE", "none"), str(world.rank))
step, total = 0, task["index"]
for saved in restored.glob("*/state"):
    step, total = json.loads(saved.read_text())
folder = pathlib.Path(os.environ["WINDTUNNEL_CHECKPOINT"])
while step < 6:
    tell("computes")
    step, total = step + 1, total + world.allreduce((world.rank + built) * (step + 1))
    time.sleep(0.1)
    if step % 2 == 0:
        tell("saves")
        (folder / ".new").mkdir()
        (folder / ".new" / "field").write_bytes(os.urandom(2 << 20))
        (folder / ".new" / "state").write_text(json.dumps([step, total]))
        time.sleep(0.2)
        (folder / ".new").rename(folder / str(step))
        world.barrier()
tell("outputs")
pathlib.Path(os.environ["WINDTUNNEL_OUTPUT"], f"{world.rank}.field").write_bytes(bytes([total % 251]) * (5 << 20))
time.sleep(0.5)
if world.rank == 0:
    print(json.dumps({"total": total}))
"""
BUILD = b"import json, time; time.sleep(1.0); json.dump({'built': 7}, open('built.json', 'w'))\n"

#: What a task has as its result, and of its files.
Outcome = tuple[Any, ...]


@pytest.fixture(scope="module", params=["local", "pods", "slurm"])
def gangs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GangPlace]:
    with place(request.param, tmp_path_factory.mktemp(request.param), LEASE) as opened:
        yield opened


def play(gangs: GangPlace, disturb: Callable[[GangSight], object]) -> tuple[list[Outcome], list[str]]:
    """Run the program, and disturb it; return its outcomes, and what is left of it."""
    mark = f"marked-{secrets.token_hex(4)}"
    options = {"size": 2, "communication": "mpi", "build": ["python", "build.py", mark]}
    options["command"] = ["python", "-m", "mpi4py", "model.py", mark]
    # The mark is in the sources, so that each run compiles them.
    program = zipped({"model.py": PROGRAM, "build.py": BUILD, "mark": mark.encode()})
    with gangs.start(program, options, tasks=TASKS) as gang:
        sight = GangSight(gang, mark)
        disturb(sight)
        results = gang.results()
        left: list[str] = []

        def nothing_is_left() -> bool:
            left[:] = sight.left()
            return not left

        try:
            until(nothing_is_left, ENDING, every=0.5)
        except AssertionError:
            assert left
    return [outcome(result) for result in results], left


def outcome(result: dict[str, Any]) -> Outcome:
    files = [(file["name"], file["bytes"], file["digest"]) for file in result["artifacts"]]
    return result["task"], result["status"], result["metrics"], result.get("error"), files


@pytest.fixture(scope="module")
def undisturbed(gangs: GangPlace) -> list[Outcome]:
    outcomes, left = play(gangs, GangSight.look)
    assert [status for _, status, *_ in outcomes] == ["ok"] * TASKS, outcomes
    assert left == []
    return outcomes


def disturbed(gangs: GangPlace, undisturbed: list[Outcome], moment: str, seed: int) -> None:
    rng = random.Random(f"{moment} {seed}")
    killed: list[str] = []

    def disturb(sight: GangSight) -> None:
        if reach(sight, moment, rng):
            killed.append(sight.kill(rng))

    for _ in range(TRIES):  # on a busy machine a short moment may be over before it is seen
        outcomes, left = play(gangs, disturb)
        print(f"killed {moment}: {killed}")
        assert outcomes == undisturbed, (killed, outcomes)
        assert left == [], killed
        if killed:
            return
    raise AssertionError(f"no process was killed {moment}")


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("seed", range(5))
def test_a_process_that_is_killed_changes_no_result_and_nothing_is_left(
    gangs: GangPlace, undisturbed: list[Outcome], moment: str, seed: int
) -> None:
    disturbed(gangs, undisturbed, moment, seed)


def test_an_outage_of_the_server_changes_no_result_and_nothing_is_left(
    gangs: GangPlace, undisturbed: list[Outcome]
) -> None:
    def fail(sight: GangSight) -> None:
        reach(sight, "uploaded", random.Random(0))
        sight.gang.fail_server(OUTAGE)

    outcomes, left = play(gangs, fail)
    assert outcomes == undisturbed
    assert left == []
