"""The spawner's contract, for child processes and for sibling containers."""

import os
import selectors
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

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

ROOT = Path(__file__).parents[2]


class SpawnerRig:
    """A spawner, its selector and the losses that it has reported."""

    def __init__(self, spawner: Spawner, post: "subprocess.Popen[bytes] | None" = None) -> None:
        self.spawner, self.post = spawner, post
        self.lost: list[str] = []
        self.selector = selectors.DefaultSelector()
        spawner.register(self.selector, self.lost.append)

    def until(self, condition: Callable[[], bool]) -> None:
        """Serve the selector, as a runner does, until the condition holds."""

        def served() -> bool:
            if condition():
                return True
            for key, _ in self.selector.select(0.1) if self.selector.get_map() else ():
                key.data()
            return False

        until(served, every=0.0)


@pytest.fixture(params=["here", "remote"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SpawnerRig]:
    if request.param == "here":
        yield SpawnerRig(LocalSpawner(worker_spec()))
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
    made = SpawnerRig(spawner, container_init)
    try:
        yield made
    finally:
        spawner.close()
        container_init.kill()
        container_init.wait()


def model_server(rig: SpawnerRig, given: WorkerSpec) -> ModelServerProcess:
    rig.until(lambda: rig.spawner.ready("model_server"))
    return spawn_model_server(given, "model-server-0", rig.spawner)


def ended(process: Process) -> bool:
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.end, selectors.EVENT_READ)
        return bool(waiting.select(30.0))


def output(process: Process) -> str:
    os.set_blocking(process.output, True)
    said = b""
    while piece := os.read(process.output, 1 << 16):
        said += piece
    return said.decode()


def test_the_end_and_the_output_of_a_process_are_known(rig: SpawnerRig) -> None:
    one = model_server(rig, worker_spec(format="no format"))
    said = output(one.process)
    assert ended(one.process)
    assert one.process.reap() == "it exited with code 1"
    assert "unknown model format" in said
    one.dismiss()
    assert rig.lost == []


def test_a_process_uses_the_given_socket_and_ends_when_it_closes(rig: SpawnerRig) -> None:
    one = model_server(rig, worker_spec())
    one.socket.settimeout(30.0)
    assert b"hello" in one.socket.recv(1 << 10)
    one.socket.shutdown(socket.SHUT_RDWR)
    assert ended(one.process)
    assert one.process.reap() == "it exited with code 0"
    one.dismiss()


def test_a_killed_process_is_reported_as_killed_and_kill_is_idempotent(rig: SpawnerRig) -> None:
    one = model_server(rig, worker_spec())
    one.process.kill()
    one.process.kill()
    assert ended(one.process)
    assert one.process.reap().startswith("killed by SIGKILL")
    assert one.process.wait(0.0) == one.process.how
    one.dismiss()


def test_the_death_of_a_container_init_is_reported_once_before_that_of_its_processes(rig: SpawnerRig) -> None:
    one = model_server(rig, worker_spec())
    if rig.post is None:
        one.process.kill()
        one.process.reap()
        one.dismiss()
        return  # here there is nobody in between
    rig.post.kill()
    assert ended(one.process)
    one.process.kill()  # as who waits for it may do before it is reaped
    assert one.process.reap() == "its container ended"
    assert rig.lost == ["the model_server container ended"]
    one.dismiss()


def test_a_container_init_starts_only_its_own_module(rig: SpawnerRig) -> None:
    if rig.post is None:
        assert rig.spawner.ready("evaluator")  # here all are
    else:
        rig.until(lambda: rig.spawner.ready("model_server"))
        assert not rig.spawner.ready("evaluator")
