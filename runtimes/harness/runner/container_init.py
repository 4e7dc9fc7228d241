"""Container init: first process of an evaluator's or model server's container; starts processes on the runner's order.

``python -m runtimes.harness.runner.container_init evaluator|model_server [--sockets FOLDER] [--site FOLDER]``

It connects to the runner's socket in the ``--sockets`` folder, reports its sandbox level, and for each order starts a
confined process with the descriptors that came along (see process_spec.py). It writes on the process's control socket
how the process ended, and kills the process when the runner closes that socket. When the runner's connection closes, it
kills all its processes and exits 0: containers that end in a chain let a pod complete. SIGTERM alone does not end it
while a runner is connected: the kubelet signals all containers at once, and a model server that dies first would look
like a crash of the model. As PID 1 of the container it reaps orphaned processes.
"""

# isort: off
from . import stop_signal  # first: until then the kernel drops SIGTERM for the first process of a container

# isort: on
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
from typing import Any

from ..python_process import ending
from ..sandbox.allowances import LIBRARIES
from .cpu_pinning import pin
from .memory_kills import memory_kills
from .process_spec import Installation, ProcessSpec, start_process
from .process_times import process_times

#: The runner's socket, as remote_spawner.py names it; that module needs libraries that these containers lack.
SOCKET = "runner.sock"
#: The folder that all containers of a pod share, and the folder of the image's packages.
FOLDER, SITE = Path("/run/windtunnel/sockets"), "/opt/windtunnel/site"
#: Seconds to wait for a runner (its image may still be pulled), and between two attempts: at first, and later.
PATIENCE, FAST_INTERVAL, SLOW_INTERVAL = 900.0, 0.005, 0.1
#: Exit codes: the runner ended (the normal end); no runner ever came.
DONE, NO_RUNNER = 0, 75
#: Bytes of the container's memory reserved for this process itself.
OWN_MEMORY = 32 << 20
#: Files with the container's memory limit: cgroup v2 and v1.
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
PR_SET_DUMPABLE = 4


class ContainerInit:
    """The processes of one container."""

    def __init__(self, module: str, installation: Installation, runner: socket.socket) -> None:
        self._module = module
        self._installation = installation
        self._runner = runner
        self._memory_limit = memory()
        self._selector = selectors.DefaultSelector()
        self._controls: dict[int, socket.socket] = {}  # of living processes, by pid
        self._starting: dict[int, subprocess.Popen[bytes]] = {}
        self._kills_before: dict[int, int | None] = {}
        self._wake_reader, wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        wake_writer.setblocking(False)
        self._wake_writer = wake_writer
        signal.set_wakeup_fd(wake_writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Execute orders until the runner disconnects; then kill all processes."""
        self._selector.register(self._runner, selectors.EVENT_READ, None)
        self._selector.register(self._wake_reader, selectors.EVENT_READ, -1)
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    if not self._execute_order():
                        self._end_all()
                        return
                elif key.data < 0:
                    self._reap()
                else:
                    self._on_control(key.data)

    def _execute_order(self) -> bool:
        """Execute an order; return False once the runner has disconnected."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._runner, 1 << 16, 8)
        except OSError:
            return False
        if not data:
            return False
        order = json.loads(data)
        output, control, *rest = descriptors
        with socket.socket(fileno=control) as control_socket:
            try:
                self._start(order, output, control_socket, rest)
            except (OSError, subprocess.SubprocessError) as error:
                report_exit(control_socket, f"the process cannot be started: {error}")
        for descriptor in (output, *rest):
            os.close(descriptor)
        return True

    def _start(self, order: dict[str, Any], output: int, control: socket.socket, descriptors: list[int]) -> None:
        spec = ProcessSpec(**{**order["birth"], "readonly": tuple(order["birth"]["readonly"])})
        if spec.module != self._module:
            raise PermissionError(f"{spec.module} processes are not started in this container")
        # With this limit an excessive request raises MemoryError; otherwise the kernel would kill the whole container.
        memory = min(spec.memory, self._memory_limit)
        spec = replace(spec, memory=memory, libraries=min(spec.libraries, LIBRARIES))
        popen = start_process(
            spec, self._installation, dict(zip(order["descriptors"], descriptors, strict=True)), output
        )
        control_end = control.dup()
        self._controls[popen.pid] = control_end
        self._starting[popen.pid] = popen
        self._kills_before[popen.pid] = memory_kills()
        self._selector.register(control_end, selectors.EVENT_READ, popen.pid)

    def _on_control(self, pid: int) -> None:
        """Pin the process to the core that the runner names, or write its times to the pipe that the runner passed.

        If the runner closed the control socket, kill the process.
        """
        control = self._controls.get(pid)
        if control is None:
            return  # it was reaped a moment ago
        pipes: list[int] = []
        try:
            command, pipes, _, _ = socket.recv_fds(control, 1 << 10, 4)
        except OSError:
            command = b""
        for pipe in pipes:
            with open(pipe, "wb", buffering=0) as file, contextlib.suppress(OSError):  # the runner has closed it
                file.write(json.dumps(process_times(pid)).encode())
        if command.endswith(b"\n"):
            if cores := [int(word) for word in command.split() if word.isdigit()]:
                pin(pid, cores[-1])
        else:
            self._selector.unregister(control)
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
            if (popen := self._starting.pop(pid, None)) is not None:
                popen.returncode = os.waitstatus_to_exitcode(status)
                with self._controls.pop(pid) as control:
                    with contextlib.suppress(KeyError):  # the runner had closed it
                        self._selector.unregister(control)
                    before, after = self._kills_before.pop(pid, None), memory_kills()
                    report_exit(control, ending(popen.returncode, kills_before=before, kills_after=after))

    def _end_all(self) -> None:
        for pid in self._starting:
            os.kill(pid, signal.SIGKILL)
        for popen in self._starting.values():
            popen.wait()


def report_exit(control: socket.socket, status: str) -> None:
    """Write on the control socket how a process ended."""
    with contextlib.suppress(OSError):  # the runner has closed its end
        control.send(status.encode(), socket.MSG_NOSIGNAL)


def memory() -> int:
    """Return how many bytes a process here may use without risking the container's limit."""
    for path in LIMITS:
        with contextlib.suppress(OSError, ValueError):  # the file says "max", or belongs to the other cgroup version
            return max(OWN_MEMORY, int(Path(path).read_text()) - OWN_MEMORY)
    return 1 << 62


def connect(path: Path) -> socket.socket | None:
    """Wait for the runner's socket and connect; None if the runner is gone or never came."""
    began = time.monotonic()
    while (waited := time.monotonic() - began) < PATIENCE:
        runner = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            runner.connect(str(path))
            return runner
        except FileNotFoundError:
            runner.close()
            time.sleep(FAST_INTERVAL if waited < 2.0 else SLOW_INTERVAL)
        except ConnectionRefusedError:
            runner.close()
            return None
    return None


def main() -> None:
    """Run as a container's first process."""
    parser = argparse.ArgumentParser(prog="container_init", description="Starts processes on a runner's order.")
    parser.add_argument("module", choices=("evaluator", "model_server"))
    parser.add_argument("--sockets", type=Path, default=FOLDER, help="the folder of the runner's socket")
    parser.add_argument("--site", default=SITE, help="the packages of what is started")
    options = parser.parse_args()
    stop_signal.exit_on_signal()
    from ..sandbox import level

    best = level()
    # Only after the level was determined: a process that is not dumpable cannot write its own /proc files.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    runner = connect(options.sockets / SOCKET)
    if runner is None:  # a runner that came and went had no work for this container: the pod has not failed
        sys.exit(DONE if (options.sockets / SOCKET).exists() else NO_RUNNER)
    signal.signal(signal.SIGTERM, lambda *_: None)
    runner.send(json.dumps({"level": best.number, "missing": best.missing, "refusal": best.refusal}).encode())
    installation = Installation(
        python=os.path.realpath(getattr(sys, "_base_executable", sys.executable)),
        harness=str(Path(__file__).resolve().parents[1]),
        site=options.site,
        level=best.number,
    )
    ContainerInit(options.module, installation, runner).serve()
    os._exit(DONE)


if __name__ == "__main__":
    main()
