"""Process of a model's program: a child of the scenario's process, started before the seal and confined like it.

It keeps `execve`, by which it becomes the program, and nothing else that the scenario's process has not. It cannot
fork, and the kernel kills it when the scenario's process ends.
"""

import contextlib
import ctypes
import errno
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from .misfits import Misfit

#: Variables for runtimes that start a thread per processor otherwise: many model servers share the machine.
ENVIRONMENT: Mapping[str, str] = {"GOMAXPROCS": "1", "RAYON_NUM_THREADS": "1"}
#: Why the kernel refuses to execute a file that exists.
REASONS: Mapping[int, str] = {
    errno.ENOENT: "its interpreter is not there; link the program statically, or against the C library of Debian 12",
    errno.ENOEXEC: "it is neither a program for this machine nor a script",
    errno.EACCES: "it is a folder, or its interpreter may not be executed",
}


#: The same of a file that begins with `#!`.
SCRIPT = (
    "it is a script (it begins with `#!`), and programs find no shell and no Python here; send a `.py` as a Python"
    " model (docs/python-models.md), or compile a program"
)


class ProgramFailed(Exception):
    """The program has answered an error."""


class ProgramProcess:
    """A running program, whose standard streams are pipes, unless it has a socket."""

    def __init__(self, popen: "subprocess.Popen[bytes]") -> None:
        self._popen = popen

    @classmethod
    def start(
        cls, command: Sequence[str], folder: Path, *, confined: bool, passed: socket.socket | None = None
    ) -> "ProgramProcess":
        """Start a program in the folder of its files; ``passed`` is a socket that it inherits under the same number.

        Raise Misfit if the kernel refuses to execute it.
        """
        parent = os.getpid()
        stream = subprocess.PIPE if passed is None else subprocess.DEVNULL
        try:
            popen = subprocess.Popen(
                command,
                executable=folder / command[0],
                cwd=folder,
                env={**os.environ, **ENVIRONMENT},
                stdin=stream,
                stdout=stream if passed is None else None,
                pass_fds=() if passed is None else (passed.fileno(),),
                preexec_fn=lambda: _confine(parent, confined=confined),
            )
        except OSError as error:
            reason = SCRIPT if _is_script(folder / command[0]) else REASONS.get(error.errno or 0, str(error.strerror))
            raise Misfit(f"the program {command[0]!r} cannot be executed: {reason}") from None
        return cls(popen)

    def write(self, line: bytes) -> None:
        """Write to its standard input. Raises ProgramEnded."""
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(line)
            self._popen.stdin.flush()
        except BrokenPipeError:
            raise self.ended() from None

    def read_line(self, largest: int) -> bytes:
        """Read a line of at most so many bytes, or so many bytes, from its standard output. Raises ProgramEnded."""
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline(largest)
        if not line.endswith(b"\n") and len(line) < largest:
            raise self.ended()
        return line

    def ended(self) -> "ProgramEnded":
        """Return how a program ended that has closed its streams; it may not have exited yet."""
        for stream in (self._popen.stdin, self._popen.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):  # what it has not read
                    stream.close()
        return ProgramEnded(self._popen.wait())


class ProgramEnded(Exception):
    """The program has ended. ``code``: its exit code, or the negative number of its signal."""

    def __init__(self, code: int) -> None:
        self.code = code
        how = f"exited with code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
        super().__init__(f"the program {how}")

    def before_load(self) -> Misfit:
        """Return the refusal of a model whose program ended before it was ready."""
        return Misfit(f"{self} before it had answered `load`; its output is in the log")

    def exit_like_it(self) -> NoReturn:
        """Exit as the program did, so that the scenario's result tells it; a signal as a shell does, 128 plus it.

        That of SIGKILL is not for a program to choose: a task whose program is killed from outside is run again.
        """
        code = self.code if self.code >= 0 else 128 - self.code
        os._exit(1 if self.code == 128 + signal.SIGKILL else code)


def _is_script(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def _confine(parent: int, *, confined: bool) -> None:
    """In the child, before it becomes the program."""
    if confined:
        from ..sandbox import seal

        seal(may_execute=True, scenario=True)
    else:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)  # it ended before the kernel was asked to end this process with it
