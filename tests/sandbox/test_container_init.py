"""The attack suite in a process that a post has started at level 2, as in a pod: the table's column holds there."""

import importlib
import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from attacks import HARNESS, USERS, Ground, Outcome, Theatre
from test_attacks import documented

from tests.waiting import until

sys.path.insert(0, str(HARNESS.parents[1]))
births = importlib.import_module("runtimes.harness.runner.process_spec")
posts = importlib.import_module("runtimes.harness.runner.remote_spawner")
processes = importlib.import_module("runtimes.harness.runner.processes")

#: The attacker in the model server's place: told by the post what a model server is told, it confines itself by that.
MODEL_SERVER = """
import json, os, sys
told = json.loads(sys.argv[1])
sys.path[:0] = told["path"]
import model
os.close(told["socket"])  # what a model server was given
model.main({"confinement": told["confinement"], "attacks": told["attacks"], "stage": told["stage"], "path": []})
"""


class Place:
    """A post of an ordinary user's, and the runner's part in a few lines."""

    def __init__(self, theatre: Theatre, folder: Path) -> None:
        ground: Ground = theatre.ground
        self._theatre = theatre
        harness = folder / "runtimes" / "harness"
        shutil.copytree(HARNESS, harness, ignore=shutil.ignore_patterns("__pycache__"))
        (harness / "model_server" / "model_server.py").write_text(f"def main():\n    exec({MODEL_SERVER!r}, {{}})\n")
        (folder / "site").mkdir()
        self._posts = posts.RemoteSpawner.open(folder)
        kit = processes.WorkerSpec(dataset="", format="", isolation="launch", sandbox=0)
        self._posts.expect({USERS[theatre.user]: "model_server"}, kit)
        self._selector = selectors.DefaultSelector()
        self._posts.register(self._selector, self._lost)
        told = ["post", "model_server", "--posts", str(folder), "--site", str(folder / "site")]
        code = f"import sys; sys.path[:0] = [{str(folder)!r}]; sys.argv = {told!r}; "
        code += "from runtimes.harness.runner.container_init import main; main()"
        command = [*as_in_a_pod(folder, USERS[theatre.user]), str(ground.python), "-I", "-S", "-B", "-c", code]
        self.process = subprocess.Popen(command, env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"})
        until(self._ready, message="the post does not come", every=0.0)

    def _ready(self) -> bool:
        for key, _ in self._selector.select(0.1):
            key.data()
        return self._posts.ready("model_server")

    def _lost(self, reason: str) -> None:
        raise AssertionError(reason)

    def run(self, attacks: Sequence[str]) -> tuple[list[dict[str, Any]], str]:
        """Start an attacker; return what it said, and how it ended."""
        inside = str(self._theatre.ground.folder / "inside")
        stage = self._theatre.stage | {"tmp": "/tmp", "driver": self.process.pid}
        with open(os.devnull, "rb") as nothing:
            birth = births.ProcessSpec(
                name="model-server-0",
                module="model_server",
                options={"path": [str(self._theatre.ground.folder), inside], "attacks": list(attacks), "stage": stage},
                confined=True,
                memory=1 << 30,
                readonly=(stage["environment"], stage["model"], inside, str(self._theatre.ground.folder)),
            )
            ward = self._posts.spawn(birth, {"socket": nothing.fileno()})
        said = bytearray()
        os.set_blocking(ward.output, True)
        while piece := os.read(ward.output, 1 << 16):
            said += piece
        how = ward.reap() if selectable(ward.end) else "it does not end"
        lines = [json.loads(line) for line in said.splitlines() if line.startswith(b"[")]
        assert lines, said.decode()
        return lines, how

    def end(self) -> None:
        """Hang up: the post ends."""
        self._posts.close()
        self.process.wait(10.0)


def as_in_a_pod(folder: Path, user: int) -> list[str]:
    """Return what to put before a command so that it has no namespaces to make: a changed root forbids it, too.

    Who is not root cannot change it, and is confined as well as the machine can.
    """
    if os.geteuid() != 0:
        return []
    (root := folder / "root").mkdir()
    script = 'mount --rbind / "$0"; exec chroot "$0" setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"'
    return ["unshare", "--mount", "--propagation", "private", "bash", "-ec", script, str(root), str(user)]


def selectable(descriptor: int, seconds: float = 60.0) -> bool:
    """Wait until something can be read there."""
    with selectors.DefaultSelector() as waiting:
        waiting.register(descriptor, selectors.EVENT_READ)
        return bool(waiting.select(seconds))


@pytest.fixture
def place(theatre: Theatre) -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="windtunnel-post-"))
    folder.chmod(0o755)
    made = None
    try:
        made = Place(theatre, folder)
        yield made
    finally:
        if made is not None:
            made.end()
        shutil.rmtree(folder)


@pytest.mark.parametrize("theatre", ["user"], indirect=True)
def test_a_process_of_a_container_init_is_confined_as_documented(place: Place, best: dict[str, int]) -> None:
    assert best["user"] > 1, "This machine cannot confine at all; see docs/sandbox.md for what it needs."
    level = 2 if os.geteuid() == 0 else best["user"]
    seen: dict[str, Outcome] = {}
    attacks: Sequence[str] = ()
    while True:
        (names, *said), how = place.run(attacks)
        seen |= {name: Outcome(*rest) for name, *rest in said}
        if not (left := names[len(said) :]):
            break
        seen[left[0]] = Outcome("contained", f"killed ({how})", "it ends its own process")
        if not (attacks := left[1:]):
            break
    for name, outcome in seen.items():
        print(f"{name:34} {outcome.result:10} {outcome.how}")
    assert {name: outcome.result for name, outcome in seen.items()} == documented("user", level)
    assert place.process.poll() is None  # it outlived every attacker
