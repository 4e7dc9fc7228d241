"""Spawners of evaluators and model servers, held to one contract: as child processes, and in sibling containers."""

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


class Place:
    """A spawner, what it waits for, and what it has lost."""

    def __init__(self, spawner: Spawner, post: "subprocess.Popen[bytes] | None" = None) -> None:
        self.spawner, self.post = spawner, post
        self.lost: list[str] = []
        self.selector = selectors.DefaultSelector()
        spawner.register(self.selector, self.lost.append)

    def until(self, condition: Callable[[], bool]) -> None:
        """Serve the selector as a runner does."""

        def served() -> bool:
            if condition():
                return True
            for key, _ in self.selector.select(0.1) if self.selector.get_map() else ():
                key.data()
            return False

        until(served, every=0.0)


@pytest.fixture(params=["here", "posts"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "here":
        yield Place(LocalSpawner(worker_spec()))
        return
    posts = RemoteSpawner.open(tmp_path)
    posts.expect({os.geteuid(): "model_server"}, worker_spec())
    init = [sys.executable, "-m", "runtimes.harness.runner.container_init"]
    command = [
        *init,
        "model_server",
        "--posts",
        str(tmp_path),
        "--site",
        SITE,
    ]
    post = subprocess.Popen(command, cwd=ROOT)
    made = Place(posts, post)
    try:
        yield made
    finally:
        posts.close()
        post.kill()
        post.wait()


def model_server(place: Place, given: WorkerSpec) -> ModelServerProcess:
    place.until(lambda: place.spawner.ready("model_server"))
    return spawn_model_server(given, "model-server-0", place.spawner)


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


def test_how_it_ended_and_what_it_said_is_known(place: Place) -> None:
    one = model_server(place, worker_spec(format="no format"))
    said = output(one.process)
    assert ended(one.process)
    assert one.process.reap() == "it exited with code 1"
    assert "unknown model format" in said
    one.dismiss()
    assert place.lost == []


def test_it_speaks_on_the_socket_it_was_given_and_ends_when_that_closes(place: Place) -> None:
    one = model_server(place, worker_spec())
    one.socket.settimeout(30.0)
    assert b"hello" in one.socket.recv(1 << 10)
    one.socket.shutdown(socket.SHUT_RDWR)
    assert ended(one.process)
    assert one.process.reap() == "it exited with code 0"
    one.dismiss()


def test_what_is_killed_is_told_to_be_killed_and_killing_it_twice_is_harmless(place: Place) -> None:
    one = model_server(place, worker_spec())
    one.process.kill()
    one.process.kill()
    assert ended(one.process)
    assert one.process.reap().startswith("killed by SIGKILL")
    assert one.process.wait(0.0) == one.process.how
    one.dismiss()


def test_a_post_that_dies_is_told_once_for_all_before_its_processes_are(place: Place) -> None:
    one = model_server(place, worker_spec())
    if place.post is None:
        one.process.kill()
        one.process.reap()
        one.dismiss()
        return  # here there is nobody in between
    place.post.kill()
    assert ended(one.process)
    one.process.kill()  # as who waits for it may do before it is reaped
    assert one.process.reap() == "its container ended"
    assert place.lost == ["the model_server container ended"]
    one.dismiss()


def test_a_post_starts_nothing_but_its_own_module(place: Place) -> None:
    if place.post is None:
        assert place.spawner.ready("evaluator")  # here all are
    else:
        place.until(lambda: place.spawner.ready("model_server"))
        assert not place.spawner.ready("evaluator")
