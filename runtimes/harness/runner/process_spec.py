"""Process spec: interpreter, environment, descriptors and sandbox of an evaluator's or model server's process."""

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Dies with its parent, also when the parent was gone before it could ask; then becomes the named module.
BOOT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.getppid() == int(sys.argv[1]) or os._exit(1); "
    "sys.path[:0] = sys.argv[2].split(':'); del sys.argv[1:3]; from harness.{entry} import main; main()"
)
#: The module with `main` of each kind of process.
ENTRIES: Mapping[str, str] = {
    "runner": "runner.runner",
    "evaluator": "evaluator.evaluator",
    "model_server": "model_server.model_server",
}
#: Nothing of the machine's environment; hashes are not salted, or a model that walks a set would differ between runs.
ENVIRON: Mapping[str, str] = {
    "HOME": "/tmp",
    "LC_ALL": "C.UTF-8",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PATH": "/usr/bin:/bin",
    "PYTHONHASHSEED": "0",
    "TMPDIR": "/tmp",
}
#: As isolated as `-I`, which would also ignore the hash seed: the environment is ours entirely. No `.pth` file is read.
FLAGS = ("-s", "-S", "-B", "-P", "-u")


@dataclass(frozen=True, kw_only=True, slots=True)
class Birth:
    """What a process is to become; made of strings and numbers, so that it travels as JSON.

    ``told`` is what its module is told, ``readonly`` what it sees besides its own packages, ``memory`` in bytes.
    """

    name: str
    module: str
    told: Mapping[str, Any]
    confined: bool
    memory: int
    readonly: tuple[str, ...] = ()
    may_fork: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Ground:
    """What a process is born on: an interpreter, this harness, its packages, and how well it can be confined there."""

    python: str
    harness: str
    site: str
    level: int | None


def bear(birth: Birth, ground: Ground, descriptors: Mapping[str, int], output: int) -> "subprocess.Popen[bytes]":
    """Start a process that prints to ``output`` and is told its ``descriptors`` by name.

    From the main thread only: the kernel ties a child's request to die with its parent to the thread that forked it.
    """
    keep = tuple(descriptors.values())
    confinement = None
    if birth.confined:
        confinement = {"readonly": [ground.site, *birth.readonly], "memory": birth.memory, "keep": list(keep)}
        confinement |= {"level": ground.level, "may_fork": birth.may_fork}
    told = {**birth.told, **descriptors, "confinement": confinement}
    paths = f"{os.path.dirname(ground.harness)}:{ground.site}"
    boot = BOOT.format(entry=ENTRIES[birth.module])
    return subprocess.Popen(
        [ground.python, *FLAGS, "-c", boot, str(os.getpid()), paths, json.dumps(told)],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=keep,
        env=dict(ENVIRON),
        cwd="/",
        start_new_session=True,  # the terminal's Ctrl-C is for the supervisor
    )


def ending(code: int) -> str:
    """Tell in words how a process ended, from its return code (a sandbox passes a signal on as 128 + its number)."""
    number = -code if code < 0 else code - 128
    if number > 0 and number in set(signal.Signals):
        name = signal.Signals(number).name
        return f"killed by {name}" + (" (out of memory?)" if number == signal.SIGKILL else "")
    return f"it exited with code {code}"
