"""Trusted loop: the calls of a trusted model by a simulator's compiled code."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..model_server.direct_loop import DirectLoop
from ..simulators.base import Interface
from ..simulators.direct_exchange import ANSWER, Exchange, Pause

if TYPE_CHECKING:
    from ..models.base import Array


class TrustedLoop(DirectLoop):
    """The calls of ``act``, which returns the bytes of an action for an observation.

    ``judge`` gets the monotonic time of a call that has failed or is late, its deadline, and its exception if it has
    failed; it raises the model's fault, or returns.
    """

    def __init__(
        self,
        interface: Interface,
        act: "Callable[[Array], bytes]",
        judge: Callable[[float, float, BaseException | None], None],
    ) -> None:
        observation, action = interface.observation, interface.action
        self._act, self._judge = act, judge
        self._observed = np.zeros(observation.shape, observation.dtype)
        self._answered = bytearray(action.size)
        self._error: BaseException | None = None
        answer = np.frombuffer(self._answered, action.dtype).reshape(action.shape)
        self._call = ANSWER(self._answer)  # ctypes does not keep a reference to a callback
        super().__init__(Exchange(reply=answer.ctypes.data, answer=self._call), self._observed, answer)

    def settle(self, pause: Pause) -> None:
        """Have the last call judged."""
        error, self._error = self._error, None
        self._judge(self.exchange.started, self.exchange.deadline, error)
        self.exchange.settled = 1

    def _answer(self) -> int:
        """Put an action where the compiled code reads it; no exception can pass through that."""
        try:
            memoryview(self._answered)[:] = self._act(self._observed)
        except BaseException as error:
            self._error = error
            return 0
        return 1
