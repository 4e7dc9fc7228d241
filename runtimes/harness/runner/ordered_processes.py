"""Ordered processes: those that a container init or a fork server started on a runner's order, with control sockets.

On the control socket it is written how the process ended; a number read there pins the process to a core, a pipe that
comes with a message gets the process's times, and the end of the socket kills the process (remote_spawner.py).
Standard library only: containers of model servers have nothing else.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .cpu_pinning import pin
from .memory_kills import memory_kills
from .process_times import process_times


@dataclass(frozen=True, slots=True)
class _Process:
    """A living process. ``on_exit``: gets its exit code, and the memory kills that were counted when it started."""

    control: socket.socket
    owner: object
    kills_before: int | None
    on_exit: Callable[[int, int | None], str]


class OrderedProcesses:
    """The living processes. Their owners' loop selects; keys of the selector have callbacks as their data."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._living: dict[int, _Process] = {}
        self._wake_reader, wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        wake_writer.setblocking(False)
        self._wake_writer = wake_writer
        signal.set_wakeup_fd(wake_writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        selector.register(self._wake_reader, selectors.EVENT_READ, self._reap)

    def add(
        self, pid: int, control: socket.socket, on_exit: Callable[[int, int | None], str], owner: object = None
    ) -> None:
        """Supervise a child. ``on_exit`` returns what is written on its control socket, of which a copy is kept."""
        own = control.dup()
        self._living[pid] = _Process(own, owner, memory_kills(), on_exit)
        self._selector.register(own, selectors.EVENT_READ, lambda: self._on_control(pid))

    def kill_all(self, owner: object = None) -> None:
        """Kill the processes of an owner, and wait for their ends."""
        pids = [pid for pid, process in self._living.items() if process.owner is owner]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            with contextlib.suppress(ChildProcessError):
                self._ended(pid, os.waitpid(pid, 0)[1])

    def _on_control(self, pid: int) -> None:
        """Pin the process to the core that the runner names, or write its times to the pipe that the runner passed.

        If the runner closed the control socket, kill the process.
        """
        process = self._living.get(pid)
        if process is None:
            return  # it was reaped a moment ago
        pipes: list[int] = []
        try:
            command, pipes, _, _ = socket.recv_fds(process.control, 1 << 10, 4)
        except OSError:
            command = b""
        for pipe in pipes:
            with open(pipe, "wb", buffering=0) as file, contextlib.suppress(OSError):  # the runner has closed it
                file.write(json.dumps(process_times(pid)).encode())
        if command.endswith(b"\n"):
            if cores := [int(word) for word in command.split() if word.isdigit()]:
                pin(pid, cores[-1])
        else:
            self._selector.unregister(process.control)
            os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        """Reap all children that have ended, orphans too, and report on their control sockets."""
        with contextlib.suppress(BlockingIOError):
            while self._wake_reader.recv(1 << 10):
                pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._ended(pid, status)

    def _ended(self, pid: int, status: int) -> None:
        if (process := self._living.pop(pid, None)) is None:
            return  # an orphan
        with process.control as control:
            with contextlib.suppress(KeyError):  # the runner had closed it
                self._selector.unregister(control)
            report_exit(control, process.on_exit(os.waitstatus_to_exitcode(status), process.kills_before))

    def forget(self) -> None:
        """In a forked child: give up the signals of the parent."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def report_exit(control: socket.socket, status: str) -> None:
    """Write on the control socket how a process ended."""
    with contextlib.suppress(OSError):  # the runner has closed its end
        control.send(status.encode(), socket.MSG_NOSIGNAL)


def receive_order(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return a runner's next order and its descriptors; None once the runner has disconnected."""
    try:
        data, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, 8)
    except OSError:
        return None
    return (json.loads(data), descriptors) if data else None
