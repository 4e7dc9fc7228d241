"""Processes of roles: forks of this process, with all modules that it has imported, or programs that are executed."""

import ctypes
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_fork = multiprocessing.get_context("fork")


class ForkedProcess:
    """A fork of this process that runs a function. It looks like a process that was executed for this purpose.

    It has its own session, environment, output and random state, the default actions of signals, and no other open
    file of its parent. Its name (`ps -e`, /proc/PID/comm) is that of the role; its command line is its parent's.
    """

    def __init__(self, name: str, main: Callable[[], int], *, environ: Mapping[str, str], output: int) -> None:
        """Fork. ``output``: descriptor for standard output and error. This process must have one thread."""
        # A signal between the fork and the reset of its handlers must end the new process, not be counted in it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            self._process = _fork.Process(
                name=name, target=_run, args=(name, main, environ, output, os.getpid(), before)
            )
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def wait(self) -> int:
        """Wait for the end; return the exit status, negative for a signal."""
        self._process.join()
        code = self._process.exitcode
        assert code is not None
        self._process.close()
        return code


class ForkedCall:
    """A function that runs in a fork of this process: nothing that it imports, opens or reads stays in this process."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._answer, answer = _fork.Pipe(duplex=False)
        self._process = _fork.Process(target=_answer, args=(function, answer, os.getpid()))
        self._process.start()
        answer.close()

    def result(self) -> Any:
        """Wait for the value that the function returns; raise EOFError if it failed, which its process has printed."""
        try:
            return self._answer.recv()
        finally:
            self._answer.close()
            self._process.join()
            self._process.close()


def execute(command: Sequence[str], *, environ: Mapping[str, str], output: int) -> "subprocess.Popen[bytes]":
    """Execute a program that ends with this process."""
    parent = os.getpid()
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=environ,
        start_new_session=True,  # Ctrl-C reaches the supervisor only
        preexec_fn=lambda: die_with(parent),  # safe: the supervisor has one thread
    )


def may_fork() -> bool:
    """Return whether this process has one thread, native threads included: a fork would lack the others."""
    return len(os.listdir("/proc/self/task")) == 1


def die_with(parent: int, last: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel signal this process when its parent ends (PR_SET_PDEATHSIG); exit now if it has ended already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, last)
    if os.getppid() != parent:
        os._exit(1)


def _run(
    name: str, main: Callable[[], int], environ: Mapping[str, str], output: int, parent: int, mask: set[signal.Signals]
) -> None:
    """Run a role in a new fork. multiprocessing has given it /dev/null as standard input and seeded `random`."""
    die_with(parent)
    os.setsid()  # Ctrl-C reaches the supervisor only
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for standard in (1, 2):
        os.dup2(output, standard)
    # The objects to which these descriptors belong are those of the supervisor. They are never used or deleted here:
    # the frames below this one refer to them until this process exits without unwinding them.
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2:
            with suppress(OSError):  # that of the listing
                os.close(descriptor)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode())
    for key in os.environ.keys() - environ.keys():
        del os.environ[key]
    os.environ.update(environ)
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()
    gc.enable()
    sys.exit(main())


def _answer(function: Callable[[], Any], answer: Any, parent: int) -> None:
    die_with(parent)
    answer.send(function())
