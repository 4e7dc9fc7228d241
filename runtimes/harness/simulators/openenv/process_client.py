"""Process client: the evaluator's view of an environment's processes, and of what they print."""

import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...forking.scenario_sockets import ScenarioSockets, last_words
from ...python_process import ENVIRON, FLAGS, ending
from ...visible_text import visible
from ..base import SimulatorBroken

#: Seconds for importing an environment, and for forking the process of a scenario.
IMPORT, FORK = 120.0, 20.0
#: Bytes of output that are kept, and that a pipe holds.
KEPT, PIPE = 4096, 1 << 20
#: Seconds to wait for output that a process printed before its end.
OUTPUT_WAIT = 0.3
#: The most characters of a printed line in a reason.
LINE = 300
_MESSAGE = 1 << 16
#: Message with which a process's socket is passed.
OFFER = b"socket"
_F_SETPIPE_SZ = 1031
_HARNESS = str(Path(__file__).parents[2])
#: As BOOT of harness/python_process.py, but the harness is loaded from its folder: in the sandbox, the folder above it
#: cannot be listed.
_BOOT = (
    "import ctypes, importlib.util, os, sys; ctypes.CDLL(None).prctl(1, 9);"
    " os.getppid() == int(sys.argv[1]) or os._exit(1); found = importlib.util.spec_from_file_location('harness',"
    " sys.argv[2] + '/__init__.py', submodule_search_locations=[sys.argv[2]]);"
    " sys.modules['harness'] = importlib.util.module_from_spec(found); del sys.argv[1:3];"
    " from harness.environment_server.environment_launcher import main; main()"
)


class EnvironmentFault(Exception):
    """The environment crashed, did not answer in time, or answered something else than its dataset declares."""


class Output:
    """What an environment's processes print: passed on to this process's standard error, with its end kept."""

    def __init__(self, reading: int) -> None:
        self._reading = reading
        self._end = b""
        threading.Thread(target=self._relay, name="environment-output", daemon=True).start()

    def last_line(self) -> str:
        """Return the last line that was printed, without control characters; empty: nothing was."""
        self._await()
        lines = [line for line in self._end.decode(errors="replace").splitlines() if line.strip()]
        return visible(lines[-1].strip())[:LINE] if lines else ""

    def forget(self) -> None:
        """Forget what was printed until now: a new scenario begins."""
        self._await()
        self._end = b""

    def _await(self) -> None:
        """Wait until the thread has read what is in the pipe."""
        until = time.monotonic() + OUTPUT_WAIT
        while any(struct.unpack("i", fcntl.ioctl(self._reading, termios.FIONREAD, bytes(4)))):
            if time.monotonic() > until:
                return
            time.sleep(0.002)

    def _relay(self) -> None:
        while piece := os.read(self._reading, 1 << 16):
            self._end = (self._end + piece)[-KEPT:]
            os.write(2, piece)


class EnvironmentProcesses:
    """The launcher, and the zygote of one environment. ``level``: that of the evaluator's sandbox; 0: there is none."""

    def __init__(self, level: int) -> None:
        local, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        reading, writing = os.pipe()
        fcntl.fcntl(reading, _F_SETPIPE_SZ, PIPE)
        options = {"control": remote.fileno(), "sealed": level > 1, "scratch": level == 3}
        with remote:
            self._process = subprocess.Popen(
                [
                    os.path.realpath(sys.executable),
                    *FLAGS,
                    "-c",
                    _BOOT,
                    str(os.getpid()),
                    _HARNESS,
                    json.dumps(options),
                ],
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                pass_fds=[remote.fileno()],
                env={**ENVIRON, "PATH": "/nonexistent"},
                cwd="/",
            )
        os.close(writing)
        self._launcher = local
        self._reading = reading
        self._output: Output | None = None
        self._order: Mapping[str, Any] = {}
        self._zygote: socket.socket | None = None
        self._sockets: ScenarioSockets | None = None
        self._next: socket.socket | None = None  # of the process that waits for the next scenario

    @property
    def output(self) -> Output:
        """What the processes print; the thread that reads it is started after the evaluator's seal."""
        if self._output is None:
            self._output = Output(self._reading)
        return self._output

    def start(self, order: Mapping[str, Any]) -> None:
        """Import the environment of an order (environment_server/environment_zygote.py). Raises EnvironmentFault."""
        assert self.output is not None
        self.stop()
        self._order = order
        local, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with remote:
            socket.send_fds(self._launcher, [json.dumps(dict(order)).encode()], [remote.fileno()])
        self._zygote, self._sockets = local, ScenarioSockets(local, OFFER)
        self._sockets.offer()
        message = self._receive(IMPORT, "it was not imported")
        if "error" in message:
            raise self.fault(f"it cannot be imported: {visible(str(message['error']))[:500]}", printed=False)

    def scenario(self) -> socket.socket:
        """Return the socket of a new scenario's process; the caller ends the scenario by closing it."""
        if self._zygote is None:
            self.start(self._order)
        if self._next is None:
            self._receive_next("no process was forked for the scenario")
        connected, self._next = self._next, None
        assert connected is not None and self._sockets is not None
        self._sockets.offer()  # of the scenario after this one, whose process is forked when this one's has ended
        self.output.forget()  # the zygote has passed on what the process before had printed
        return connected

    def explained_end(self) -> str:
        """Return how the scenario's process has ended, which closed its socket.

        Raises SimulatorBroken if it was killed from outside: the task is run again, as one whose evaluator has died.
        """
        try:
            code = self._receive_next("its process ended")
        except EnvironmentFault:
            return "its process ended"
        if code == -signal.SIGKILL:  # which its seal lets it send to nobody
            raise SimulatorBroken("the environment's process was killed from outside")
        return f"its process ended: {ending(code)}" if isinstance(code, int) and code else "it closed the connection"

    def fault(self, reason: str, *, printed: bool = True) -> EnvironmentFault:
        """Return the fault with this reason, and with the last line that was printed."""
        line = self.output.last_line() if printed else ""
        return EnvironmentFault(f"The dataset's environment failed: {reason}" + (f" ({line})" if line else ""))

    def stop(self) -> None:
        """End the environment's processes."""
        if self._next is not None:
            self._next.close()
            self._next = None
        if self._sockets is not None:
            self._sockets.close()
            self._sockets = None
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None

    def _receive_next(self, missing: str) -> Any:
        """Wait for the next scenario's process; return the exit code of the one before, if it ended early.

        One message tells both, because the zygote forks the next process when the one before has ended.
        """
        assert self._sockets is not None
        self._sockets.offer()
        message = self._receive(FORK, missing)
        self._next = self._sockets.take()
        return message.get("ended")

    def _receive(self, seconds: float, missing: str) -> dict[str, Any]:
        assert self._zygote is not None
        poller = select.poll()
        poller.register(self._zygote, select.POLLIN)
        if not poller.poll(seconds * 1000):
            self.stop()
            raise self.fault(f"{missing} within {seconds:g} s")
        try:
            message = json.loads(last_words(self._zygote, _MESSAGE))
        except (OSError, ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            self.stop()
            raise self.fault(f"{missing}: its first process ended")
        return message
