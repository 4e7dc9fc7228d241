"""Warm runners: a runner with its evaluators and model servers, started before it is known for which launch.

Spawn from the main thread only: a process's request to die with its parent follows the thread that forked it.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets.catalogue import datasets
from runtimes import catalogue, environments, harness
from runtimes.harness.runner.process_spec import BOOT, ENTRIES, ENVIRON, FLAGS, ending
from runtimes.harness.runner.processes import WorkerSpec

HARNESS = Path(harness.__file__).parent


@dataclass(frozen=True, slots=True)
class Kind:
    """What a warm runner is warm for."""

    runtime: str
    format: str
    dataset: str
    version: str
    play: str = ""  # a registered dataset's folder, among those that staging laid out


def kit_for(kind: Kind, folder: Path, sandbox: int | None, plays: Path) -> WorkerSpec | None:
    """Return what it takes to start such a warm runner; None while an environment is not ready, or is not known."""
    dataset = datasets().get(kind.dataset)
    runtime = catalogue.runtimes().get(kind.runtime)
    if dataset is None or dataset.version != kind.version or runtime is None or kind.format not in runtime.formats:
        return None
    format = runtime.formats[kind.format]
    model_server = environments.ready(format.environment, folder)
    evaluator = environments.ready(catalogue.simulators()[dataset.simulator], folder)
    seen = plays / kind.play if kind.play else dataset.folder
    if model_server is None or evaluator is None or not seen.is_dir():
        return None
    # A world that is there to measure the platform says so; elsewhere what a runtime needs is what holds.
    isolation = "launch" if dataset.definition.get("isolation") == "launch" else format.isolation
    return WorkerSpec(
        python=base_interpreter(),
        harness=str(HARNESS),
        dataset=str(seen),
        evaluator_site=str(evaluator),
        model_server_site=str(model_server),
        format=kind.format,
        isolation=isolation,
        sandbox=sandbox,
    )


def base_interpreter() -> str:
    """Return the interpreter that the server's own environment was made from."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


class WarmRunner:
    """A runner's process and the agent's end of its control socket."""

    def __init__(self, kind: Kind, kit: WorkerSpec, workers: int, log: Path) -> None:
        self.kind = kind
        self.log = log
        self.exit: int | None = None
        self.reason: str | None = None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        told = {"control": theirs.fileno(), "kit": kit.describe(), "workers": workers}
        paths = f"{HARNESS.parent}:{sysconfig.get_path('purelib')}"
        with open(log, "wb") as output:
            self._popen = subprocess.Popen(
                [
                    kit.python,
                    *FLAGS,
                    "-c",
                    BOOT.format(entry=ENTRIES["runner"]),
                    str(os.getpid()),
                    paths,
                    json.dumps(told),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(theirs.fileno(),),
                env=dict(ENVIRON),
                cwd="/",
                start_new_session=True,  # the terminal's Ctrl-C is for the supervisor
            )
        theirs.close()
        self._control = ours
        self.pidfd = os.pidfd_open(self._popen.pid)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def give(self, launch: Mapping[str, Any], lock: int) -> None:
        """Hand a launch over, with the lock that shows others that it lives."""
        socket.send_fds(self._control, [json.dumps(launch).encode()], [lock])

    def dismiss(self) -> None:
        """Ask it to end: it sees that its agent is gone, ends its processes, and delivers what they printed."""
        self.reason = "its agent ended it"
        self._control.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        """End it at once; the kernel takes its children along."""
        if self.exit is None:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def reap(self) -> int:
        """Wait for its end and note how it came."""
        self.exit = self._popen.wait()
        self.reason = self._last_words() or self.reason or ending(self.exit)
        self._control.close()
        os.close(self.pidfd)
        return self.exit

    def _last_words(self) -> str | None:
        try:
            data = self._control.recv(1 << 16, socket.MSG_DONTWAIT)
            return str(json.loads(data)["reason"]) if data else None
        except (OSError, ValueError):
            return None
