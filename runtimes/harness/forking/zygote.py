"""Zygote: a process that runs no code of users and forks a process for each scenario, which does.

A scenario's process shares no open file, socket, pipe or memory with the zygote or with the next scenario's process,
and may signal neither: what it changes ends with it. docs/sandbox.md lists the channels.
"""

import contextlib
import fcntl
import gc
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from ..sandbox import kernel
from .scratch import Scratch

#: Seconds that a process may take to exit after its scenario, before it is killed.
GRACE = 0.5
#: Bytes moved at once from a scenario's output to the zygote's, and seconds between two such moves.
PIECE, PAUSE = 1 << 16, 0.02
#: Bytes that the pipe of the zygote's output is to hold: each moved piece takes a page of it, however short.
OUTPUT = 1 << 20
#: Of a scenario's socket.
FAMILY, TYPE = socket.AF_UNIX, socket.SOCK_STREAM
#: The most bytes of the message with which a socket is passed, and of what comes with it: a descriptor.
OFFER, ONE_DESCRIPTOR = 64, socket.CMSG_SPACE(4)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScenarioPlan:
    """What every scenario's process does. ``sealed``: it is confined, and seals itself before it loads the model.

    ``start`` is called before the seal, which denies to start the user's programs; ``serve`` loads the user's code and
    serves a scenario on a socket; its second argument: whether it is the first. ``announce`` returns the message that
    tells the evaluator of a process that it runs; it gets the exit code of the process before, if that ended during
    its scenario, as one may only if the zygote ``survives`` it. Otherwise ``report`` returns the last message: how the
    process ended, negative for a signal. ``only_libraries``: the zygote has imported no code of users, which could rely
    on what Python does after a fork.
    """

    start: Callable[[], None]
    serve: Callable[[socket.socket, bool], None]
    announce: Callable[[int | None], bytes]
    sealed: bool
    scratch: Scratch | None
    survives: bool = False
    only_libraries: bool = False
    report: Callable[[int], bytes] = lambda code: b""


def run(control: socket.socket, plan: ScenarioPlan, first_socket: socket.socket | None = None) -> NoReturn:
    """Fork a process per scenario until the evaluator closes; exit like the first one that ends during its scenario,
    unless the zygote survives that.

    The evaluator passes each process's socket over ``control``, but for one that came before, and ends the scenario by
    closing the other end, which it keeps to itself (scenario_sockets.py).
    """
    with contextlib.suppress(OSError):  # not a pipe, or larger than this user may have
        fcntl.fcntl(sys.stdout.fileno(), fcntl.F_SETPIPE_SZ, OUTPUT)
    template = ProcessTemplate(plan)
    gc.collect()
    gc.freeze()
    first, code = True, None
    own = first_socket.detach() if first_socket is not None else _passed(control)
    while own >= 0:
        process = template.fork(own, first=first)
        connected = _told(control, plan.announce(code))
        code = process.wait() if connected else process.end()
        if plan.sealed:
            reap_programs()
        if plan.scratch is not None:
            plan.scratch.clear()
        if not connected:
            break
        if code is not None and not plan.survives:
            _told(control, plan.report(code))
            os._exit(code if code >= 0 else 128 - code)
        first = False
        own = _passed(control)
    os._exit(0)


def _passed(control: socket.socket) -> int:
    """Wait for the socket of the next scenario's process; return its descriptor, -1 once the evaluator is gone."""
    try:
        _, rights, _, _ = control.recvmsg(OFFER, ONE_DESCRIPTOR)
    except ConnectionError:
        return -1
    return int.from_bytes(rights[0][2], sys.byteorder) if rights else -1


def _told(control: socket.socket, message: bytes) -> bool:
    """Send the evaluator a message, if there is one; return whether the evaluator is still there."""
    try:
        if message:
            control.sendall(message)
    except ConnectionError:
        return False
    return True


class ProcessTemplate:
    """Forks the processes of scenarios, which find prepared here what is the same for all of them.

    A child copies each page that it writes to, so every object that it makes or uses first costs it microseconds.
    """

    def __init__(self, plan: ScenarioPlan) -> None:
        self._plan = plan
        self._zygote = os.getpid()
        alone = plan.only_libraries and threading.active_count() == 1
        self._fork = kernel.fork if alone else os.fork
        self._close_rest = closing_from(4)
        self._seal = _die_with_zygote
        if plan.sealed:
            from ..sandbox.seccomp import scenario_seal

            self._seal = scenario_seal()

    def fork(self, own: int, *, first: bool) -> "ScenarioProcess":
        """Fork a process, which waits for its scenario on its ``own`` socket."""
        null = os.open(os.devnull, os.O_RDONLY)
        output, writing = os.pipe()
        pid = self._fork()
        if pid == 0:
            self._run_scenario(null, own, writing, first=first)
        os.close(null)
        os.close(writing)
        return ScenarioProcess(pid, output, own)

    def _run_scenario(self, null: int, own: int, writing: int, *, first: bool) -> NoReturn:
        """In the new process: give up everything inherited, seal, serve one scenario, exit."""
        code, plan = 1, self._plan
        try:
            connected = self._replace_descriptors(null, own, writing)
            plan.start()
            self._seal()
            if os.getppid() == self._zygote:
                plan.serve(connected, first)
                code = 0
                if plan.scratch is not None:
                    plan.scratch.remove_contents()
        finally:
            exit_at_once(code)

    def _replace_descriptors(self, null: int, own: int, writing: int) -> socket.socket:
        """Leave only this process's own socket, output and standard input open, made for it alone.

        A descriptor that was open before shares its flags, its position and its locks with the zygote.
        """
        for source, target in ((null, 0), (writing, 1), (writing, 2), (own, 3)):
            os.dup2(source, target)
        self._close_rest()
        # With its family and type, which would otherwise be asked of the kernel and looked up in their enumerations.
        return socket.socket(FAMILY, TYPE, fileno=3)


class ScenarioProcess:
    """A scenario's process: its output, its end as a pidfd, and its socket."""

    def __init__(self, pid: int, output: int, own: int) -> None:
        self._pid = pid
        self._output = output
        self._end = os.pidfd_open(pid)
        self._own = own  # kept open: it shows that the evaluator has closed the other end

    def wait(self) -> int | None:
        """Relay the output until the process ends; return its exit code if the scenario had not ended before.

        Once the evaluator has closed the socket, the scenario is over: the process is killed if it does not exit.
        """
        poller = select.poll()
        poller.register(self._output, select.POLLIN)
        poller.register(self._own, 0)  # only POLLHUP: the evaluator has closed its end
        poller.register(self._end, select.POLLIN)
        over = pausing = False
        while True:
            ready = dict(poller.poll(GRACE * 1000 if over else PAUSE * 1000 if pausing else None))
            if self._end in ready:
                over = over or self._own in ready
                break
            if over and not ready:
                os.kill(self._pid, signal.SIGKILL)
            if self._own in ready:
                over = True
                poller.unregister(self._own)
            event = ready.get(self._output, 0)
            if event & select.POLLIN:
                self._relay(os.SPLICE_F_NONBLOCK)  # the process can read from its pipe, too
            if event and not event & select.POLLIN:
                poller.unregister(self._output)  # the process has closed it; the rest is relayed at its end
                pausing = False
            elif event or pausing:
                pausing = bool(event)
                poller.modify(self._output, 0 if pausing else select.POLLIN)
        code = self.end()
        return None if over else code

    def end(self) -> int:
        """Wait for the process to end, relay the rest of its output, close everything; return its exit code."""
        _, status = os.waitpid(self._pid, 0)
        poller = select.poll()
        poller.register(self._output, select.POLLIN)
        # Only what is there: the model may have passed the pipe to a socket, which keeps it open.
        while any(event & select.POLLIN for _, event in poller.poll(0)) and self._relay():
            pass
        for descriptor in (self._output, self._end, self._own):
            os.close(descriptor)
        return os.waitstatus_to_exitcode(status)

    def _relay(self, flags: int = 0) -> bool:
        """Move output from pipe to pipe, within the kernel; return whether more may follow.

        In the zygote's memory it would be inherited, freed but not cleared, by the next scenario's process.
        """
        try:
            return os.splice(self._output, sys.stdout.fileno(), PIECE, flags=flags) > 0
        except OSError:
            return False  # the reader of the model server's output has ended, or there is nothing to be moved at once


def _die_with_zygote() -> None:
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)


def closing_from(first: int) -> Callable[[], None]:
    """Return a function that closes every descriptor from a number on, also beyond the limit of this process."""
    close_range = kernel.prepare_call("close_range", first, 0x7FFFFFFF, 0)

    def close() -> None:
        try:
            close_range()
        except OSError:  # the sandbox does not know this architecture, or the kernel does not know the call
            os.closerange(first, os.sysconf("SC_OPEN_MAX"))

    return close


def reap_programs() -> None:
    """Wait for the model's programs, which the kernel kills when their scenario's process has ended.

    Until then one of them could write to the next scenario's folder. Only in a sandbox do none escape the kill.
    """
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def exit_at_once(code: int) -> NoReturn:
    """Exit without the model's exit hooks, and without waiting for its threads."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            code = code or 1  # the model closed or replaced the stream
    os._exit(code)
