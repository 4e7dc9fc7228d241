"""OpenEnv environments beside an evaluator: real processes, confined and not, over both transports."""

import json
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtimes.harness.evaluator.evaluator import BROKEN
from runtimes.harness.runner import framed_socket
from runtimes.harness.runner.processes import ChildProcess, WorkerSpec
from runtimes.harness.sandbox import level
from tests.contracts.harness_processes import EvaluatorPair, evaluator_pair, play_of, worker_spec
from tests.openenv_folders import PLAIN, definition_of, folder_of
from tests.processes import innermost
from tests.sandbox.attacks import python_for_all
from tests.waiting import until

WALKER = b"""
class Model:
    def act(self, observation):
        position, door = observation[0], observation[1]
        return [0 if abs(position - door) < 0.5 else 2 if door > position else 1, 1.0]
"""
STILL = b"class Model:\n    def act(self, observation):\n        return [0, 1.0]\n"
BEST = level().number
#: Levels that this machine has, and none.
LEVELS = [number for number in (3, 2) if number <= BEST] + [None]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A dataset's folder, not below pytest's folders, which other users cannot read."""
    made = Path(tempfile.mkdtemp(prefix="windtunnel-openenv-"))
    made.chmod(0o755)
    yield folder_of(PLAIN, "plain", made / "dataset")
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def python(folder: Path) -> Path:
    """An interpreter for level 2, where the folders above it have to be readable too."""
    return python_for_all(folder.parent / "python")


def spec_of(folder: Path, sandbox: int | None = BEST) -> WorkerSpec:
    return replace(worker_spec("openenv", sandbox=sandbox, isolation="scenario"), dataset=str(folder))


@contextmanager
def drained(pair: EvaluatorPair) -> Iterator[None]:
    """Read what an evaluator prints, as its runner does."""
    stop = threading.Event()

    def drain() -> None:
        while not stop.wait(0.01):
            pair.output()

    thread = threading.Thread(target=drain)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def play(**changes: Any) -> dict[str, Any]:
    """Return the set-up of a simulation with the plain environment."""
    tasks = {
        "seed": 7,
        "dataset": "sha256:0",
        "total_scenarios": 20,
        "select": {"range": [0, 20]},
        "sweep": {},
        "repeat": 1,
        "params": {},
    }
    return play_of("openenv", definition=definition_of(**changes), tasks=tasks, isolation="scenario")


def results_with(folder: Path, reset: Mapping[str, Any], **changes: Any) -> list[dict[str, Any]]:
    """Play three scenarios, the second with these parameters of its reset, with a model that stands still."""
    lines = [json.dumps({"reset": {"door": 9, **parameters}}) for parameters in ({}, reset)]
    scenarios = folder / "faulty.ndjson"
    scenarios.write_text("\n".join([*lines, lines[0]]))
    scenarios.chmod(0o444)
    setup = play(steps=5, **changes)
    setup["definition"]["scenarios"] = scenarios.name
    try:
        with evaluator_pair(spec_of(folder), STILL, setup) as pair, drained(pair):
            return pair.run(0, 3)
    finally:
        scenarios.unlink()


@pytest.mark.parametrize("sandbox", LEVELS)
@pytest.mark.parametrize("transport", ["websocket", "http"])
def test_an_environment_is_played_and_nothing_of_a_scenario_is_left_in_the_next(
    folder: Path, python: Path, sandbox: int | None, transport: str
) -> None:
    changes = {"transport": transport, "environ": {"OLD": "yes"} if transport == "http" else {}}
    spec = replace(spec_of(folder, sandbox), python=str(python))
    with evaluator_pair(spec, WALKER, play(**changes)) as pair:
        results = pair.run(0, 6)
    assert {result["status"] for result in results} == {"ok"}, results
    metrics = [result["metrics"] for result in results]
    assert {entry["outcome"] for entry in metrics} == {"found"} and {entry["last_reward"] for entry in metrics} == {1.0}
    assert {entry["episodes"] for entry in metrics} == {1.0}, "a global variable has survived a scenario"
    assert sandbox is None or {entry["left"] for entry in metrics} == {0.0}, "a file has survived a scenario"
    assert len({entry["farthest"] for entry in metrics}) > 1, "the door is not drawn from the scenario's seed"
    assert all(entry["return"] == pytest.approx(1.0 - 0.1 * (entry["length"] - 1)) for entry in metrics)


def test_results_do_not_depend_on_which_scenarios_an_evaluator_played_before(folder: Path) -> None:
    with evaluator_pair(spec_of(folder), WALKER, play()) as pair:
        whole = pair.run(0, 8)
    with evaluator_pair(spec_of(folder), WALKER, play()) as pair:
        rest = pair.run(4, 8)
    assert [result["metrics"] for result in whole[4:]] == [result["metrics"] for result in rest]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("reset", "it answers reset with an error: the corridor is closed"),
        ("raise", "it answers step with an error: the light went out"),
        ("crash", "its process ended: killed by SIGABRT (the floor gives way)"),
        ("exit", "its process ended: it exited with code 3"),
        ("hang", "it did not answer step in time"),
        ("text", "`position` is not a number, but str"),
        ("shape", "`walls` is not a nested list of the shape [2]: there is a list of 1"),
        ("nan", "the reward in its answer to step is not a finite number"),
        ("garbage", "its answer to step has no object `observation`"),
        ("long", "exceeds limit of 4194304 bytes"),
        ("connect", "it answers step with an error: [Errno 1] Operation not permitted"),
        ("fork", "it answers step with an error: [Errno 1] Operation not permitted"),
        ("signal", "it answers step with an error: [Errno 1] Operation not permitted"),
    ],
)
def test_a_fault_of_the_environment_ends_its_scenario_alone_and_is_not_the_models(
    folder: Path, fault: str, reason: str
) -> None:
    before, faulty, after = results_with(folder, {"fault": fault}, timeout=2.0 if fault == "hang" else 20.0)
    assert faulty["status"] == "failed" and faulty["metrics"] == {}
    assert faulty["error"].startswith("simulator: EnvironmentFault: The dataset's environment failed: ")
    assert reason in faulty["error"], faulty["error"]
    assert before["status"] == after["status"] == "ok" and before["metrics"] == after["metrics"]
    assert before["metrics"]["outcome"] == "lost"


def test_a_scenario_whose_environment_is_killed_from_outside_is_no_result(folder: Path) -> None:
    """The evaluator ends, and its task is run again by another one, as always when an evaluator dies."""
    scenarios = folder / "hanging.ndjson"
    scenarios.write_text(json.dumps({"reset": {"door": 9, "fault": "hang"}}))
    setup = play(timeout=200.0)
    setup["definition"]["scenarios"] = scenarios.name
    with evaluator_pair(spec_of(folder, None), STILL, setup) as pair:
        process = pair.evaluator.process
        assert isinstance(process, ChildProcess)

        def kill() -> None:
            until(lambda: pair.evaluator.page.task == 0, message="the scenario does not begin")
            os.kill(innermost(process.pid), signal.SIGKILL)

        killing = threading.Thread(target=kill)
        killing.start()
        with pytest.raises(framed_socket.PeerClosed):
            pair.run(0, 1)
        killing.join()
        assert process.popen.wait() == BROKEN
    scenarios.unlink()


@pytest.mark.parametrize("sandbox", LEVELS[:-1])
def test_an_environment_reaches_neither_its_evaluator_nor_its_launcher_by_a_signal(
    folder: Path, python: Path, sandbox: int
) -> None:
    pair = EvaluatorPair(replace(spec_of(folder, sandbox), python=str(python)), STILL)
    try:
        answer = pair.set_up(play(app="server.reaching:app"))
    finally:
        pair.end()
    assert isinstance(answer, framed_socket.Broken) and "RuntimeError: reached: []" in answer.reason, answer


def test_an_environment_may_print_more_than_a_pipe_holds(folder: Path) -> None:
    assert [result["status"] for result in results_with(folder, {"fault": "print"})] == ["ok"] * 3


@pytest.mark.parametrize(
    ("app", "reason"),
    [
        ("server.nothing:app", "ModuleNotFoundError: No module named 'server.nothing'"),
        ("server.corridor:app", "AttributeError: module 'server.corridor' has no attribute 'app'"),
    ],
)
def test_an_environment_that_cannot_be_imported_is_reported_before_any_scenario(
    folder: Path, app: str, reason: str
) -> None:
    pair = EvaluatorPair(spec_of(folder), STILL)
    try:
        answer = pair.set_up(play(app=app))
    finally:
        pair.end()
    assert isinstance(answer, framed_socket.Broken)
    assert answer.reason.startswith("simulator: EnvironmentFault: The dataset's environment failed: it cannot be")
    assert reason in answer.reason
