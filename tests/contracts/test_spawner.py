"""Contract of spawners: child processes, processes in sibling containers, and processes that are forked."""

import os
import selectors
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runtimes.harness.runner.fork_spawner import ForkSpawner
from runtimes.harness.runner.processes import (
    LocalSpawner,
    ModelServerProcess,
    Process,
    Spawner,
    WorkerSpec,
    spawn_model_server,
)
from runtimes.harness.runner.remote_spawner import RemoteSpawner
from tests.contracts.harness_processes import SITE, worker_spec
from tests.waiting import until
from workers.fork_servers import ForkServer, Libraries

ROOT = Path(__file__).parents[2]


class SpawnerRig:
    """A spawner, its selector, and the peers that it has reported as ended.

    ``peer``: the noun for what starts the processes, and ``end_peer`` ends it; None: the runner starts them.
    """

    def __init__(self, spawner: Spawner, peer: str = "", end_peer: Callable[[], None] | None = None) -> None:
        self.spawner, self.peer, self.end_peer = spawner, peer, end_peer
        self.reported: list[str] = []
        self.selector = selectors.DefaultSelector()
        spawner.register(self.selector, self.reported.append)

    def until(self, condition: Callable[[], bool]) -> None:
        """Serve the selector, as a runner does, until the condition holds."""

        def served() -> bool:
            if condition():
                return True
            for key, _ in self.selector.select(0.1) if self.selector.get_map() else ():
                key.data()
            return False

        until(served, every=0.0)


@pytest.fixture(params=["local", "remote", "forked"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SpawnerRig]:
    if request.param == "local":
        yield SpawnerRig(LocalSpawner(worker_spec()))
        return
    if request.param == "forked":
        libraries = Libraries(module="model_server", name="python", site=SITE)
        fork_server = ForkServer(libraries, None, tmp_path / "fork_server.log")
        fork_server.socket.settimeout(30.0)
        assert fork_server.read() and fork_server.ready
        with fork_server.connect("runner-1") as connection:
            yield SpawnerRig(ForkSpawner(worker_spec(), {"model_server": connection}), "fork server", fork_server.end)
        fork_server.end()
        return
    spawner = RemoteSpawner.open(tmp_path)
    spawner.expect({os.geteuid(): "model_server"}, worker_spec())
    init = [sys.executable, "-m", "runtimes.harness.runner.container_init"]
    command = [
        *init,
        "model_server",
        "--sockets",
        str(tmp_path),
        "--site",
        SITE,
    ]
    container_init = subprocess.Popen(command, cwd=ROOT)
    rig = SpawnerRig(spawner, "container", container_init.kill)
    try:
        yield rig
    finally:
        spawner.close()
        container_init.kill()
        container_init.wait()


def start_model_server(rig: SpawnerRig, spec: WorkerSpec) -> ModelServerProcess:
    rig.until(lambda: rig.spawner.ready("model_server"))
    return spawn_model_server(spec, "model-server-0", rig.spawner)


def wait_for_end(process: Process) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(process.end, selectors.EVENT_READ)
        return bool(selector.select(30.0))


def read_output(process: Process) -> str:
    os.set_blocking(process.output, True)
    data = b""
    while piece := os.read(process.output, 1 << 16):
        data += piece
    return data.decode()


def test_the_exit_code_and_the_output_of_a_process_are_reported(rig: SpawnerRig) -> None:
    model_server = start_model_server(rig, worker_spec(format="no format"))
    output = read_output(model_server.process)
    assert wait_for_end(model_server.process)
    assert model_server.process.reap() == "it exited with code 1"
    assert "unknown model format" in output
    model_server.dismiss()
    assert rig.reported == []


def test_a_process_serves_its_socket_and_ends_when_the_socket_is_closed(rig: SpawnerRig) -> None:
    model_server = start_model_server(rig, worker_spec())
    model_server.socket.settimeout(30.0)
    assert b"hello" in model_server.socket.recv(1 << 10)
    model_server.socket.shutdown(socket.SHUT_RDWR)
    assert wait_for_end(model_server.process)
    assert model_server.process.reap() == "it exited with code 0"
    model_server.dismiss()


def test_a_process_that_the_platform_kills_has_the_first_reason_and_kill_is_idempotent(rig: SpawnerRig) -> None:
    model_server = start_model_server(rig, worker_spec())
    model_server.process.kill("it did not answer")
    model_server.process.kill("the runner is stopping")
    assert wait_for_end(model_server.process)
    assert model_server.process.reap() == "killed by the platform: it did not answer"
    assert model_server.process.wait(0.0) == model_server.process.how
    model_server.dismiss()


def test_a_process_that_ended_by_itself_keeps_its_end_when_it_is_dismissed(rig: SpawnerRig) -> None:
    model_server = start_model_server(rig, worker_spec(format="no format"))
    read_output(model_server.process)
    assert wait_for_end(model_server.process)
    model_server.process.kill("it is dismissed")
    assert model_server.process.reap() == "it exited with code 1"
    model_server.dismiss()


def test_the_death_of_what_starts_processes_is_reported_once_before_their_end(rig: SpawnerRig) -> None:
    model_server = start_model_server(rig, worker_spec())
    if rig.end_peer is None:
        model_server.process.kill("it is dismissed")
        model_server.process.reap()
        model_server.dismiss()
        return  # the runner itself starts local processes
    rig.end_peer()
    assert wait_for_end(model_server.process)
    model_server.process.kill("it is dismissed")  # as a worker that waits for the process does before it is reaped
    assert model_server.process.reap() == f"its {rig.peer} ended"
    assert rig.reported == [f"the model_server {rig.peer} ended"]
    model_server.dismiss()


def test_a_container_init_starts_only_its_own_module(rig: SpawnerRig) -> None:
    if rig.peer != "container":
        assert rig.spawner.ready("evaluator")  # the runner itself starts processes of every module
    else:
        rig.until(lambda: rig.spawner.ready("model_server"))
        assert not rig.spawner.ready("evaluator")


def test_the_processor_times_of_a_process_are_told_while_it_lives(rig: SpawnerRig) -> None:
    model_server = start_model_server(rig, worker_spec())
    model_server.socket.settimeout(30.0)
    assert model_server.socket.recv(1 << 10)
    times: dict[str, Any] = {}

    def told() -> bool:
        times.update(model_server.process.times() or {})
        return bool(times)

    rig.until(told)
    assert sum(cpu for cpu, _ in times["threads"].values()) > 0.0
    model_server.process.kill("it is dismissed")
    assert wait_for_end(model_server.process)
    model_server.process.reap()
    model_server.dismiss()
