"""Process spec: interpreter, environment, descriptors and sandbox of an evaluator's or model server's process."""

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Sets the parent-death signal, exits if the parent ended before that, then runs the named module.
BOOT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.getppid() == int(sys.argv[1]) or os._exit(1); "
    "sys.path[:0] = sys.argv[2].split(':'); del sys.argv[1:3]; from harness.{entry} import main; main()"
)
#: The module with `main` of each kind of process.
ENTRIES: Mapping[str, str] = {
    "runner": "runner.runner",
    "evaluator": "evaluator.evaluator",
    "model_server": "model_server.confined_start",
    "session": "session.session",
}
#: Nothing of the host's environment. Hashes are unsalted, or a model that iterates a set would differ between runs.
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
#: As isolated as `-I`, which would also ignore the hash seed; ENVIRON is the whole environment. No `.pth` file is read.
FLAGS = ("-s", "-S", "-B", "-P", "-u")


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessSpec:
    """What process to start; strings and numbers only. The field names travel as JSON to a container init.

    ``options``: the module's; ``readonly``: paths it may read besides its packages; ``memory`` and address
    space besides for ``libraries``, in bytes. ``site``: the folder of its packages, if they are not those of the
    installation.
    """

    name: str
    module: str
    options: Mapping[str, Any]
    confined: bool
    memory: int
    libraries: int = 0
    readonly: tuple[str, ...] = ()
    may_fork: bool = False
    site: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Installation:
    """Where processes run: interpreter, this harness, the packages' folder, and the available sandbox level."""

    python: str
    harness: str
    site: str
    level: int | None


def start_process(
    spec: ProcessSpec, installation: Installation, descriptors: Mapping[str, int], output: int
) -> "subprocess.Popen[bytes]":
    """Start a process that prints to ``output`` and gets its ``descriptors`` by name.

    From the main thread only: the kernel ties a child's parent-death signal to the thread that forked it.
    """
    keep = tuple(descriptors.values())
    site = spec.site or installation.site
    confinement = None
    if spec.confined:
        confinement = {"readonly": [site, *spec.readonly], "memory": spec.memory, "keep": list(keep)}
        confinement |= {"level": installation.level, "may_fork": spec.may_fork, "libraries": spec.libraries}
    options = {**spec.options, **descriptors, "confinement": confinement, "site": site}
    paths = os.path.dirname(installation.harness)
    if spec.module != "model_server":  # which puts its packages on the path itself, once it is confined
        paths += f":{site}"
    boot = BOOT.format(entry=ENTRIES[spec.module])
    return subprocess.Popen(
        [installation.python, *FLAGS, "-c", boot, str(os.getpid()), paths, json.dumps(options)],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=keep,
        env=dict(ENVIRON),
        cwd="/",
        start_new_session=True,  # the terminal's Ctrl-C is for the supervisor
    )


#: What `ending` returns for SIGKILL if nothing is known of its sender.
KILLED = "killed by SIGKILL"


def ending(code: int, *, kills_before: int | None = None, kills_after: int | None = None) -> str:
    """Describe how a process ended, from its return code (a sandbox reports a signal as 128 + its number).

    ``kills_before`` and ``kills_after``: `memory_kills` of its control group when it was started and now.
    """
    number = -code if code < 0 else code - 128
    if number <= 0 or number not in set(signal.Signals):
        return f"it exited with code {code}"
    if number == signal.SIGKILL and kills_before is not None and kills_after is not None and kills_after > kills_before:
        return f"{KILLED}: the kernel ended it or a process beside it because their control group was out of memory"
    return f"killed by {signal.Signals(number).name}"
