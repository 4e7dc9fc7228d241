"""Protections of a lock-step: an echo between two processes, and what each protection adds to a step."""

import ctypes
import math
import os
import signal
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from datasets.catalogue import datasets
from runtimes.harness.model_server.action_exchange import FIRST, NUMBER, SEQ_OF_ACTION, ActionExchange, drawn_numbers
from runtimes.harness.model_server.model_protocol import framed
from runtimes.harness.simulators.base import Interface

#: Frames of `noop` in bytes: an observation and an action of four numbers.
REQUEST, REPLY = framed(("act", FIRST, 1, bytes(16))), framed(("action", FIRST, bytes(16)))
REPEATED, TIMES = 20_000, 7


def _echo_until_closed(connection: socket.socket) -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    buffer = bytearray(1 << 16)
    while connection.recv_into(buffer):
        connection.send(REPLY)
    os._exit(0)


def echo(count: int, core: int, timeout: float | None = None) -> float:
    """Return the processor seconds of an exchange, of both processes; ``timeout``: in the kernel, of each call."""
    mine, other = socket.socketpair()
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        pid = os.fork()
        if pid == 0:
            mine.close()
            _echo_until_closed(other)
        other.close()
        if timeout is not None:
            value = struct.pack("@ll", int(timeout), int(timeout % 1 * 1e6))
            mine.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
            mine.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)
        buffer, send, receive = bytearray(1 << 16), mine.send, mine.recv_into
        before = time.process_time() + _processor_seconds(pid)
        for _ in range(count):
            send(REQUEST)
            receive(buffer)
        spent = time.process_time() + _processor_seconds(pid) - before
        mine.close()
        os.waitpid(pid, 0)
        return spent / count
    finally:
        os.sched_setaffinity(0, cores)


def _processor_seconds(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def protections(core: int) -> dict[str, float]:
    """Return the seconds per step of each protection, by itself."""
    action = np.zeros(4, np.float32)
    latencies: list[float] = []
    numbers: list[int] = []
    exchange = ActionExchange(Interface.of(datasets()["noop"].definition["interface"]), 1, bytearray(len(REPLY)))

    def measure_latency() -> None:
        started = time.monotonic()
        latency = time.monotonic() - started
        if latency > 1.0:
            raise AssertionError
        latencies.append(latency)

    def number_unforeseeably() -> None:
        if not numbers:
            numbers.extend(drawn_numbers())
        seq = numbers.pop()
        NUMBER.pack_into(exchange.request, exchange.seq_at, seq)
        NUMBER.pack_into(exchange.head, SEQ_OF_ACTION, seq)

    return {
        "deadline watch (timeouts of the socket)": _watching(core),
        "latency measurement, and its comparison with the deadline": _alone(measure_latency),
        "numbers that no early answer can have": _alone(number_unforeseeably),
        "finite check": _alone(lambda: math.isfinite(sum(action.tolist()))),
    }


def _watching(core: int) -> float:
    """Return by how much timeouts in the kernel lengthen an echo."""
    pairs = [(echo(REPEATED, core), echo(REPEATED, core, 0.1)) for _ in range(TIMES)]
    return max(0.0, min(watched for _, watched in pairs) - min(plain for plain, _ in pairs))


def _alone(work: Callable[[], object]) -> float:
    """Return the least seconds of a call, without those of calling nothing."""

    def seconds(call: Callable[[], object]) -> float:
        began = time.process_time()
        for _ in range(REPEATED):
            call()
        return (time.process_time() - began) / REPEATED

    return max(0.0, min(seconds(work) for _ in range(TIMES)) - min(seconds(lambda: None) for _ in range(TIMES)))
