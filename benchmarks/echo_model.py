"""Baseline model with an echo at each step: the minimum cost of a reply by another process on the same core.

A model for the plain loop. The other process reads and writes as many bytes as a model server, without model, protocol,
deadline or sandbox. Most of the cost is not the two system calls but the processor caches, which each process replaces.
"""

import ctypes
import os
import runpy
import signal
import socket
from pathlib import Path
from typing import Any

IDM = Path(__file__).resolve().parents[1] / "runtimes/harness/simulators/sumo/baselines/idm.py"
#: Frames of car_street in bytes: an observation of 32 numbers, an action of 2.
REQUEST, REPLY = b"o" * 148, b"a" * 25


def _echo(connection: socket.socket) -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    buffer = bytearray(len(REQUEST))
    while connection.recv_into(buffer):
        connection.send(REPLY)
    os._exit(0)


class Model:
    """Drives like the baseline model."""

    def __init__(self) -> None:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        self._connection, child_end = socket.socketpair()
        if not os.fork():
            self._connection.close()
            _echo(child_end)
        child_end.close()
        self._buffer = bytearray(len(REPLY))
        model = runpy.run_path(str(IDM))["Model"]()
        self._act, self._reset = model.act, getattr(model, "reset", None)

    def reset(self, request: Any) -> None:
        """Start a scenario."""
        if self._reset is not None:
            self._reset(request)

    def act(self, observation: Any) -> Any:
        """Echo the observation through the other process, then act."""
        self._connection.send(REQUEST)
        self._connection.recv_into(self._buffer)
        return self._act(observation)
