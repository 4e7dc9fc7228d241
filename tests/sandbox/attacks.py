"""Running attacks on the sandbox: users, files that every user may read, and the attacking model process."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
HARNESS = HERE.parents[1] / "runtimes" / "harness"

#: A user id without an account; only root can switch to it.
ORDINARY = 12345

#: Address space of a rank in bytes, besides its memory.
ADDRESSES = 1 << 46

#: What the confinement has besides of a model server, a gang's rank, one of several machines, and one in a pod.
KINDS: Mapping[str, Mapping[str, Any]] = {
    "model": {},
    "rank": {"hosts": ["replica-0"], "libraries": ADDRESSES},
    "node": {
        "hosts": ["replica-0"],
        "addresses": {"replica-0": "127.0.0.1", "replica-1": "127.0.0.1"},
        "libraries": ADDRESSES,
    },
    "pod": {"hosts": ["replica-0"], "libraries": ADDRESSES},
}

#: Users that a process has before it is confined; a test run of an ordinary user has only this user.
USERS = {"root": 0, "user": ORDINARY} if os.geteuid() == 0 else {"user": os.geteuid()}


@dataclass(frozen=True)
class SandboxFiles:
    """Files that every user may read: a Python, the sandbox, and the scripts that run in the sandbox."""

    folder: Path
    python: Path

    def start(self, user: str, script: str, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start a script of ``inside/``, or code, as a user, in the way model servers are started."""
        identity = {"user": USERS[user], "group": USERS[user], "extra_groups": []} if os.geteuid() == 0 else {}
        program = [str(self.folder / "inside" / script)] if script.endswith(".py") else ["-c", self.prelude + script]
        environment = {"PATH": "/usr/bin:/bin", **options.pop("env", {})}
        command = [str(self.python), "-I", "-S", "-B", *program, *arguments]
        return subprocess.Popen(command, env=environment, **identity, **options)

    def run(self, user: str, code: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
        """Run code until it ends; the names of ``sandbox`` are imported."""
        with self.start(user, code, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
            out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(code, process.returncode, out, err)

    @property
    def prelude(self) -> str:
        return f"import os, sys; sys.path[:0] = [{str(self.folder)!r}]; from sandbox import *\n"


def readable_by_all(path: Path) -> bool:
    return all(os.stat(folder).st_mode & stat.S_IXOTH for folder in (path, *path.parents))


def python_for_all(folder: Path) -> Path:
    """Return this interpreter, or a copy of it if other users cannot execute it."""
    prefix = Path(sys.base_prefix)
    executable = Path(sys.executable).resolve()
    if readable_by_all(prefix) and readable_by_all(executable.parent):
        return executable
    library = Path(f"lib/python{sys.version_info.major}.{sys.version_info.minor}")
    omitted = shutil.ignore_patterns("site-packages", "test", "tests", "idlelib", "tkinter", "ensurepip", "config-*")
    shutil.copytree(prefix / library, folder / library, ignore=omitted, symlinks=True)
    for shared in (prefix / "lib").glob("libpython*.so*"):
        shutil.copy2(shared, folder / "lib", follow_symlinks=False)
    (folder / "bin").mkdir()
    copy = folder / "bin" / executable.name
    shutil.copy2(executable, copy)
    # Its libraries are searched where it was built for, which other users cannot read, and then among the system's.
    built_for, beside = bytes(prefix / "lib") + b"\0", b"$ORIGIN/../lib\0"
    if len(beside) <= len(built_for):
        copy.write_bytes(copy.read_bytes().replace(built_for, beside.ljust(len(built_for), b"\0")))
    return copy


class Outcome(NamedTuple):
    """Outcome of an attack: ``contained`` or ``escaped``, the mechanism, and what the attack tries."""

    result: str
    how: str
    what: str


@dataclass
class AttackRunner:
    """Runs attacks against the runner stub, a process of the same user."""

    sandbox_files: SandboxFiles
    folder: Path
    user: str
    targets: dict[str, Any] = field(default_factory=dict)

    def run(self, level: int | None, attacks: Sequence[str] = (), kind: str = "model") -> dict[str, Outcome]:
        """Run the named attacks, or all, confined at a level or unconfined; return their outcomes by name.

        ``kind``: of `KINDS`.
        """
        outcomes: dict[str, Outcome] = {}
        while True:
            names, new_outcomes, code = self._run_until_killed(level, attacks, kind)
            outcomes |= new_outcomes
            if not (remaining := names[len(new_outcomes) :]):
                assert code == 0
                return outcomes
            outcomes[remaining[0]] = Outcome("contained", f"killed ({code})", "it ends its own process")
            if not (attacks := remaining[1:]):
                return outcomes

    def _run_until_killed(
        self, level: int | None, attacks: Sequence[str], kind: str
    ) -> tuple[list[str], dict[str, Outcome], int]:
        """Run attacks until the model ends; return the planned names, the outcomes so far and the exit code."""
        inside = str(self.sandbox_files.folder / "inside")
        scratch = str(self.folder / "tmp")  # in place of a pod's own /tmp
        plan = {
            "path": [str(self.sandbox_files.folder), inside],
            "confinement": level
            and {
                "level": level,
                "readonly": [self.targets["environment"], self.targets["model"], inside],
                "memory": 1 << 30,
                **KINDS[kind],
                **({"writable": [scratch, "/dev/shm"]} if kind == "pod" else {}),
            },
            "attacks": list(attacks),
            "targets": self.targets | {"tmp": "/tmp" if level and kind != "pod" else scratch},
        }
        inherited = os.open("/dev/null", os.O_RDONLY)
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with self.sandbox_files.start(
            self.user, "model.py", json.dumps(plan), pass_fds=[inherited], **streams
        ) as model:
            os.close(inherited)
            out, err = model.communicate(b"typed by the starter", timeout=120)
        lines = [json.loads(line) for line in out.splitlines()]
        assert lines, err.decode()
        return lines[0], {name: Outcome(*values) for name, *values in lines[1:]}, model.returncode
