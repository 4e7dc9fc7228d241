"""Python process: how each process of the harness is started, its flags and environment, and how one has ended."""

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

#: Sets the parent-death signal, exits if the parent ended before that, then runs the named module.
BOOT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.getppid() == int(sys.argv[1]) or os._exit(1); "
    "sys.path[:0] = sys.argv[2].split(':'); del sys.argv[1:3]; from harness.{entry} import main; main()"
)
#: Nothing of the host's environment. Hashes are unsalted, or a model that iterates a set would differ between runs.
ENVIRON: Mapping[str, str] = {
    "HOME": "/tmp",
    "LC_ALL": "C.UTF-8",
    # Symbols are bound once, not again in each process that is forked from another.
    "LD_BIND_NOW": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",  # onnxruntime would start a thread for it and open a database
    "PATH": "/usr/bin:/bin",
    "PYTHONHASHSEED": "0",
    "TMPDIR": "/tmp",
}
#: As isolated as `-I`, which would also ignore the hash seed; ENVIRON is the whole environment. No `.pth` file is read.
FLAGS = ("-s", "-S", "-B", "-P", "-u")


def start(
    python: str,
    entry: str,
    paths: Sequence[str],
    options: Mapping[str, Any],
    descriptors: Mapping[str, int],
    output: int,
) -> "subprocess.Popen[bytes]":
    """Start `main` of the harness's module ``entry``, with ``paths`` before Python's own; it prints to ``output``.

    It reads ``options`` and the numbers of its ``descriptors``, by name, as JSON from its command line. It dies with
    the thread that calls this, so call it from the main thread only: the kernel ties a parent-death signal to a thread.
    """
    return subprocess.Popen(
        [
            python,
            *FLAGS,
            "-c",
            BOOT.format(entry=entry),
            str(os.getpid()),
            ":".join(paths),
            json.dumps({**options, **descriptors}),
        ],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=tuple(descriptors.values()),
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
