"""Runner processes: a runner's process as the node agent sees it, started by the agent or forked by a fork server.

Start from the main thread only: a process's request to die with its parent follows the thread that forked it.
"""

import json
import os
import select
import signal
import socket
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from runtimes import harness
from runtimes.harness import python_process


class StartedProcess:
    """A child of the agent. ``entry``: the harness's module that it runs."""

    def __init__(
        self, python: str, entry: str, options: Mapping[str, Any], descriptors: Mapping[str, int], output: IO[bytes]
    ) -> None:
        paths = (str(Path(harness.__file__).parent.parent), sysconfig.get_path("purelib"))
        self._popen = python_process.start(python, entry, paths, options, descriptors, output.fileno())
        self.end = os.pidfd_open(self._popen.pid)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    def ended(self) -> bool:
        """Whether it has ended."""
        return _readable(self.end)

    def kill(self) -> None:
        """Kill it; its children die with it (parent-death signal)."""
        signal.pidfd_send_signal(self.end, signal.SIGKILL)

    def reap(self) -> int:
        """Wait for its end; return its exit code."""
        code = self._popen.wait()
        os.close(self.end)
        return code


class ForkedProcess:
    """A child of a fork server, which writes its exit code on a control socket and kills it when that is closed.

    It also ends with the connection to the fork server, which is its own from now on.
    """

    def __init__(
        self,
        fork_server: socket.socket,
        options: Mapping[str, Any],
        descriptors: Mapping[str, int],
        output: IO[bytes],
    ) -> None:
        self._fork_server = fork_server
        self._control, remote = socket.socketpair()
        spec = {"name": "runner", "module": "runner", "options": options, "confined": False, "memory": 0}
        order = json.dumps({"birth": spec | {"readonly": ()}, "descriptors": list(descriptors)}).encode()
        with remote:
            socket.send_fds(fork_server, [order], [output.fileno(), remote.fileno(), *descriptors.values()])
        self.end = self._control.fileno()
        self._code: int | None = None

    def ended(self) -> bool:
        """Whether it has ended, or its fork server, with which it ends."""
        if self._code is None and _readable(self.end):
            self._code = self._read()
        return self._code is not None

    def kill(self) -> None:
        """Kill it; the processes that it ordered end with their connections."""
        if self._code is None:
            self._control.shutdown(socket.SHUT_WR)

    def reap(self) -> int:
        """Wait for its end; return its exit code."""
        code = self._read() if self._code is None else self._code
        self._control.close()
        self._fork_server.close()
        return code

    def _read(self) -> int:
        try:
            return int(self._control.recv(64))
        except (OSError, ValueError):
            return -signal.SIGKILL


def _readable(descriptor: int) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))
