"""Container init: first process of an evaluator's or model server's container; starts processes on the runner's order.

``python -m runtimes.harness.runner.container_init evaluator|model_server [--sockets FOLDER] [--site FOLDER]
[--trusted FOLDER]``

A trusted model is loaded in the evaluator's process, whose image lacks the packages of the model's format: the
container of model servers copies its own to the ``--trusted`` folder, which they share, and that of evaluators waits.

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
import shutil
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
from .memory_kills import memory_kills
from .ordered_processes import OrderedProcesses, receive_order, report_exit
from .process_spec import Installation, ProcessSpec, start_process

#: The runner's socket, as remote_spawner.py names it; that module needs libraries that these containers lack.
SOCKET = "runner.sock"
#: The folder that all containers of a pod share, and the folder of the image's packages.
FOLDER, SITE = Path("/run/windtunnel/sockets"), "/opt/windtunnel/site"
#: Seconds to wait for a runner (its image may still be pulled), and between two attempts: at first, and later.
PATIENCE, FAST_INTERVAL, SLOW_INTERVAL = 900.0, 0.005, 0.1
#: The folder of the packages in the ``--trusted`` folder, once they are complete.
SHARED_SITE = "site"
#: Exit codes: the runner ended (the normal end); no runner ever came; no packages of a trusted model's format did.
DONE, NO_RUNNER, NO_PACKAGES = 0, 75, 74
#: Bytes of the container's memory reserved for this process itself.
OWN_MEMORY = 32 << 20
#: Files with the container's memory limit: cgroup v2 and v1.
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
PR_SET_DUMPABLE = 4


class ContainerInit:
    """The processes of one container."""

    def __init__(
        self, module: str, installation: Installation, runner: socket.socket, shared: Path | None = None
    ) -> None:
        self._module = module
        self._shared = shared if module == "evaluator" else None
        self._installation = installation
        self._runner = runner
        self._memory_limit = memory()
        self._selector = selectors.DefaultSelector()
        self._processes = OrderedProcesses(self._selector)
        self._connected = True

    def serve(self) -> None:
        """Execute orders until the runner disconnects; then kill all processes."""
        self._selector.register(self._runner, selectors.EVENT_READ, self._execute_order)
        while self._connected:
            for key, _ in self._selector.select():
                key.data()
        self._processes.kill_all()

    def _execute_order(self) -> None:
        received = receive_order(self._runner)
        if received is None:
            self._connected = False
            return
        order, (output, control, *rest) = received
        with socket.socket(fileno=control) as control_socket:
            try:
                self._start(order, output, control_socket, rest)
            except (OSError, subprocess.SubprocessError) as error:
                report_exit(control_socket, f"the process cannot be started: {error}")
        for descriptor in (output, *rest):
            os.close(descriptor)

    def _start(self, order: dict[str, Any], output: int, control: socket.socket, descriptors: list[int]) -> None:
        spec = ProcessSpec(**order["birth"])
        if spec.module != self._module:
            raise PermissionError(f"{spec.module} processes are not started in this container")
        # With this limit an excessive request raises MemoryError; otherwise the kernel would kill the whole container.
        memory = min(spec.memory, self._memory_limit)
        spec = replace(spec, memory=memory, libraries=min(spec.libraries, LIBRARIES))
        if self._shared is not None:
            folder = str(self._shared)
            folders, readonly = (folder, *spec.trusted_folders), (*spec.readonly, folder)
            spec = replace(spec, trusted_folders=folders, readonly=readonly)
        popen = start_process(
            spec, self._installation, dict(zip(order["descriptors"], descriptors, strict=True)), output
        )

        def on_exit(code: int, kills_before: int | None) -> str:
            popen.returncode = code
            return ending(code, kills_before=kills_before, kills_after=memory_kills())

        self._processes.add(popen.pid, control, on_exit)


def share(site: Path, folder: Path) -> None:
    """Copy packages to a folder of several containers, where they appear at once."""
    draft = folder / f".{SHARED_SITE}"
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(site, draft, symlinks=True)
    draft.rename(folder / SHARED_SITE)


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
    parser.add_argument("--trusted", type=Path, help="the folder for the packages of a trusted model's format")
    options = parser.parse_args()
    stop_signal.exit_on_signal()
    from ..sandbox import level

    best = level()
    # Only after the level was determined: a process that is not dumpable cannot write its own /proc files.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    runner = connect(options.sockets / SOCKET)
    shared = options.trusted / SHARED_SITE if options.trusted is not None else None
    if shared is not None and not shared.exists():
        if options.module == "model_server":
            share(Path(options.site), options.trusted)
        began = time.monotonic()
        while not shared.exists() and time.monotonic() - began < PATIENCE:
            time.sleep(SLOW_INTERVAL)
        if not shared.exists():
            sys.exit(NO_PACKAGES)
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
    ContainerInit(options.module, installation, runner, shared).serve()
    os._exit(DONE)


if __name__ == "__main__":
    main()
