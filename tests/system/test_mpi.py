"""An MPI gang with a real MPICH, without ssh: it runs several tasks; a rank that dies fails only its task."""

import os
import secrets
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.domain.scheduling.communications import mpi
from core.domain.scheduling.communications.members import MODEL, ORDERS, ReplicaPosition
from runtimes.harness.gang.gang_transport import GangConnection
from tests import processes
from tests.cached import tool
from tests.ports import free_ports
from tests.unit.launch_samples import gang
from workers.executors.kubernetes.gang_pods import members_of

ROOT = Path(__file__).parents[2]
TIMEOUT = 60
SUM = """
import json, os, sys
from mpi4py import MPI
communicator = MPI.COMM_WORLD
total = communicator.allreduce(communicator.rank)
task = json.load(open(os.environ["WINDTUNNEL_SCENARIO"]))["index"]
if task == 1 and communicator.rank == 1:
    os.kill(os.getpid(), 9)
if task == 2 and communicator.rank == 3:
    raise ValueError("on purpose")
communicator.Barrier()
if communicator.rank == 0:
    json.dump({"sum": total, "size": communicator.size, "task": task}, open(os.environ["WINDTUNNEL_RESULT"], "w"))
"""
#: The command of a container, with its own folder in place of /tmp.
REPLICA_COMMAND = """
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
    members = members_of(gang(2, "mpi", slots=2, command=("python", "-m", "mpi4py", program.name)))
    orders_port, control_port = free_ports(2)
    # Two names of this machine stand in for the names of pods.
    substitutions = {name: address for name, address in zip(members.hosts(), ("localhost", "127.0.0.1"), strict=True)}
    substitutions |= {
        members.leader: "localhost",
        str(mpi.PORT): str(control_port),
        str(ORDERS): str(orders_port),
    }
    substitutions[MODEL] = str(tmp_path)

    def localize(text: str) -> str:
        for name, address in substitutions.items():
            text = text.replace(name, address)
        return text

    environment = {"PATH": f"{Path(python).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    environment["WINDTUNNEL_GANG_KEY"] = secrets.token_hex()
    path = tmp_path / "gang.sock"
    commands = {"leader": ["--tasks", str(path), "lead", *mpi.COMMUNICATION.lead(members), *members.gang.command]}
    positions = {"leader": ReplicaPosition(), "0": ReplicaPosition(), "1": ReplicaPosition(index="1")}
    commands |= {
        index: ["follow", *mpi.COMMUNICATION.follow(members, ReplicaPosition(index=index))] for index in ("0", "1")
    }
    running = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)
        listener.settimeout(TIMEOUT)
        for name, command in commands.items():
            replica_environment = {key: localize(value) for key, value in members.environment(positions[name]).items()}
            position = {"WINDTUNNEL_GANG_SLICE": "0", "WINDTUNNEL_GANG_INDEX": positions[name].index}
            arguments = [python, "-c", REPLICA_COMMAND, str(tmp_path / name), *map(localize, command)]
            running.append(
                subprocess.Popen(arguments, env=environment | replica_environment | position, stdin=subprocess.DEVNULL)
            )
        try:
            connection = GangConnection(listener.accept()[0])
            connection.connection.settimeout(TIMEOUT)
            assert connection.receive() == [{"ready": True}]
            yield connection
            connection.connection.close()
            assert [process.wait(TIMEOUT) for process in running] == [0, 0, 0]
            # Each rank has its own session, and the ranks of a failed task may continue to run.
            assert processes.started_with("WINDTUNNEL_GANG_LEADER", f"localhost:{orders_port}") == []
        finally:
            for process in running:
                process.kill()
                process.wait()
            processes.kill_started_with("WINDTUNNEL_GANG_LEADER", f"localhost:{orders_port}")


def test_a_killed_rank_of_mpi_costs_only_its_task(runner: GangConnection) -> None:
    results = []
    for task in range(5):
        runner.send(scenario={"index": task}, patience=TIMEOUT / 2)
        results += runner.receive()
    assert [result["exit"] == 0 for result in results] == [True, False, False, True, True], results
    assert [result["result"] for result in results[3:]] == [
        f'{{"sum": 6, "size": 4, "task": {task}}}' for task in (3, 4)
    ]
