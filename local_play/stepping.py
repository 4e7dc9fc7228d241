"""Stepping: processes of simulators for a trainer, which it steps itself, by memory that it shares with each of them.

`{"progress": {"message"}}` tells what is prepared, then `{"world": {...}}` describes the world. Orders come on standard
input, a line each:

`{"start": {"worlds", "spin"}}`, with three descriptors on the socket that the command line names: memory, the pipe that
the process reads, and that which it writes to. It is answered by `{"started": {"process", "worlds", "pid"}}`, where
``worlds`` is 1 if the simulator cannot have several in a process, or by `{"failed": text}`.

`{"end": {"process", "reason"}}`, when a process has closed its pipe (no reason), or has broken a rule. The process is
ended; `{"failed": text}` says how it has ended by itself, or the reason.
"""

import argparse
import os
import socket
import sys
from collections.abc import Iterable
from typing import Any

import msgspec

from core.domain.submissions.selection import checked_params
from core.settings import Settings
from local_play import messages, worlds
from local_play.served_world import ServedWorld
from local_play.session_process import SessionEnded, SessionProcess, SharedSteps
from runtimes.harness.dataset_definition import definition_of
from runtimes.harness.simulators.declared_interface import described_interface
from windtunnel.submissions import parameters

#: Descriptors of a process: memory and two pipes.
DESCRIPTORS = 3


class StartOrder(msgspec.Struct, forbid_unknown_fields=True):
    """Start a process with up to so many worlds. ``spin``: seconds for which it polls before it sleeps."""

    worlds: int
    spin: float


class EndOrder(msgspec.Struct, forbid_unknown_fields=True):
    """End a process. ``reason``: of the trainer; empty: it has ended by itself."""

    process: int
    reason: str


class TrainerOrder(msgspec.Struct, forbid_unknown_fields=True):
    """An order of the trainer: exactly one of the two."""

    start: StartOrder | None = None
    end: EndOrder | None = None


_decoder = msgspec.json.Decoder(TrainerOrder)


def step_through(options: argparse.Namespace, settings: Settings) -> None:
    """Execute orders until standard input ends. Raise what makes that impossible."""
    dataset = worlds.find(options.dataset, options.server, settings)
    params = checked_params(dataset.declared.params, parameters(options.param), dataset.name)
    world = worlds.served(dataset, params, settings, lambda message: messages.send("progress", {"message": message}))
    interface = described_interface(definition_of(dataset.definition))
    messages.send(
        "world", {"dataset": world.name, "digest": world.digest, "scenarios": world.total, "interface": interface}
    )
    stepping = Stepping(world, socket.socket(fileno=options.descriptors))
    try:
        stepping.execute(sys.stdin.buffer)
    finally:
        stepping.close()


class Stepping:
    """The processes of one trainer. ``passed``: the socket on which their descriptors come."""

    def __init__(self, world: ServedWorld, passed: socket.socket) -> None:
        self._world, self._passed = world, passed
        self._processes: dict[int, SessionProcess] = {}
        self._started = 0

    def execute(self, lines: Iterable[bytes]) -> None:
        """Execute orders, a line each, and answer them."""
        for line in lines:
            order = _decoder.decode(line)
            if order.start is not None:
                messages.send(*self._start(order.start))
            elif order.end is not None:
                messages.send("failed", self._ended(self._processes.pop(order.end.process).ended(order.end.reason)))

    def _start(self, order: StartOrder) -> tuple[str, Any]:
        _, descriptors, _, _ = socket.recv_fds(self._passed, 1, DESCRIPTORS)
        try:
            memory, asked, answered = descriptors
            shared = SharedSteps(worlds=order.worlds, spin=order.spin, memory=memory, asked=asked, answered=answered)
            process = SessionProcess(self._world, shared=shared)
        except SessionEnded as error:
            return "failed", self._ended(error)
        finally:
            for descriptor in descriptors:  # so that the pipes end with the process
                os.close(descriptor)
        self._started += 1
        self._processes[self._started] = process
        return "started", {"process": self._started, "worlds": process.worlds, "pid": process.pid}

    def _ended(self, error: SessionEnded) -> str:
        return f"The process of the simulator has ended: {error}. Reset starts another one."

    def close(self) -> None:
        """End all processes."""
        for process in self._processes.values():
            process.close()
        self._processes = {}
