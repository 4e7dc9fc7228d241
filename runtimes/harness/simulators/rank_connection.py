"""Rank connection: an evaluator's end of the ranks that its worker brings for a simulator, and the ranks of none.

A message is a JSON object in a line, and so is its answer, from a process that has started the ranks in a sandbox of
their own (gang/simulator_ranks.py): `answer`, which the first rank gave, `failed`, how the program of the ranks ended
by itself, or `lost`, how a rank was ended from outside.
"""

import json
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from .base import SimulatorBroken

#: The most bytes of an answer, and of a piece of it.
LARGEST_ANSWER, PIECE = 1 << 20, 64 << 10


@dataclass(frozen=True, slots=True)
class RanksTold:
    """An answer as it travels."""

    answer: Mapping[str, object] = field(default_factory=dict)
    failed: str | None = None
    lost: str | None = None


class RanksFailed(Exception):
    """The program of the simulator's ranks is to blame for the end of the scenario; the text says how."""


class RankPort(Protocol):
    """The ranks of a simulator, or the one that it has in this process."""

    def ask(self, message: Mapping[str, object], seconds: float) -> Mapping[str, object]:
        """Have a message executed within a time; return the answer. Raises RanksFailed or SimulatorBroken."""


class RankConnection:
    """The connection to an evaluator's ranks."""

    def __init__(self, connected: socket.socket) -> None:
        self._connected = connected
        self._read = b""

    def ask(self, message: Mapping[str, object], seconds: float) -> Mapping[str, object]:
        """Have the ranks execute a message. Ranks that do not answer in time are not asked again."""
        until = time.monotonic() + seconds
        try:
            self._connected.settimeout(seconds)
            self._connected.sendall(json.dumps(message).encode() + b"\n")
            while b"\n" not in self._read:
                self._connected.settimeout(max(0.001, until - time.monotonic()))
                piece = self._connected.recv(PIECE)
                if not piece or len(self._read) > LARGEST_ANSWER:
                    raise SimulatorBroken("the process that starts the simulator's ranks has ended")
                self._read += piece
        except TimeoutError:
            self._connected.close()  # its end tells the ranks that nobody waits for them
            raise RanksFailed(f"the ranks have not answered within {seconds:g} s") from None
        except OSError as error:
            raise SimulatorBroken(f"the simulator's ranks are gone: {error}") from None
        line, _, self._read = self._read.partition(b"\n")
        told = RanksTold(**json.loads(line))
        if told.lost is not None:
            raise SimulatorBroken(f"the simulator's ranks were lost: {told.lost}")
        if told.failed is not None:
            raise RanksFailed(told.failed)
        return told.answer
