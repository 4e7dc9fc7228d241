"""Commands about trusted runs, against a served API: how they are asked for, what is printed, what a gate lets in."""

import os
import subprocess
import sys
from pathlib import Path

from tests.api.conftest import LeasingWorker, Submit
from tests.waiting import until
from tests.web.pages import origin as origin
from tests.web.pages import settings as settings
from windtunnel import Client

WORDS = "could have changed its own score"


def begin(origin: str, home: Path, *words: str) -> subprocess.Popen[str]:
    """Start a command against the platform."""
    environ = os.environ | {"WINDTUNNEL_URL": origin, "HOME": str(home), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "windtunnel", *words]
    return subprocess.Popen(command, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def output(process: subprocess.Popen[str], code: int = 0) -> str:
    """Return what a command has printed, after its end with this exit code."""
    printed, complaints = process.communicate(timeout=60)
    assert process.returncode == code, complaints
    return printed + complaints


def play_next(client: Client, worker: LeasingWorker) -> None:
    """Play the simulation that a command submits."""
    (simulation,) = until(lambda: list(client.simulations.list(state=["queued"])))
    worker.run_to_end(simulation.id)


def test_a_run_says_that_it_was_trusted(origin: str, model: str, worker: LeasingWorker, tmp_path: Path) -> None:
    words = ["run", model, "noop", "--scenarios", "0-4"]
    with Client(origin) as client:
        for options, trusted in ((["--trusted"], True), ([], False)):
            command = begin(origin, tmp_path, *words, *options)
            play_next(client, worker)
            assert (f"trusted: the model ran in the evaluator's process and {WORDS}" in output(command)) == trusted
        assert [simulation.trusted for simulation in client.simulations.list()] == [False, True]


def test_lists_and_comparisons_of_simulations_mark_the_trusted_one(
    origin: str, submit: Submit, worker: LeasingWorker, tmp_path: Path
) -> None:
    ids = [submit(trusted=trusted).json["id"] for trusted in (True, False)]
    for id in ids:
        worker.run_to_end(id)
    for words in (["list"], ["get", *ids]):
        assert output(begin(origin, tmp_path, "simulations", *words)).count("mine@1 (trusted)") == 1
    assert "The first is trusted and the second is isolated" in output(begin(origin, tmp_path, "compare", *ids))


def test_a_gate_is_trusted_if_it_asks_for_that_and_its_reports_say_so(
    origin: str, model: str, worker: LeasingWorker, tmp_path: Path
) -> None:
    words = ["gate", model, "--against", model, "--dataset", "noop", "--scenarios", "0-4", "--markdown", "-"]
    with Client(origin) as client:
        for options, trusted in ((["--trusted"], True), ([], False)):
            command = begin(origin, tmp_path, *words, *options)
            play_next(client, worker)
            assert (WORDS in output(command)) == trusted
        assert [simulation.trusted for simulation in client.simulations.list()] == [False, True]
