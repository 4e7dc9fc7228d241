"""The supervisor: starts every role on this machine, starts again what dies, and leaves nothing behind.

One thread: what is started here asks the kernel to die with it, and that request follows the thread.
"""

import contextlib
import ctypes
import fcntl
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from server.logs import LogFile, worth_telling

#: Seconds before what died is started again: first, and at most; and how long it must live to begin at the first again.
SOON, LATE, SOUND = 0.1, 15.0, 10.0
#: Seconds a role has to end when asked to.
PATIENCE = 5.0
#: Seconds between two looks at whether the platform answers.
LOOK = 0.05
PR_SET_PDEATHSIG = 1


class AlreadyRunning(Exception):
    """Another supervisor runs in this home."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Role:
    """A process to keep running, or to run ``once``; started when ``after`` says so, stopped by ascending ``order``."""

    name: str
    command: Sequence[str]
    order: int = 0
    after: Callable[[], bool] = field(default=lambda: True)
    once: bool = False


@dataclass(slots=True, eq=False)
class Child:
    """A role's process, or the pause before its next."""

    role: Role
    log: LogFile
    process: "subprocess.Popen[bytes] | None" = None
    pidfd: int = -1
    output: int = -1
    rest: bytes = b""
    started_at: float = 0.0
    due_at: float = 0.0
    deaths: int = 0


class Supervisor:
    """Keeps roles running until a signal comes."""

    def __init__(self, *, home: Path, run_dir: Path) -> None:
        """Claim this home, or raise AlreadyRunning."""
        self._run_dir = run_dir
        self._environ: dict[str, str] = {}
        self._logs = home / "logs"
        for folder, mode in ((home, 0o755), (run_dir, 0o700), (self._logs, 0o700)):
            folder.mkdir(mode=mode, parents=True, exist_ok=True)
        run_dir.chmod(0o700)
        self._lock = self._claim()
        self._selector = selectors.DefaultSelector()
        self._children: list[Child] = []
        self._signals = 0

    def _claim(self) -> int:
        """Hold the lock of this home for as long as we live; the kernel frees it however we end."""
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
    ) -> None:
        """Keep the roles running until SIGINT or SIGTERM; call ``on_ready`` once when ``ready`` first says so."""
        self._environ = dict(environ)
        self._children = [Child(role, LogFile(self._logs / f"{role.name}.log")) for role in roles]
        waking, woken = socket.socketpair()
        for end in (waking, woken):
            end.setblocking(False)
        signal.set_wakeup_fd(woken.fileno())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._asked)
        self._selector.register(waking, selectors.EVENT_READ, lambda: waking.recv(64))
        announced = False
        try:
            while not self._signals:
                self._start_due(time.monotonic())
                if not announced and ready():
                    announced = True
                    on_ready()
                self._listen(LOOK if not announced else self._pause(time.monotonic()))
        finally:
            self._stop()
            os.close(self._lock)

    def _asked(self, number: int, frame: object) -> None:
        self._signals += 1

    def _pause(self, now: float) -> float:
        waiting = [child.due_at - now for child in self._children if child.process is None]
        return max(0.01, min([*waiting, 5.0]))

    def _listen(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            # What came before in this batch may have closed it, and its number may have been given out again.
            if self._selector.get_map().get(key.fileobj) is key:
                key.data()

    def _start_due(self, now: float) -> None:
        for child in self._children:
            if child.process is None and now >= child.due_at and child.role.after():
                self._start(child, now)

    def _start(self, child: Child, now: float) -> None:
        reading, writing = os.pipe()
        parent = os.getpid()
        child.process = subprocess.Popen(
            child.role.command,
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            env=self._environ,
            start_new_session=True,  # Ctrl-C is for us
            preexec_fn=lambda: die_with(parent),  # one thread here, so it is safe
        )
        os.close(writing)
        os.set_blocking(reading, False)
        child.output, child.started_at = reading, now
        child.pidfd = os.pidfd_open(child.process.pid)
        self._selector.register(child.output, selectors.EVENT_READ, lambda: self._printed(child))
        self._selector.register(child.pidfd, selectors.EVENT_READ, lambda: self._ended(child))

    def _printed(self, child: Child) -> bool:
        """Take what a role printed to its log, and warnings to the terminal; tell whether there was anything."""
        try:
            data = os.read(child.output, 1 << 16)
        except BlockingIOError:
            return False
        whole, _, rest = (child.rest + data).rpartition(b"\n")
        child.rest = rest
        if whole:
            child.log.write(whole + b"\n")
            for line in whole.split(b"\n"):
                if (words := worth_telling(line)) is not None:
                    tell(f"{child.role.name}: {words}")
        if not data and child.output in self._selector.get_map():
            self._selector.unregister(child.output)
        return bool(data)

    def _ended(self, child: Child) -> None:
        assert child.process is not None
        while self._printed(child):
            pass
        self._selector.unregister(child.pidfd)
        if child.output in self._selector.get_map():
            self._selector.unregister(child.output)
        code = child.process.wait()
        os.close(child.pidfd)
        os.close(child.output)
        child.process = None
        if self._signals:
            return
        if child.role.once and code == 0:
            self._children.remove(child)
            child.log.close()
            return
        now = time.monotonic()
        child.deaths = 1 if now - child.started_at > SOUND else child.deaths + 1
        pause = min(LATE, SOON * 2 ** (child.deaths - 1))
        child.due_at = now + pause
        tell(f"{child.role.name} ended ({ending(code)}); it is started again in {pause:.1f} s")
        if child.deaths > 2:
            tell(f"see {self._logs / child.role.name}.log")

    def _stop(self) -> None:
        """End every role, those first that lean on others; what does not listen is killed."""
        for order in sorted({child.role.order for child in self._children}):
            group = [child for child in self._children if child.role.order == order]
            for child in group:
                if child.process is not None:
                    signal.pidfd_send_signal(child.pidfd, signal.SIGTERM)
            before = self._signals
            deadline = time.monotonic() + PATIENCE
            while any(child.process is not None for child in group):
                self._listen(0.1)
                if time.monotonic() > deadline or self._signals > before:
                    for child in group:
                        if child.process is not None:
                            signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
        for child in self._children:
            child.log.close()


def die_with(parent: int) -> None:
    """Ask for death with the parent, and die at once if it is gone already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def ending(code: int) -> str:
    """Tell in words how a process ended."""
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def answers(url: str) -> Callable[[], bool]:
    """Return a check whether a URL is answered 200."""

    def check() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=1.0) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    return check


def tell(line: str) -> None:
    """Say something to the person at the terminal; who may have gone, or have it written to a disk that is full."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)
