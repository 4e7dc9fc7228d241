"""Worlds: many scenarios of one evaluator side by side, whose actions one model server computes in one exchange.

A world depends on its own scenario alone, so its result is that of a scenario by itself.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model_server.model_protocol import Kernel
from ..model_server.model_server_client import finite
from ..model_server.row_exchange import RowExchange
from ..model_server.row_memory import ACT, IDLE, RESET
from ..simulators.base import Simulator, SimulatorBroken
from ..task_page import TASK
from .episodes import ActionDelay, faulted, not_finite, recorded, simulator_error
from .planned_tasks import PlannedTask
from .result_batch import Played
from .trusted_model import TrustedRows
from .world_count import WorldCount

#: The exchange of a model server, or of a model in this process.
Rows = RowExchange | TrustedRows
#: Latencies that are kept of exchanges that no task at work has seen.
KEPT_LATENCIES = 4096


class WorldRow:
    """A row of the exchange: its simulator, and the task that it plays."""

    __slots__ = ("actions", "began", "delay", "first", "number", "simulator", "step", "task")

    def __init__(self, number: int, simulator: Simulator) -> None:
        self.number, self.simulator, self.step = number, simulator, simulator.step
        self.task: PlannedTask
        self.began = 0.0  # on the clock of `Worlds`
        self.first = 0  # exchange
        self.delay: ActionDelay | None = None
        self.actions: list[bytes] = []


class Worlds:
    """Plays tasks side by side. ``create``: makes a simulator; ``page``: of task_page.py.

    ``keep_actions``: record the actions for replays.
    """

    def __init__(
        self, create: Callable[[], Simulator], count: WorldCount, page: memoryview, *, keep_actions: bool
    ) -> None:
        self._create, self._count, self._page, self._keep_actions = create, count, page, keep_actions
        self._free: list[WorldRow] = []
        self._working: list[WorldRow] = []
        self._clock = 0.0  # seconds of each world: the time of an exchange is divided among those in it
        self._latencies: list[float] = []
        self._sizes: list[int] = []  # of the same exchanges, how many worlds each was for

    @property
    def begun(self) -> list[int]:
        """The numbers of tasks that have begun and have no result."""
        return [row.task.number for row in self._working]

    def play(
        self,
        exchange: Rows,
        kernel: Kernel,
        next_tasks: Callable[[int], Iterator[tuple[PlannedTask, int]]],
        stop: Callable[[], int],
    ) -> Iterator[list[tuple[PlannedTask, Played | None]]]:
        """Play tasks until ``next_tasks`` has none and all have ended; yield those that have ended with their results.

        ``next_tasks`` gets the number of worlds at work, and yields tasks and their models' seeds. No result: the model
        has failed in this row, or there is no simulator for it, and the task is to be played by itself. A task that
        has begun is dropped if it is not below ``stop``. Raises the fault of the model server, or SimulatorBroken:
        then ``begun`` have no result.
        """
        self._free += self._working
        self._working, self._latencies, self._sizes = [], [], []
        exchange.kinds[:] = bytes(len(exchange.kinds))
        while True:
            began = time.perf_counter()
            finished: list[tuple[PlannedTask, Played | None]] = []
            for task, seed in next_tasks(len(self._working)):
                if (row := self._free_or_new_row()) is None:
                    finished.append((task, None))
                    break
                self._working.append(row)
                if (failed := self._begin(row, task, seed, exchange)) is not None:
                    self._free_rows([(row, failed)], exchange)
                    finished.append((task, failed))
            if finished:
                yield finished
                continue
            if not self._working:
                return
            together = len(self._working)
            actions, faults, latency = exchange.ask()
            self._count.record_answer(together, latency)
            self._latencies.append(latency)
            self._sizes.append(together)
            ended = self._step(actions, faults if any(faults) else b"", exchange)
            self._clock += (time.perf_counter() - began) / together
            for row, result in ended:
                if result is not None:
                    result.worlds, result.kernel = max(self._sizes[row.first :]), kernel
            self._free_rows(ended, exchange)
            limit = stop()
            finished = [(row.task, result) for row, result in ended if row.task.number < limit]
            if finished:
                yield finished
            self._free_rows([(row, None) for row in self._working if row.task.number >= limit], exchange)
            if len(self._latencies) > KEPT_LATENCIES and self._working:
                self._forget(min(row.first for row in self._working))

    def _free_or_new_row(self) -> WorldRow | None:
        """Return a row with a simulator; None if another simulator cannot be made, for lack of memory for instance."""
        if self._free:
            return self._free.pop()
        try:
            return WorldRow(len(self._working), self._create())
        except SimulatorBroken:
            raise
        except Exception as error:
            print(f"evaluator: {simulator_error(error)}", file=sys.stderr, flush=True)
            return None

    def close(self) -> None:
        """Close the simulators."""
        for row in (*self._free, *self._working):
            row.simulator.close()
        self._free, self._working = [], []

    def _begin(self, row: WorldRow, task: PlannedTask, seed: int, exchange: Rows) -> Played | None:
        """Begin a task; return its result if its simulator fails."""
        self._page[TASK] = task.number
        row.task, row.began, row.first, row.actions = task, self._clock, len(self._latencies), []
        try:
            exchange.observations[row.number] = row.simulator.reset(task.scenario)
        except SimulatorBroken:
            raise
        except Exception as error:
            return Played("failed", {}, simulator_error(error))
        steps = task.latency_steps
        row.delay = ActionDelay(steps, np.zeros(row.simulator.interface.action.shape)) if steps else None
        exchange.seeds[row.number] = seed
        exchange.kinds[row.number] = RESET
        return None

    def _step(self, actions: NDArray[Any], faults: bytes, exchange: Rows) -> list[tuple[WorldRow, Played | None]]:
        """Apply the actions; return the rows whose tasks have ended, with their results. Called at every step."""
        ended: list[tuple[WorldRow, Played | None]] = []
        page, keep, observations, kinds = self._page, self._keep_actions, exchange.observations, exchange.kinds
        all_finite = finite(actions)
        for row in self._working:
            number = row.number
            page[TASK] = row.task.number
            if faults and faults[number]:
                ended.append((row, None))
                continue
            action = actions[number]
            try:
                if not all_finite and not finite(action):
                    ended.append((row, faulted(row.simulator, not_finite(action))))
                    continue
                if row.delay is not None:
                    action = row.delay(action)
                if keep:
                    row.actions.append(recorded(action))
                observation, over = row.step(action)
                if over:
                    ended.append((row, Played("ok", row.simulator.outcome(None))))
                    continue
                observations[number] = observation
            except SimulatorBroken:
                raise
            except Exception as error:
                ended.append((row, Played("failed", {}, simulator_error(error))))
                continue
            kinds[number] = ACT
        return ended

    def _free_rows(self, ended: Sequence[tuple[WorldRow, Played | None]], exchange: Rows) -> None:
        """Free the rows of tasks that have ended, and complete their results."""
        if not ended:
            return
        kinds, clock, latencies = exchange.kinds, self._clock, self._latencies
        for row, result in ended:
            kinds[row.number] = IDLE
            if result is not None:
                result.seconds = clock - row.began
                result.latencies, result.actions = latencies[row.first :], row.actions
        freed = [row for row, _ in ended]
        self._free += freed
        self._working = [row for row in self._working if row not in freed] if len(freed) < len(self._working) else []

    def _forget(self, latencies: int) -> None:
        """Drop the oldest latencies, which no task that has begun has seen."""
        del self._latencies[:latencies], self._sizes[:latencies]
        for row in self._working:
            row.first -= latencies
