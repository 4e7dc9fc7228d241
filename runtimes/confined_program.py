"""Start of a confined program: one of the platform's programs that works on files of users, in a sandbox of its own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runtimes import harness

_BOOT = "import sys; sys.path.insert(0, sys.argv.pop(1)); from harness.sandbox.program import main; main()"
#: The folder that contains the harness.
_ABOVE = str(Path(harness.__file__).parents[1])

#: How often a program is run that is killed from outside each time, before that is the end of what it works on.
ATTEMPTS = 3
#: Signals from outside, which say nothing of what a program worked on.
KILLS = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


def start(
    command: Sequence[str], environ: Mapping[str, str], confinement: Mapping[str, Any], *, keep: Sequence[int] = ()
) -> "subprocess.Popen[bytes]":
    """Start a program in a process group of its own; its standard error is a pipe.

    ``confinement``: fields of `Confinement`; ``keep``: descriptors that it inherits. The program ends with the thread
    that started it.
    """
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-B", "-c", _BOOT, _ABOVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=tuple(keep),
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        cwd="/",
        start_new_session=True,
    )
    document = {
        "command": list(command),
        "environ": dict(environ),
        "confinement": {**confinement, "program": True, "keep": list(keep)},
    }
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
        stdin.write(json.dumps(document).encode())
    return process


def killed(code: int) -> str | None:
    """Return how a program was killed from outside, from its exit code; None if it ended by itself.

    The kernel's out-of-memory killer and operators send these signals. A fault of the program itself has others.
    """
    number = -code if code < 0 else code - 128
    return f"killed by {signal.Signals(number).name}" if number in KILLS else None


def give(user: int, folders: Iterable[Path], *, contents: bool) -> None:
    """Let a user own folders and, with ``contents``, what is directly in them."""
    for folder in folders:
        os.chown(folder, user, user)
        for path in folder.iterdir() if contents else ():
            os.chown(path, user, user, follow_symlinks=False)
