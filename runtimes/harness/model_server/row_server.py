"""Row server: the model server's side of the memory that it shares with an evaluator, a model for each row.

A model's rows are computed by one call only if that gives the same bits as a call for each.
"""

import os
import select
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from ..models.base import JoinedModel, LoadedModel
from .model_protocol import Kernel, Scalar
from .row_memory import IDLE, RESET, RING, RowMemory

if TYPE_CHECKING:
    from ..models.base import Array


class OneStepModel:
    """A model in a scenario that ends with its first action: it is reset before it, and keeps nothing."""

    info: Mapping[str, Scalar] = {}

    def __init__(self, reset: Callable[[int], None], act: "Callable[[Array], bytes]") -> None:
        self._reset, self._act, self._seed = reset, act, 0

    def reset(self, seed: int) -> None:
        """Keep the seed."""
        self._seed = seed

    def act(self, observations: "Array") -> bytes:
        """Reset the model, and return its action."""
        self._reset(self._seed)
        return self._act(observations)


def row_models(model: LoadedModel, rows: int, reset: Callable[[int], None] | None) -> list[LoadedModel]:
    """Return a model for each row; none if this one serves one scenario.

    ``reset``: of this model, if every scenario ends with its first action; then any model serves them.
    """
    row = getattr(model, "row", lambda: None)
    models: list[LoadedModel | None] = [row() for _ in range(rows)]
    if None not in models:
        return cast("list[LoadedModel]", models)
    return [OneStepModel(reset, model.act) for _ in range(rows)] if reset is not None else []


class RowServer:
    """Answers for all rows. ``models``: one for each row; ``kernel``: how they are computed."""

    def __init__(self, memory: RowMemory, models: Sequence[LoadedModel], kernel: Kernel) -> None:
        self.kernel = kernel
        self._memory, self._models = memory, models
        self._compute = self._together if kernel == "rows" else self._one_by_one
        size = len(memory.actions) // memory.rows
        self._observed = [memory.observations[row : row + 1] for row in range(memory.rows)]
        self._actions = [memory.actions[row * size : (row + 1) * size] for row in range(memory.rows)]
        self._size = size

    def serve(self, connected: socket.socket, asked: int, answered: int) -> None:
        """Answer until the socket has something to read. ``asked``, ``answered``: pipes, read and written."""
        poll = select.poll()
        poll.register(asked, select.POLLIN)
        poll.register(connected, select.POLLIN)
        wait, answer = poll.poll, self.answer
        while True:
            if (ready := wait())[0] != (asked, select.POLLIN) or len(ready) > 1:
                return
            os.read(asked, len(RING))
            answer()
            os.write(answered, RING)

    def answer(self) -> None:
        """Answer the requests that are in the memory."""
        memory = self._memory
        kinds = bytes(memory.kinds)
        memory.faults[:] = bytes(len(kinds))
        asked = [row for row, kind in enumerate(kinds) if kind != IDLE]
        if RESET in kinds:
            asked = [row for row in asked if kinds[row] != RESET or self._reset(row)]
        self._compute(asked)
        memory.answered_numbers[:] = memory.numbers

    def _reset(self, row: int) -> bool:
        try:
            self._models[row].reset(int(self._memory.seeds[row]))
        except BaseException:  # its scenario is run again by itself, where the fault is told
            self._memory.faults[row] = 1
            return False
        return True

    def _one_by_one(self, asked: Sequence[int]) -> None:
        models, observed, actions = self._models, self._observed, self._actions
        for row in asked:
            try:
                actions[row][:] = models[row].act(observed[row])
            except BaseException:
                self._memory.faults[row] = 1

    def _together(self, asked: Sequence[int]) -> None:
        models = [cast(JoinedModel, self._models[row]) for row in asked]
        observations = self._memory.observations
        if len(asked) < len(observations):
            observations = observations[asked]
        try:
            answers = models[0].act_together(models, observations)
        except BaseException:
            self._one_by_one(asked)
            return
        size = self._size
        for at, row in enumerate(asked):
            self._actions[row][:] = answers[at * size : (at + 1) * size]
