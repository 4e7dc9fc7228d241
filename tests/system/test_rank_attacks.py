"""The attacks of docs/sandbox.md from inside a rank of each executor: those succeed that the table says."""

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.archives import zipped
from tests.gang_pods import USER
from tests.sandbox.attack_table import documented
from tests.sandbox.attacks import python_for_all
from tests.system.gang_places import place

INSIDE = Path(__file__).parents[1] / "sandbox" / "inside"
#: The table's column of each place; a laptop's and a Slurm job's ranks have the user of their sandbox.
COLUMNS = {"local": ("rank", "root", 3), "slurm": ("node", "root", 3), "pods": ("pod", "user", 2)}

#: What succeeds besides: a rank has a watcher in its sandbox, and the table's process has none.
ON_ITS_WATCHER = {"signal_parent", "read_parent_memory"}

#: What fails besides: the platform's process of a pod shows its descriptors to nobody.
HIDDEN = {"pods": {"runner_descriptors"}}

# Each attack in a process of its own: one that is killed has failed. Those on resources are left to the table's own
# test: the limits of a gang are larger, and it would end.
DRIVER = b"""
import importlib, json, os, signal, sys, time
for module in ("on_files", "on_network", "on_kernel", "on_processes"):
    importlib.import_module(module)
attacks = importlib.import_module("registry").ATTACKS
targets = json.load(open("targets.json"))
import mpi4py
shared = mpi4py.__file__
targets |= {"environment": os.path.dirname(shared), "module": shared, "model": shared, "tmp": "/tmp"}
if os.environ["PMI_RANK"] != "0":
    sys.exit()
outcomes = {}
signal.signal(signal.SIGWINCH, signal.SIG_IGN)
def told_by(attack):
    try:
        return str(attack(targets) or "")
    except BaseException as error:
        return ""
for name, attack in attacks.items():
    if name in ("signal_parent", "read_parent_memory"):  # of the rank itself
        outcomes[name] = told_by(attack)
        continue
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.setsid()
        signal.alarm(20)
        os.write(writing, told_by(attack).encode()[:200])
        os._exit(0)
    os.close(writing)
    outcomes[name] = os.read(reading, 200).decode(errors="replace")
    os.close(reading)
    os.waitpid(child, 0)
with open(os.environ["WINDTUNNEL_OUTPUT"] + "/outcomes.json", "w") as file:
    json.dump(outcomes, file)
print(json.dumps({"attacks": len(outcomes), "escaped": " ".join(name for name, told in outcomes.items() if told)}))
"""


@pytest.fixture(params=COLUMNS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def targets(kind: str) -> Iterator[Mapping[str, Any]]:
    """What is attacked: a process with a token, sockets and files, of the user of the ranks if they have no own."""
    folder = Path(tempfile.mkdtemp(prefix="windtunnel-attacked-", dir="/var/tmp"))
    user = {"user": USER, "group": USER, "extra_groups": []} if kind == "pods" else {}
    try:
        folder.chmod(0o755)
        (folder / "runner").mkdir()
        if user:
            os.chown(folder / "runner", USER, USER)
        stub = folder / "runner_stub.py"
        shutil.copy2(INSIDE / "runner_stub.py", stub)
        stub.chmod(0o644)
        python = python_for_all(folder / "python") if user else Path(sys.executable)
        command = [str(python), "-I", "-S", "-B", str(stub), str(folder / "runner")]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"TOKEN": "wt-secret"}, **user
        ) as runner:
            assert runner.stdout is not None and runner.stdin is not None
            told = json.loads(runner.stdout.readline())
            yield told | ({"runner": 1} if kind == "pods" else {})  # the platform's process of its container
            runner.stdin.close()
    finally:
        shutil.rmtree(folder)


def test_the_attacks_from_inside_a_rank_are_those_of_the_table(
    kind: str, targets: Mapping[str, Any], tmp_path: Path
) -> None:
    files = {path.name: path.read_bytes() for path in INSIDE.glob("on_*.py")}
    files |= {"registry.py": (INSIDE / "registry.py").read_bytes(), "main.py": DRIVER}
    files |= {"targets.json": json.dumps(targets).encode(), "once": secrets.token_bytes(8)}
    options = {"size": 2, "communication": "mpi", "command": ["python", "main.py"]}
    with place(kind, tmp_path) as gangs, gangs.start(zipped(files), options) as gang:
        [result] = gang.results()
    assert result["status"] == "ok", result
    column = documented(*COLUMNS[kind])
    tried = attacks_tried()
    assert result["metrics"]["attacks"] == len(tried)
    succeed = {name for name in tried if column[name] == "escaped"} | ON_ITS_WATCHER
    succeed -= HIDDEN.get(kind, set())
    assert sorted(result["metrics"]["escaped"].split()) == sorted(succeed)


def attacks_tried() -> set[str]:
    """Return the names of the attacks that the driver tries."""
    sources = [path.read_text() for path in INSIDE.glob("on_*.py") if path.name != "on_resources.py"]
    lines = [line for source in sources for line in source.split("\n@attack\ndef ")[1:]]
    return {line.partition("(")[0] for line in lines}
