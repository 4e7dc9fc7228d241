"""Direct loop: the exchanges of a scenario in a simulator's compiled code, which pauses where Python has to decide.

The compiled code sends a request, and goes on if its reply is whole, in time and the expected one. All else is decided
by the same functions as without it: `settle` receives and judges the rest.
"""

import ctypes
import errno
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from ..simulators.direct_exchange import Exchange, Pause
from .action_exchange import DRAWN, SEQ_OF_ACTION, ActionExchange, drawn_words
from .model_faults import Crashed
from .model_server_socket import ModelServerSocket

if TYPE_CHECKING:
    from numpy.typing import NDArray


class DirectLoop:
    """The exchanges of one observation and one action each, from ``begin`` of a scenario on.

    ``exchange``: what the compiled code works on. After DRAWN steps at most it pauses for ``take``.
    """

    def __init__(self, connection: ModelServerSocket, step: ActionExchange) -> None:
        self._connection = connection
        self._step = step
        self._numbers = drawn_words()
        self._latencies = np.empty(DRAWN)
        self._actions = np.empty((DRAWN, *step.action.shape), step.action.dtype)
        # Held, because the compiled code has only their addresses.
        self._memory = [
            (ctypes.c_char * len(frame)).from_buffer(frame) for frame in (step.request, step.head, connection.buffer)
        ]
        request, head, reply = map(ctypes.addressof, self._memory)
        self.exchange = Exchange(
            request=request,
            observed=request + step.size - len(step.observed),
            head=head,
            reply=reply,
            numbers=self._numbers.ctypes.data,
            latencies=self._latencies.ctypes.data,
            actions=self._actions.ctypes.data,
            request_size=step.size,
            seq_in_request=step.seq_at,
            head_size=len(step.head),
            seq_in_reply=SEQ_OF_ACTION,
            expected=step.expected,
            room=len(connection.buffer),
            capacity=DRAWN,
            numbers_left=DRAWN,
        )

    def begin(self, observation: "NDArray[Any]") -> None:
        """Begin a scenario with its first observation, on the socket of its process."""
        exchange = self.exchange
        self._step.observation[...] = observation
        exchange.socket, exchange.deadline = self._connection.connected.fileno(), self._connection.deadline
        exchange.settled = exchange.answered = exchange.applied = 0

    @property
    def action(self) -> "NDArray[Any]":
        """The last answer."""
        return self._step.action

    def settle(self, pause: Pause) -> None:
        """After a reply that is not the usual one: receive the rest and judge it, or raise the model's fault."""
        exchange, connection = self.exchange, self._connection
        connection.seq = exchange.seq
        if exchange.error and exchange.error not in (errno.EAGAIN, errno.EWOULDBLOCK):
            raise Crashed("the model's process ended")
        if pause is Pause.UNUSUAL:
            watch = connection.complete(self._step, exchange.sent, exchange.received, exchange.started)
            exchange.latency = time.monotonic() - exchange.started
        else:
            watch = connection.watch(connection.deadline, exchange.started)
        if exchange.latency > connection.deadline:
            watch.settle()
        exchange.settled = 1

    def take(self, latencies: list[float], actions: list[bytes] | None) -> None:
        """Append the latencies and the applied actions since the last call, and make room for further ones."""
        exchange = self.exchange
        latencies += self._latencies[: exchange.answered].tolist()
        if actions is not None and exchange.applied:
            actions.append(self._actions[: exchange.applied].astype(np.float32, copy=False).tobytes())
        exchange.answered = exchange.applied = 0
        if exchange.numbers_left < DRAWN // 2:
            self._numbers[:] = drawn_words()
            exchange.numbers_left = DRAWN
        self._connection.seq = exchange.seq
