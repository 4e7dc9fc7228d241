"""Conversation with a process of the server on this machine: JSON objects, a line each, on its standard streams."""

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, Any

import msgspec

from windtunnel.errors import WindtunnelError
from windtunnel.server_command import server_command
from windtunnel.visible_text import visible

#: Seconds in which a process ends after its input has ended, before it is killed.
END_SECONDS = 3.0
#: The most characters of a process's standard error that an error shows, its last ones.
SHOWN = 2000


class LocalError(WindtunnelError):
    """What was asked of this machine is not possible; ``type`` is the slug of the reason, such as ``unknown-model``."""

    def __init__(self, detail: str, type: str = "refused") -> None:
        super().__init__(detail)
        self.type = type


class ProcessEnded(LocalError):
    """The process has ended in the middle of the conversation."""


class Conversation:
    """A process and its two streams; used by one thread at a time. Close it: the process does not outlive it.

    ``descriptors``: those that it inherits besides.
    """

    def __init__(self, command: str, arguments: Sequence[str], descriptors: Sequence[int] = ()) -> None:
        server = server_command()
        environ = server.environ
        if server.checkout is not None:
            environ.setdefault("WINDTUNNEL_HOME", str(server.checkout / "var"))
        self._errors: IO[bytes] = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [*server.arguments, command, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environ,
            pass_fds=descriptors,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._orders, self._answers = self._process.stdin, self._process.stdout

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    def send(self, message: Any) -> None:
        """Send a message; that the process has ended is said by the next `receive`."""
        with contextlib.suppress(BrokenPipeError):
            self._orders.write(msgspec.json.encode(message) + b"\n")
            self._orders.flush()

    def receive(self) -> tuple[str, Any]:
        """Return the kind and the body of the next message; raise LocalError, or ProcessEnded if there is none."""
        line = self._answers.readline()
        if not line.endswith(b"\n"):
            raise self._ended()
        try:
            ((kind, body),) = msgspec.json.decode(line).items()
        except (msgspec.MsgspecError, ValueError, AttributeError):
            raise LocalError(
                f"The process on this machine answered something else: {visible(str(line[:200]))}"
            ) from None
        if kind == "error":
            raise LocalError(body["detail"], body["type"])
        return kind, body

    def messages(self) -> Iterator[tuple[str, Any]]:
        """Yield messages; the caller stops at the last one."""
        while True:
            yield self.receive()

    def _ended(self) -> ProcessEnded:
        try:
            code = self._process.wait(END_SECONDS)
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        except subprocess.TimeoutExpired:
            how = "closed its output"
        with contextlib.suppress(ValueError, OSError):
            self._errors.seek(0, os.SEEK_SET)
            said = visible(self._errors.read().decode(errors="replace"))[-SHOWN:].strip()
            how += f"; it said: {said}" if said else ""
        self.close()
        return ProcessEnded(f"The process on this machine {how}", "process-ended")

    def close(self) -> None:
        """End the process, with everything that it started; may be called twice."""
        with contextlib.suppress(BrokenPipeError):
            self._orders.close()
        try:
            self._process.wait(0 if self._process.poll() is not None else END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()
        self._errors.close()

    def __enter__(self) -> "Conversation":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
