"""The post: the first process of an evaluator's or model server's container; it starts processes as its runner orders.

``python -m runtimes.harness.runner.container_init evaluator|model_server [--posts FOLDER] [--site FOLDER]``

It connects to the runner's socket in the first folder, says how well it can confine, and for each order starts a
process with the descriptors that came along, confined (see process_spec.py); it writes on the process's leash how that
ended, and ends it when the runner lets go of the leash. When the runner hangs up it ends all it has started and exits
0: containers that end in a chain let a pod complete. SIGTERM alone does not end it while it has a runner: the kubelet
signals all containers at once, and a model server must not die first and look like a crash of the model's. As the
container's first process it reaps whatever is orphaned there.
"""

import argparse
import contextlib
import ctypes
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from .cpu_pinning import pin
from .process_spec import Birth, Ground, bear, ending

#: The runner's socket, as remote_spawner.py names it; that module is not for containers that lack its libraries.
SOCKET = "runner.sock"
#: Where all containers of a pod meet, and where an image has its environment's packages.
FOLDER, SITE = Path("/run/windtunnel/posts"), "/opt/windtunnel/site"
#: Seconds to wait for a runner: its image may still be on its way. Looks at first, and later.
PATIENCE, EAGER, CALM = 900.0, 0.005, 0.1
#: Exit codes: the runner is gone, as it should be; there never was one.
DONE, ALONE = 0, 75
#: Memory that this process itself takes of the container's.
OWN = 32 << 20
#: Where a container reads how much memory it may have.
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
PR_SET_DUMPABLE = 4


class Post:
    """The processes of one container."""

    def __init__(self, module: str, ground: Ground, runner: socket.socket) -> None:
        self._module = module
        self._ground = ground
        self._runner = runner
        self._most = memory()
        self._selector = selectors.DefaultSelector()
        self._leashes: dict[int, socket.socket] = {}  # of living processes, by pid
        self._starting: dict[int, subprocess.Popen[bytes]] = {}
        self._roused, rouse = socket.socketpair()
        self._roused.setblocking(False)
        rouse.setblocking(False)
        self._rouse = rouse
        signal.set_wakeup_fd(rouse.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Obey until the runner hangs up; then end everything."""
        self._selector.register(self._runner, selectors.EVENT_READ, None)
        self._selector.register(self._roused, selectors.EVENT_READ, -1)
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    if not self._obey():
                        self._end_all()
                        return
                elif key.data < 0:
                    self._reap()
                else:
                    self._pulled(key.data)

    def _obey(self) -> bool:
        """Take an order; False once there will be no more."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._runner, 1 << 16, 8)
        except OSError:
            return False
        if not data:
            return False
        order = json.loads(data)
        output, leash, *rest = descriptors
        with socket.socket(fileno=leash) as line:
            try:
                self._start(order, output, line, rest)
            except (OSError, subprocess.SubprocessError) as error:
                tell(line, f"it cannot be started: {error}")
        for descriptor in (output, *rest):
            os.close(descriptor)
        return True

    def _start(self, order: dict[str, Any], output: int, leash: socket.socket, descriptors: list[int]) -> None:
        birth = Birth(**{**order["birth"], "readonly": tuple(order["birth"]["readonly"])})
        if birth.module != self._module:
            raise PermissionError(f"{birth.module}s are not started here")
        # A process that asks for too much gets a MemoryError; the kernel would end the whole container.
        birth = replace(birth, memory=min(birth.memory, self._most))
        popen = bear(birth, self._ground, dict(zip(order["descriptors"], descriptors, strict=True)), output)
        kept = leash.dup()
        self._leashes[popen.pid] = kept
        self._starting[popen.pid] = popen
        self._selector.register(kept, selectors.EVENT_READ, popen.pid)

    def _pulled(self, pid: int) -> None:
        """Keep it on the core that the runner names, or end what it has let go of; how it ended is still told."""
        leash = self._leashes.get(pid)
        if leash is None:
            return  # it was reaped a moment ago
        try:
            said = leash.recv(1 << 10)
        except OSError:
            said = b""
        if said.endswith(b"\n"):
            pin(pid, int(said.split()[-1]))
        else:
            self._selector.unregister(leash)
            os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        """Wait for whatever has ended, ours or orphaned, and tell those who ask."""
        with contextlib.suppress(BlockingIOError):
            while self._roused.recv(1 << 10):
                pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if (popen := self._starting.pop(pid, None)) is not None:
                popen.returncode = os.waitstatus_to_exitcode(status)
                with self._leashes.pop(pid) as leash:
                    with contextlib.suppress(KeyError):  # it was let go of before
                        self._selector.unregister(leash)
                    tell(leash, ending(popen.returncode))

    def _end_all(self) -> None:
        for pid in self._starting:
            os.kill(pid, signal.SIGKILL)
        for popen in self._starting.values():
            popen.wait()


def tell(leash: socket.socket, words: str) -> None:
    """Write how a process ended."""
    with contextlib.suppress(OSError):  # nobody wants to know any more
        leash.send(words.encode(), socket.MSG_NOSIGNAL)


def memory() -> int:
    """Return how much memory a process here may have without endangering the container."""
    for path in LIMITS:
        with contextlib.suppress(OSError, ValueError):  # "max", or another kind of cgroup
            return max(OWN, int(Path(path).read_text()) - OWN)
    return 1 << 62


def connect(path: Path) -> socket.socket | None:
    """Wait for the runner's socket and connect; None if there is no runner any more, or never was."""
    began = time.monotonic()
    while (waited := time.monotonic() - began) < PATIENCE:
        runner = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            runner.connect(str(path))
            return runner
        except FileNotFoundError:
            runner.close()
            time.sleep(EAGER if waited < 2.0 else CALM)
        except ConnectionRefusedError:
            runner.close()
            return None
    return None


def stop(*_: object) -> NoReturn:
    """End at once: nobody relies on us yet."""
    os._exit(128 + signal.SIGTERM)


def main() -> None:
    """Be a container's first process."""
    parser = argparse.ArgumentParser(prog="post", description="Starts processes as a runner orders.")
    parser.add_argument("module", choices=("evaluator", "model_server"))
    parser.add_argument("--posts", type=Path, default=FOLDER, help="the folder of the runner's socket")
    parser.add_argument("--site", default=SITE, help="the packages of what is started")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, stop)
    from ..sandbox import level

    best = level()
    # Not before: what is not dumpable may not adjust itself in /proc, and no level could be tried.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    runner = connect(given.posts / SOCKET)
    if runner is None:  # one that came and went had nothing for us to do: that is no failure of the pod's
        sys.exit(DONE if (given.posts / SOCKET).exists() else ALONE)
    signal.signal(signal.SIGTERM, lambda *_: None)
    runner.send(json.dumps({"level": best.number, "missing": best.missing, "refusal": best.refusal}).encode())
    ground = Ground(
        python=os.path.realpath(getattr(sys, "_base_executable", sys.executable)),
        harness=str(Path(__file__).resolve().parents[1]),
        site=given.site,
        level=best.number,
    )
    Post(given.module, ground, runner).serve()
    os._exit(DONE)


if __name__ == "__main__":
    main()
