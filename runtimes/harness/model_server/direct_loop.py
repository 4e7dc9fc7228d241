"""Direct loop: the exchanges of a scenario in a simulator's compiled code, which pauses where Python has to decide.

The compiled code asks the model, and goes on if the answer is the expected one and in time. All else is decided by the
same functions as without it: `settle` judges it.
"""

import ctypes
import errno
import time
from typing import TYPE_CHECKING

import numpy as np

from ..simulators.direct_exchange import Exchange, Pause
from .action_exchange import DRAWN, SEQ_OF_ACTION, ActionExchange, drawn_words
from .model_faults import Crashed
from .model_server_socket import ModelServerSocket

if TYPE_CHECKING:
    from ..models.base import Array


class DirectLoop:
    """The exchanges of one observation and one action each, from ``begin`` of a scenario on.

    ``exchange``: what the compiled code works on; after DRAWN steps at most it pauses for ``take``. ``observation``,
    ``action``: what it writes and reads.
    """

    def __init__(self, exchange: Exchange, observation: "Array", action: "Array") -> None:
        self.exchange, self.action = exchange, action
        self._observation = observation
        self._latencies = np.empty(DRAWN)
        self._actions = np.empty((DRAWN, *action.shape), action.dtype)
        exchange.observed = observation.ctypes.data
        exchange.latencies, exchange.actions = self._latencies.ctypes.data, self._actions.ctypes.data
        exchange.capacity = DRAWN

    def begin(self, observation: "Array", deadline: float) -> None:
        """Begin a scenario with its first observation; ``deadline``: seconds of an answer."""
        self._observation[...] = observation
        exchange = self.exchange
        exchange.deadline = deadline
        exchange.settled = exchange.answered = exchange.applied = 0

    def settle(self, pause: Pause) -> None:
        """Judge an answer that is late or not the usual one; raise the model's fault, or let the loop go on."""
        raise NotImplementedError

    def take(self, latencies: list[float], actions: list[bytes] | None) -> None:
        """Append the latencies and the applied actions since the last call, and make room for further ones."""
        exchange = self.exchange
        latencies += self._latencies[: exchange.answered].tolist()
        if actions is not None and exchange.applied:
            actions.append(self._actions[: exchange.applied].astype(np.float32, copy=False).tobytes())
        exchange.answered = exchange.applied = 0


class ServerLoop(DirectLoop):
    """The exchanges with a model server."""

    def __init__(self, connection: ModelServerSocket, step: ActionExchange) -> None:
        self._connection = connection
        self._step = step
        self._numbers = drawn_words()
        # Held, because the compiled code has only their addresses.
        self._memory = [
            (ctypes.c_char * len(frame)).from_buffer(frame) for frame in (step.request, step.head, connection.buffer)
        ]
        request, head, reply = map(ctypes.addressof, self._memory)
        exchange = Exchange(
            request=request,
            head=head,
            reply=reply,
            numbers=self._numbers.ctypes.data,
            request_size=step.size,
            seq_in_request=step.seq_at,
            head_size=len(step.head),
            seq_in_reply=SEQ_OF_ACTION,
            expected=step.expected,
            room=len(connection.buffer),
            numbers_left=DRAWN,
        )
        super().__init__(exchange, step.observation, step.action)

    def begin(self, observation: "Array", deadline: float) -> None:
        """Begin a scenario on the socket of its process."""
        super().begin(observation, deadline)
        self.exchange.socket = self._connection.connected.fileno()

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
        """Append them, and draw numbers for further ones."""
        super().take(latencies, actions)
        exchange = self.exchange
        if exchange.numbers_left < DRAWN // 2:
            self._numbers[:] = drawn_words()
            exchange.numbers_left = DRAWN
        self._connection.seq = exchange.seq
