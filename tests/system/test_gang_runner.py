"""A gang and its runner against the real runner API: every task has one result, whatever ends in between."""

import contextlib
import io
import json
import os
import secrets
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_ports
from tests.system.runner_api import LAUNCH, TOKEN, RunnerApi
from tests.waiting import until

ROOT = Path(__file__).parents[2]
PATIENCE = 90
#: Every replica writes down that it was there; the first one answers.
PROGRAM = """
import json, os, pathlib, sys, time
scenario = json.load(open(os.environ["WINDTUNNEL_SCENARIO"]))
rank = int(os.environ["WINDTUNNEL_GANG_INDEX"])
import beside
if scenario["index"] == 3 and rank == 1:
    sys.exit(9)
if scenario["index"] == 4:
    sys.exit(0)
if scenario["index"] == 5:
    pathlib.Path(os.environ["WINDTUNNEL_RESULT"]).write_bytes(bytes([255]) * (3 << 20))
    sys.exit(0)
if scenario["index"] == beside.SLOW and rank == 1:
    time.sleep(600)
if rank == 0:
    json.dump({"square": scenario["index"] ** 2, "size": os.environ["WINDTUNNEL_GANG_SIZE"]},
              open(os.environ["WINDTUNNEL_RESULT"], "w"))
"""


def packed(slow: int = -1) -> bytes:
    """Return the program, in a zip with a module of its own."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("program.py", PROGRAM)
        archive.writestr("beside.py", f"SLOW = {slow}\n")
    return target.getvalue()


class Company:
    """The processes of a gang of two: its runner, who leads, and who follow."""

    def __init__(self, folder: Path, url: str) -> None:
        folder.mkdir()
        self.folder = folder
        [port] = free_ports(1)
        told = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "WINDTUNNEL_GANG_KEY": secrets.token_hex()}
        told |= {"WINDTUNNEL_GANG_LEADER": f"127.0.0.1:{port}", "WINDTUNNEL_GANG_SLICES": "1"}
        self.told = told | {"WINDTUNNEL_GANG_SIZE": "2", "WINDTUNNEL_GANG_SLICE": "0"}
        (folder / "token").write_text(TOKEN)
        document: dict[str, Any] = {
            "id": LAUNCH,
            "url": url,
            "workers": 1,
            "format": "python",
            "token_file": str(folder / "token"),
        }
        document |= {
            "files": str(folder / "files"),
            "container_users": {"evaluator": -1, "model_server": os.getuid()},
            "name": folder.name,
        }
        (folder / "launch.json").write_text(json.dumps(document))
        socket = str(folder / "gang.sock")
        self.runner = self._start("runner", ["-m", "workers.gang_runner", "--launch", str(folder / "launch.json")])
        self.leader = self._start("leader", ["lead"], "--tasks", socket)
        command = [sys.executable, "program.py"]
        self.replicas = [self._start(f"replica-{n}", ["follow", *command], number=n) for n in range(2)]

    def _start(self, name: str, arguments: list[str], *options: str, number: int = 0) -> "subprocess.Popen[str]":
        if name == "runner":
            arguments = [*arguments, "--sockets", str(self.folder)]
        else:
            code = "import pathlib, signal, sys; from runtimes.harness.gang import replica as gang; "
            code += "signal.signal(15, gang.stop); "
            code += "sys.exit(gang.main(sys.argv[2:], pathlib.Path(sys.argv[1])))"
            arguments = ["-c", code, str(self.folder / name), *options, *arguments]
        with open(self.folder / f"{name}.txt", "w") as said:
            return subprocess.Popen(
                [sys.executable, *arguments],
                env=self.told | {"WINDTUNNEL_GANG_INDEX": str(number)},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def exits(self) -> tuple[int, int, list[int]]:
        """Wait for all to end."""
        exits = self.runner.wait(PATIENCE), self.leader.wait(PATIENCE), [one.wait(PATIENCE) for one in self.replicas]
        return exits

    def end(self) -> None:
        """End what is left."""
        for one in (self.runner, self.leader, *self.replicas):
            one.kill()
            one.wait()

    @property
    def said(self) -> str:
        """What all of them printed."""
        return "\n".join(f"{path.name}: {path.read_text()}" for path in sorted(self.folder.glob("*.txt")))


Begin = Callable[..., tuple[RunnerApi, Callable[[], Company]]]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Open a simulation for gangs; each company that is called to it ends with the test."""
    with contextlib.ExitStack() as ending:

        def make(total: int, slow: int = -1, **definition: Any) -> tuple[RunnerApi, Callable[[], Company]]:
            runner_api = RunnerApi(tmp_path, total=total, play={"definition": definition}, model=packed(slow))
            ending.callback(runner_api.close)
            made: list[Company] = []

            def company() -> Company:
                made.append(Company(tmp_path / f"company-{len(made)}", runner_api.url))
                ending.callback(made[-1].end)
                return made[-1]

            return runner_api, company

        yield make


def settled(runner_api: RunnerApi, company: Company) -> tuple[int, int, list[int]]:
    """See a company through while the dispatcher does its passes."""
    runner_api.settle_until_exit(company.runner)
    return company.exits()


def test_a_gang_plays_every_task_once_and_what_fails_fails_alone(begin: Begin) -> None:
    runner_api, company = begin(8)
    first = company()
    assert settled(runner_api, first) == (0, 0, [0, 0]), first.said
    results = runner_api.results()
    assert [one["task"] for one in results] == list(range(8))
    bad = {3: "crashed", 4: "invalid", 5: "invalid"}  # no result; one that is none, and longer than may be said
    assert [one["status"] for one in results] == [bad.get(task, "ok") for task in range(8)], first.said
    assert results[7]["metrics"] == {"square": 49, "size": "2"}
    assert "exited with status 9" in results[3]["error"]


def test_a_program_that_takes_too_long_is_ended_and_the_gang_goes_on(begin: Begin) -> None:
    runner_api, company = begin(3, slow=1, task_patience=2.0)
    first = company()
    assert settled(runner_api, first) == (0, 0, [0, 0]), first.said
    assert [one["status"] for one in runner_api.results()] == ["ok", "timed_out", "ok"]


def test_a_gang_that_loses_a_replica_ends_and_the_next_one_goes_on_where_it_was(begin: Begin) -> None:
    runner_api, company = begin(3, slow=1, task_patience=10.0)
    first = company()
    at_the_slow_one(first)
    first.replicas[1].kill()
    assert first.exits() == (77, 1, [0, -9]), first.said
    runner_api.release()
    second = company()
    assert settled(runner_api, second) == (0, 0, [0, 0]), second.said
    assert [one["status"] for one in runner_api.results()] == ["ok", "timed_out", "ok"]


def test_told_to_stop_a_gang_reports_what_it_has_played_and_gives_the_rest_back(begin: Begin) -> None:
    runner_api, company = begin(3, slow=1, task_patience=10.0)
    first = company()
    at_the_slow_one(first)
    first.runner.terminate()
    assert first.runner.wait(PATIENCE) == 143, first.said
    assert [one["task"] for one in runner_api.results()] == [0]
    second = company()  # nobody waits for the first one's lease to run out
    assert settled(runner_api, second) == (0, 0, [0, 0]), second.said
    assert [one["status"] for one in runner_api.results()] == ["ok", "timed_out", "ok"]


def at_the_slow_one(company: Company) -> None:
    """Wait until the gang is at the task that takes long."""
    at = company.folder / "replica-1" / "scenario.json"
    until(lambda: at.exists() and json.loads(at.read_text() or "{}").get("index") == 1)
