"""Supervisor: starts every role on this machine, restarts roles that end with exponential back-off, leaves no orphans.

It probes what it has started: a role that exists and does not answer is killed, and so restarted.

It has one thread, because it forks roles, and because each role asks the kernel for SIGKILL when its parent *thread*
ends (PR_SET_PDEATHSIG).
"""

import contextlib
import fcntl
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from server import probes, role_health
from server.logs import LogFile, terminal_text
from server.probes import Exchange, Health, Probe
from server.restart import REFUSED, decide_restart
from server.role_processes import ForkedProcess, execute, may_fork

#: Seconds between SIGTERM and SIGKILL.
STOP_TIMEOUT = 5.0
#: Requests to this machine never go through a proxy.
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
#: Failed probes of a role in succession after which the API says that it does not answer.
SILENT = 2
#: Seconds between two checks whether the platform is ready.
READY_INTERVAL = 0.05


class AlreadyRunning(Exception):
    """Another supervisor runs in this home."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Role:
    """Process to keep running, or to run ``once``; started when ``after()`` is true, stopped by ascending ``order``.

    A role that is run once and ends with REFUSED ends the platform: others wait for it, and it would end so again.

    It is a fork that runs ``main``, if there is one and this process has one thread; else it executes ``command``. It
    is killed when it does not answer its ``probe`` for ``patience`` seconds, a start included. Without one that is not
    ``vital``, everything progresses, only more slowly.
    """

    name: str
    command: Sequence[str]
    main: Callable[[], int] | None = None
    order: int = 0
    after: Callable[[], bool] = field(default=lambda: True)
    once: bool = False
    probe: Probe | None = None
    patience: float = 60.0
    vital: bool = True


@dataclass(slots=True, eq=False)
class SupervisedProcess:
    """A role's process, or the pause before it is restarted."""

    role: Role
    log: LogFile
    process: "ForkedProcess | subprocess.Popen[bytes] | None" = None
    pidfd: int = -1
    output: int = -1
    partial_line: bytes = b""
    started_at: float = 0.0
    due_at: float = 0.0
    failures: int = 0
    health: Health = field(default_factory=Health)
    exchange: Exchange | None = None
    probed_at: float = 0.0

    @property
    def failure(self) -> str | None:
        """What is wrong with a vital role that works no more; a restart by itself is nothing."""
        if not self.role.vital:
            return None
        if self.health.failures >= SILENT:
            return "does not answer"
        return "ends again and again" if self.process is None and self.failures > 2 else None


class Supervisor:
    """Keeps roles running until SIGINT or SIGTERM."""

    def __init__(self, *, home: Path, run_dir: Path) -> None:
        """Lock this home folder, or raise AlreadyRunning."""
        self._run_dir = run_dir
        self._environ: dict[str, str] = {}
        self._logs = home / "logs"
        for folder, mode in ((home, 0o700), (run_dir, 0o700), (self._logs, 0o700)):
            folder.mkdir(mode=mode, parents=True, exist_ok=True)
        run_dir.chmod(0o700)
        self._lock = self._acquire_lock()
        self._selector = selectors.DefaultSelector()
        self._children: list[SupervisedProcess] = []
        self._signals = 0
        self._refused = False  # a role that runs once cannot start
        self._failing: dict[str, str] | None = None  # as noted last

    def _acquire_lock(self) -> int:
        """Lock this home folder for the life of this process; the kernel releases the lock however the process ends."""
        lock = os.open(self._run_dir / "supervisor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(lock, 20, 0).decode() or "unknown"
            os.close(lock)
            raise AlreadyRunning(f"Windtunnel is running in this home already (process {pid}).") from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        return lock

    def run(
        self,
        roles: Sequence[Role],
        environ: Mapping[str, str],
        ready: Callable[[], bool],
        on_ready: Callable[[], None],
        steps: Iterable[object] = (),
    ) -> int:
        """Keep the roles running until SIGINT or SIGTERM; call ``on_ready`` once, when ``ready`` first returns true.

        Return the exit status: 0, or REFUSED if a role that is run once cannot start.

        ``steps`` is work to be done by this process, in steps between which it watches the roles.
        """
        self._environ = dict(environ)
        self._children = [SupervisedProcess(role, LogFile(self._logs / f"{role.name}.log")) for role in roles]
        reader, writer = socket.socketpair()
        for end in (reader, writer):
            end.setblocking(False)
        signal.set_wakeup_fd(writer.fileno())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._count_signal)
        self._selector.register(reader, selectors.EVENT_READ, lambda: reader.recv(64))
        remaining = iter(steps)
        announced = working = False
        try:
            while not self._signals and not self._refused:
                self._start_due(time.monotonic())
                working = next(remaining, None) is not None
                if not announced and ready():
                    announced = True
                    on_ready()
                self._probe(time.monotonic())
                self._note_health()
                if working:
                    self._poll(0.0)
                else:
                    self._poll(READY_INTERVAL if not announced else self._pause(time.monotonic()))
        finally:
            role_health.note(self._run_dir, {})
            self._stop()
            os.close(self._lock)
        return REFUSED if self._refused else 0

    def _count_signal(self, number: int, frame: object) -> None:
        self._signals += 1

    def _pause(self, now: float) -> float:
        waiting = [child.due_at - now for child in self._children if child.process is None]
        return max(0.01, min([*waiting, 0.5 * probes.INTERVAL]))

    def _probe(self, now: float) -> None:
        """Continue the probes, begin those that are due, and kill the roles that hang."""
        for child in self._children:
            if child.process is None or child.role.probe is None:
                continue
            if child.exchange is not None:
                answered = child.exchange.result()
                if answered is None and now - child.probed_at < probes.ANSWER:
                    continue
                child.exchange.close()
                child.exchange = None
                child.health = child.health.after(bool(answered), child.probed_at)
                if child.health.is_hung(now, child.role.patience):
                    print_line(f"{child.role.name} does not answer; it is killed")
                    signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
                    child.health = Health()
            elif now - child.probed_at >= probes.INTERVAL:
                child.exchange, child.probed_at = child.role.probe(), now

    def _note_health(self) -> None:
        """Note for the API which roles do not work, when that has changed."""
        failing = {child.role.name: what for child in self._children if (what := child.failure) is not None}
        if failing != self._failing:
            self._failing = failing
            role_health.note(self._run_dir, failing)

    def _poll(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            # An earlier event of this batch may have closed the descriptor, and its number may have been reused.
            if self._selector.get_map().get(key.fileobj) is key:
                key.data()

    def _start_due(self, now: float) -> None:
        for child in self._children:
            if child.process is None and now >= child.due_at and child.role.after():
                self._start(child, now)

    def _start(self, child: SupervisedProcess, now: float) -> None:
        reader, writer = os.pipe()
        role = child.role
        if role.main is not None and may_fork():
            child.process = ForkedProcess(role.name, role.main, environ=self._environ, output=writer)
        else:
            child.process = execute(role.command, environ=self._environ, output=writer)
        os.close(writer)
        os.set_blocking(reader, False)
        child.output, child.started_at, child.health, child.probed_at = reader, now, Health(), now
        child.pidfd = os.pidfd_open(child.process.pid)
        self._selector.register(child.output, selectors.EVENT_READ, lambda: self._read_output(child))
        self._selector.register(child.pidfd, selectors.EVENT_READ, lambda: self._handle_exit(child))

    def _read_output(self, child: SupervisedProcess) -> bool:
        """Copy a role's output to its log file, and warnings to the terminal; return whether there was any output."""
        try:
            data = os.read(child.output, 1 << 16)
        except BlockingIOError:
            return False
        lines, _, child.partial_line = (child.partial_line + data).rpartition(b"\n")
        if lines:
            child.log.write(lines + b"\n")
            for line in lines.split(b"\n"):
                if (text := terminal_text(line)) is not None:
                    print_line(f"{child.role.name}: {text}")
        if not data and child.output in self._selector.get_map():
            self._selector.unregister(child.output)
        return bool(data)

    def _handle_exit(self, child: SupervisedProcess) -> None:
        assert child.process is not None
        while self._read_output(child):
            pass
        self._selector.unregister(child.pidfd)
        if child.output in self._selector.get_map():
            self._selector.unregister(child.output)
        if child.exchange is not None:
            child.exchange.close()
            child.exchange = None
        code = child.process.wait()
        os.close(child.pidfd)
        os.close(child.output)
        child.process = None
        if self._signals or self._refused:
            return
        if child.role.once and code == REFUSED:
            self._refused = True
            return
        if child.role.once and code == 0:
            self._children.remove(child)
            child.log.close()
            return
        now = time.monotonic()
        child.failures, pause = decide_restart(child.failures, uptime=now - child.started_at)
        child.due_at = now + pause
        print_line(f"{child.role.name} ended ({exit_reason(code)}); it is restarted in {pause:.1f} s")
        if child.failures > 2:
            print_line(f"see {self._logs / child.role.name}.log")

    def _stop(self) -> None:
        """Stop every role with SIGTERM, dependants first; SIGKILL after STOP_TIMEOUT or at a further signal."""
        for order in sorted({child.role.order for child in self._children}):
            group = [child for child in self._children if child.role.order == order]
            for child in group:
                if child.process is not None:
                    signal.pidfd_send_signal(child.pidfd, signal.SIGTERM)
            before = self._signals
            deadline = time.monotonic() + STOP_TIMEOUT
            while any(child.process is not None for child in group):
                self._poll(0.1)
                if time.monotonic() > deadline or self._signals > before:
                    for child in group:
                        if child.process is not None:
                            signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
        for child in self._children:
            child.log.close()


def exit_reason(code: int) -> str:
    """Describe how a process ended."""
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def is_answered(url: str, seconds: float) -> bool:
    """Return whether a GET of a URL is answered 200 within so many seconds."""
    try:
        with direct.open(url, timeout=seconds) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def print_line(line: str) -> None:
    """Print a line on standard error; a closed terminal or a full disk behind it is ignored."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)
