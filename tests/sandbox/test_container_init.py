"""Container init: the attack suite has the documented outcomes in a process that it starts at level 2, as in a pod."""

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
from attacks import HARNESS, USERS, AttackRunner, Outcome, SandboxFiles
from test_attacks import documented

from tests.waiting import until

sys.path.insert(0, str(HARNESS.parents[1]))
process_spec = importlib.import_module("runtimes.harness.runner.process_spec")
remote_spawner = importlib.import_module("runtimes.harness.runner.remote_spawner")
processes = importlib.import_module("runtimes.harness.runner.processes")

#: The attacking model in place of the model server: it confines itself with the options that a container init passes.
MODEL_SERVER = """
import json, os, sys
options = json.loads(sys.argv[1])
sys.path[:0] = options["path"]
import model
os.close(options["socket"])  # the descriptor that a model server inherits on purpose
model.main({name: options[name] for name in ("confinement", "attacks", "targets")} | {"path": []})
"""


class ContainerInitRig:
    """A container init of an ordinary user, and the runner's side of it."""

    def __init__(self, attack_runner: AttackRunner, folder: Path) -> None:
        sandbox_files: SandboxFiles = attack_runner.sandbox_files
        self._attack_runner = attack_runner
        harness = folder / "runtimes" / "harness"
        shutil.copytree(HARNESS, harness, ignore=shutil.ignore_patterns("__pycache__"))
        (harness / "model_server" / "confined_start.py").write_text(f"def main():\n    exec({MODEL_SERVER!r}, {{}})\n")
        (folder / "site").mkdir()
        self._spawner = remote_spawner.RemoteSpawner.open(folder)
        worker_spec = processes.WorkerSpec(dataset="", format="", isolation="launch", sandbox=0)
        self._spawner.expect({USERS[attack_runner.user]: "model_server"}, worker_spec)
        self._selector = selectors.DefaultSelector()
        self._spawner.register(self._selector, self._fail)
        arguments = ["container_init", "model_server", "--sockets", str(folder), "--site", str(folder / "site")]
        code = f"import sys; sys.path[:0] = [{str(folder)!r}]; sys.argv = {arguments!r}; "
        code += "from runtimes.harness.runner.container_init import main; main()"
        command = [
            *pod_like_prefix(folder, USERS[attack_runner.user]),
            str(sandbox_files.python),
            "-I",
            "-S",
            "-B",
            "-c",
            code,
        ]
        self.process = subprocess.Popen(command, env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"})
        until(self._connected, message="the container init does not connect", every=0.0)

    def _connected(self) -> bool:
        for key, _ in self._selector.select(0.1):
            key.data()
        return self._spawner.ready("model_server")

    def _fail(self, reason: str) -> None:
        raise AssertionError(reason)

    def run(self, attacks: Sequence[str]) -> tuple[list[dict[str, Any]], str]:
        """Start an attacking model that aims at the container init; return its output lines and how it ended."""
        shared_folder = str(self._attack_runner.sandbox_files.folder)
        inside = str(self._attack_runner.sandbox_files.folder / "inside")
        targets = self._attack_runner.targets | {"tmp": "/tmp", "runner": self.process.pid}
        with open(os.devnull, "rb") as null:
            spec = process_spec.ProcessSpec(
                name="model-server-0",
                module="model_server",
                options={"path": [shared_folder, inside], "attacks": list(attacks), "targets": targets},
                confined=True,
                memory=1 << 30,
                readonly=(targets["environment"], targets["model"], inside, shared_folder),
            )
            process = self._spawner.spawn(spec, {"socket": null.fileno()})
        output = bytearray()
        os.set_blocking(process.output, True)
        while chunk := os.read(process.output, 1 << 16):
            output += chunk
        end = process.reap() if wait_readable(process.end) else "it does not end"
        lines = [json.loads(line) for line in output.splitlines() if line.startswith(b"[")]
        assert lines, output.decode()
        return lines, end

    def end(self) -> None:
        """Close the connection, which ends the container init."""
        self._spawner.close()
        self.process.wait(10.0)


def pod_like_prefix(folder: Path, user: int) -> list[str]:
    """Return a command prefix under which no namespaces can be created: a changed root forbids them.

    Without root the prefix is empty, and the process is confined as far as the machine permits.
    """
    if os.geteuid() != 0:
        return []
    (root := folder / "root").mkdir()
    script = 'mount --rbind / "$0"; exec chroot "$0" setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"'
    return ["unshare", "--mount", "--propagation", "private", "bash", "-ec", script, str(root), str(user)]


def wait_readable(descriptor: int, seconds: float = 60.0) -> bool:
    """Wait until a descriptor is readable; return whether it is."""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        return bool(selector.select(seconds))


@pytest.fixture
def rig(attack_runner: AttackRunner) -> Iterator[ContainerInitRig]:
    folder = Path(tempfile.mkdtemp(prefix="windtunnel-init-"))
    folder.chmod(0o755)
    container_init = None
    try:
        container_init = ContainerInitRig(attack_runner, folder)
        yield container_init
    finally:
        if container_init is not None:
            container_init.end()
        shutil.rmtree(folder)


@pytest.mark.parametrize("attack_runner", ["user"], indirect=True)
def test_a_process_of_a_container_init_is_confined_as_documented(
    rig: ContainerInitRig, best_levels: dict[str, int]
) -> None:
    assert best_levels["user"] > 1, "This machine cannot confine at all; see docs/sandbox.md for what it needs."
    level = 2 if os.geteuid() == 0 else best_levels["user"]
    outcomes: dict[str, Outcome] = {}
    attacks: Sequence[str] = ()
    while True:
        (names, *lines), end = rig.run(attacks)
        outcomes |= {name: Outcome(*values) for name, *values in lines}
        if not (remaining := names[len(lines) :]):
            break
        outcomes[remaining[0]] = Outcome("contained", f"killed ({end})", "it ends its own process")
        if not (attacks := remaining[1:]):
            break
    for name, outcome in outcomes.items():
        print(f"{name:34} {outcome.result:10} {outcome.how}")
    assert {name: outcome.result for name, outcome in outcomes.items()} == documented("model", "user", level)
    assert rig.process.poll() is None  # the container init still runs after every attack
