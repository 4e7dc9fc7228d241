"""A gang of MPI with a real MPICH: without ssh, several tasks in a row; a rank that dies costs only its task."""

import os
import secrets
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtimes.harness.gang.gang_transport import GangConnection
from tests import processes
from tests.cached import tool
from tests.ports import free_ports
from tests.unit.launch_samples import gang
from workers.executors.kubernetes import gangs
from workers.executors.kubernetes.gangs import ReplicaPosition

ROOT = Path(__file__).parents[2]
PATIENCE = 60
SUM = """
import json, os, sys
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank)
task = json.load(open(os.environ["WINDTUNNEL_SCENARIO"]))["index"]
if task == 1 and world.rank == 1:
    os.kill(os.getpid(), 9)
if task == 2 and world.rank == 3:
    raise ValueError("on purpose")
world.Barrier()
if world.rank == 0:
    json.dump({"sum": total, "size": world.size, "task": task}, open(os.environ["WINDTUNNEL_RESULT"], "w"))
"""
#: As a container runs it, but in a folder of its own.
BOOT = """
import pathlib, signal, sys
from runtimes.harness.gang import replica as gang
signal.signal(signal.SIGTERM, gang.stop)
sys.exit(gang.main(sys.argv[2:], pathlib.Path(sys.argv[1])))
"""


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[GangConnection]:
    """Runner of a gang of two replicas with two ranks each."""
    python = tool("mpich")
    program = tmp_path / "program.py"
    program.write_text(SUM)
    launch = gang(2, "mpi", slots=2, command=("python", "-m", "mpi4py", program.name))
    orders, control = free_ports(2)
    # Pods have names of their own; here two names of this machine stand for them.
    here = {name: place for name, place in zip(gangs.hosts(launch), ("localhost", "127.0.0.1"), strict=True)}
    here |= {gangs.leader(launch): "localhost", str(gangs.MPI): str(control), str(gangs.ORDERS): str(orders)}
    here[gangs.MODEL] = str(tmp_path)

    def moved(word: str) -> str:
        for name, place in here.items():
            word = word.replace(name, place)
        return word

    told = {"PATH": f"{Path(python).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    told["WINDTUNNEL_GANG_KEY"] = secrets.token_hex()
    path = tmp_path / "gang.sock"
    commands = {"leader": ["--tasks", str(path), "lead", *gangs.mpiexec(launch)]}
    places = {"leader": ReplicaPosition(), "0": ReplicaPosition(), "1": ReplicaPosition(index="1")}
    commands |= {index: ["follow", *gangs.proxy(launch, ReplicaPosition(index=index))] for index in ("0", "1")}
    running = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)
        listener.settimeout(PATIENCE)
        for name, command in commands.items():
            environ = {key: moved(value) for key, value in gangs.environment(launch, places[name]).items()}
            own = {"WINDTUNNEL_GANG_SLICE": "0", "WINDTUNNEL_GANG_INDEX": places[name].index}
            arguments = [python, "-c", BOOT, str(tmp_path / name), *map(moved, command)]
            running.append(subprocess.Popen(arguments, env=told | environ | own, stdin=subprocess.DEVNULL))
        try:
            line = GangConnection(listener.accept()[0])
            line.connection.settimeout(PATIENCE)
            assert line.receive() == [{"ready": True}]
            yield line
            line.connection.close()
            assert [one.wait(PATIENCE) for one in running] == [0, 0, 0]
            # Ranks have sessions of their own, and those of a task that failed may spin on.
            assert processes.started_with("WINDTUNNEL_GANG_LEADER", f"localhost:{orders}") == []
        finally:
            for one in running:
                one.kill()
                one.wait()
            processes.kill_started_with("WINDTUNNEL_GANG_LEADER", f"localhost:{orders}")


def test_a_killed_rank_of_mpi_costs_only_its_task(runner: GangConnection) -> None:
    said = []
    for task in range(5):
        runner.send(scenario={"index": task}, patience=PATIENCE / 2)
        said += runner.receive()
    assert [one["exit"] == 0 for one in said] == [True, False, False, True, True], said
    assert [one["result"] for one in said[3:]] == [f'{{"sum": 6, "size": 4, "task": {task}}}' for task in (3, 4)]
