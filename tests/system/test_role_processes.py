"""Roles that are forked: each looks like a process of its own, restarts like one, and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until

ROOT = Path(__file__).parents[2]
#: Supervises two roles that are forks of this process, with numpy and `random` imported: each records what it is.
SCRIPT = """
import gc, json, os, random, signal, sys, threading, time, uuid
from pathlib import Path
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # one thread
import numpy.random
from server.supervisor import Role, Supervisor, print_line
home = Path(sys.argv[1])
os.environ["WINDTUNNEL_TEST_FORKED"] = "of the supervisor"
random.seed(1)
numpy.random.seed(1)
supervisor = Supervisor(home=home, run_dir=home / "run")

def describe(name):
    with open(home / name, "a") as file:
        print(json.dumps({
            "pid": os.getpid(),
            "session": os.getsid(0),
            "random": [random.random(), float(numpy.random.random()), str(uuid.uuid4())],
            "files": sorted(int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")),
            "input": os.readlink("/proc/self/fd/0"),
            "environment": dict(os.environ),
            "SIGTERM": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
            "SIGINT": signal.getsignal(signal.SIGINT) == signal.default_int_handler,
            "masked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
            "collects": gc.isenabled(),
        }), file=file)
    print(f"a line of {name}", flush=True)
    print(json.dumps({"level": "WARNING", "message": f"a warning of {name}"}), file=sys.stderr, flush=True)

def main(name):
    describe(name)
    if name == "fails":
        raise RuntimeError("it cannot work")
    while True:
        time.sleep(60)

if len(sys.argv) > 2:
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()

roles = [
    Role(name=name, main=lambda name=name: main(name),
         command=[sys.executable, "-c", "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(60)",
                  str(home / f"{name} was executed")])
    for name in ("one", "other", "fails")
]
supervisor.run(roles, {"WINDTUNNEL_TEST_ROLE": "of the roles"}, lambda: True, lambda: print_line("ready"))
"""


class Roles:
    def __init__(self, home: Path, *arguments: str) -> None:
        self.home = home
        with open(home / "output", "w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SCRIPT, str(home), *arguments], cwd=ROOT, stdout=output, stderr=output
            )

    def lives(self, name: str) -> list[dict[str, Any]]:
        """Return what each process of a role has recorded."""
        path = self.home / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def text(self, path: str) -> str:
        """Return the text of a file in the home."""
        return (self.home / path).read_text()


@pytest.fixture
def roles(tmp_path: Path) -> Iterator[Roles]:
    started = Roles(tmp_path)
    try:
        names = ("one", "other", "fails")
        until(lambda: all(started.lives(name) for name in names), message=lambda: started.text("output"))
        yield started
    finally:
        started.process.kill()
        started.process.wait()


def test_a_forked_role_looks_like_a_process_that_was_executed(roles: Roles) -> None:
    [role] = roles.lives("one")
    assert role["session"] == role["pid"], "Ctrl-C would reach it"
    assert role["environment"] == {"WINDTUNNEL_TEST_ROLE": "of the roles"}
    assert role["input"] == "/dev/null"
    assert (role["SIGTERM"], role["SIGINT"], role["masked"], role["collects"]) == (True, True, [], True)
    own = Path(f"/proc/{role['pid']}")
    assert (own / "comm").read_text() == "one\n"
    assert role["files"] == [0, 1, 2, 3], "the fourth is the file that it writes this to"
    assert f"\nPPid:\t{roles.process.pid}\n" in (own / "status").read_text()


def test_forked_roles_have_random_states_of_their_own(roles: Roles) -> None:
    os.kill(roles.lives("one")[0]["pid"], signal.SIGKILL)
    until(lambda: len(roles.lives("one")) == 2)
    drawn = [life["random"] for name in ("one", "other") for life in roles.lives(name)]
    for values in zip(*drawn, strict=True):
        assert len(set(values)) == 3


def test_what_a_forked_role_prints_goes_to_its_own_log(roles: Roles) -> None:
    until(lambda: "one: warning: a warning of one" in roles.text("output"))
    until(lambda: "a line of other" in roles.text("logs/other.log"))
    assert "a line of one" in roles.text("logs/one.log") and "other" not in roles.text("logs/one.log")
    assert "a line of" not in roles.text("output")


def test_a_forked_role_that_raises_leaves_its_traceback_in_its_log_and_is_restarted(roles: Roles) -> None:
    until(lambda: len(roles.lives("fails")) >= 2)
    assert "RuntimeError: it cannot work" in roles.text("logs/fails.log")
    assert "fails ended (exit code 1); it is restarted in 0.1 s" in roles.text("output")


def test_a_forked_role_that_is_killed_is_restarted(roles: Roles) -> None:
    os.kill(roles.lives("one")[0]["pid"], signal.SIGKILL)
    until(lambda: len(roles.lives("one")) == 2)
    assert "one ended (killed by SIGKILL); it is restarted" in roles.text("output")


def test_sigterm_ends_forked_roles(roles: Roles) -> None:
    roles.process.terminate()
    assert roles.process.wait(20) == 0
    assert _alive(roles) == []


def test_no_forked_role_outlives_a_killed_supervisor(roles: Roles) -> None:
    roles.process.kill()
    roles.process.wait()
    until(lambda: _alive(roles) == [])


def test_a_supervisor_with_a_second_thread_executes_its_roles(tmp_path: Path) -> None:
    roles = Roles(tmp_path, "with a thread")
    try:
        until((tmp_path / "one was executed").exists, message=lambda: roles.text("output"))
        assert roles.lives("one") == []
    finally:
        roles.process.kill()
        roles.process.wait()


def _alive(roles: Roles) -> list[int]:
    pids = [life["pid"] for name in ("one", "other", "fails") for life in roles.lives(name)]
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


#: Imports the modules of all roles, as the supervisor does, and prints what this has left in the process.
MODULES = """
import gc, json, os, sys
from server.role_modules import GROUPS, RoleModules
from sqlalchemy import Engine
modules = RoleModules()
before = os.listdir("/proc/self/fd")
for _ in modules.steps():
    pass
collects = gc.isenabled()
gc.unfreeze()  # or these objects would not be listed
sockets = [type(found).__name__ for found in gc.get_objects() if type(found).__name__ in {"socket", "Engine", "Redis"}]
print(json.dumps({
    "threads": len(os.listdir("/proc/self/task")),
    "files": len(os.listdir("/proc/self/fd")) - len(before),
    "groups": [modules.has(group) for group in GROUPS],
    "collects": collects,
    "classes": any(found is Engine for found in gc.get_objects()),
    "sockets": sockets,
}))
"""


def test_the_modules_of_the_roles_start_no_thread_and_open_nothing() -> None:
    output = subprocess.run([sys.executable, "-c", MODULES], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(output.stdout) == {
        "threads": 1,
        "files": 0,
        "groups": [True, True, True],
        "collects": True,
        "classes": True,
        "sockets": [],
    }


def test_a_call_in_a_fork_returns_a_value_and_leaves_no_module_behind() -> None:
    script = """
import sys
from server.role_processes import ForkedCall
def function():
    import sqlite3
    return sqlite3.sqlite_version
assert ForkedCall(function).result() and "sqlite3" not in sys.modules
ForkedCall(lambda: 1 / 0).result()
"""
    completed = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert "ZeroDivisionError" in completed.stderr and completed.stderr.rstrip().endswith("EOFError")
