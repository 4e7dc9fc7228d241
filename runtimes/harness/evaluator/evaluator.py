"""Evaluator process: owns the simulator, the clock and the score; sandboxed, without token or network.

It runs ranges of tasks on orders from its runner, queries a model server for actions, and returns results in batches.
"""

import json
import os
import socket
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from ..model_server.model_faults import Interrupted, ModelFault
from ..model_server.model_protocol import Kernel
from ..simulators.base import Simulator, SimulatorBroken
from ..task_page import FIRST_TASK, MOST_WORLDS, TASK, WORLDS, map_page
from . import episodes
from .confined_start import World, start
from .connected_model import ConnectedModel, LoadRefused, connect
from .episodes import Acting, EpisodeOptions, simulator_error
from .planned_tasks import PlannedTask, PlannedTasks
from .reports import Reports
from .result_batch import LoadedModel, Played, ResultBatch, unworldly
from .runner_connection import (
    LARGEST,
    EvaluationSetup,
    ModelServerOrder,
    RangeOrder,
    ReplayOrder,
    RunnerConnection,
    RunnerGone,
    SetupOrder,
)
from .spot_checks import difference, is_drawn
from .world_count import WorldCount
from .worlds import Worlds

#: Exit code of an evaluator whose simulator's state is undefined after a fatal error.
BROKEN = 70
#: Model servers that may end by no fault of a task before its result is that of the last one.
STRIKES = 3
#: How far tasks run ahead of the first without a result, in numbers of worlds: their results wait.
AHEAD = 8


def main() -> None:
    """Confine this process, import the simulator, seal the sandbox, and execute the runner's orders to the last."""
    options = json.loads(sys.argv[1])
    world = start(options, makes_memory=True)
    runner = RunnerConnection(socket.socket(fileno=options["socket"]))
    evaluator = Evaluator(runner, map_page(options["page"]), world)
    try:
        evaluator.serve()
    except RunnerGone:
        os._exit(0)  # without the simulator's cleanup, which could hang or crash and saves nothing
    except SimulatorBroken as error:
        print(f"evaluator: the simulator failed and its process must be replaced: {error}", file=sys.stderr, flush=True)
        os._exit(BROKEN)


class Evaluator:
    """Executes the runner's orders. ``page``: of task_page.py."""

    def __init__(self, runner: RunnerConnection, page: memoryview, world: World) -> None:
        self._runner = runner
        self._page = page
        self._world = world
        self._setup: EvaluationSetup
        self._tasks: PlannedTasks
        self._reports: Reports
        self._options = EpisodeOptions()
        self._model: ConnectedModel | None = None
        self._simulators: list[Simulator] = []  # one per row of a batch
        self._count = WorldCount(1, 1.0)
        self._worlds: Worlds | None = None
        self._alone: set[int] = set()  # tasks that have begun beside others, and are to be played by themselves

    def serve(self) -> None:
        """Execute the runner's orders, one after another; raise RunnerGone or SimulatorBroken."""
        while True:
            order = self._runner.next()
            if isinstance(order, SetupOrder):
                self._prepare(order.play)
            elif isinstance(order, ModelServerOrder):
                self._connect_model_server(order)
            elif isinstance(order, RangeOrder):
                self._run_range(order)
            elif isinstance(order, ReplayOrder):
                self._replay(order)
            else:
                raise RunnerGone

    # -- set-up

    def _prepare(self, setup: EvaluationSetup) -> None:
        """Create the simulators and read the scenarios; report `ready`, or `broken` with the reason."""
        definition = setup.definition
        try:
            for simulator in self._simulators:
                simulator.close()
            if self._worlds is not None:
                self._worlds.close()
            self._simulators = [self._world.create(definition) for _ in range(max(1, setup.batch))]
            self._tasks = PlannedTasks(setup, self._world.scenarios(definition))
        except SimulatorBroken:
            raise
        except Exception as error:
            self._runner.send_message("broken", reason=simulator_error(error))
            return
        self._setup = setup
        self._reports = Reports(self._runner, self._page, ResultBatch(definition, setup.record, definition.dt))
        self._options = EpisodeOptions(
            describe_model=self._describe_model if setup.dry_run else None,
            # Spot checks of a trusted model tell the step.
            keep_actions=setup.trusted or (definition.record and setup.record != "none"),
        )
        alone = setup.isolation != "launch" or setup.batch > 1 or setup.dry_run or not self._world.many
        one_step = self._world.one_step(definition)
        self._count = WorldCount(1 if alone else setup.worlds, setup.deadline, one_step=one_step)
        create = partial(self._world.create, definition)
        self._worlds = Worlds(create, self._count, self._page, keep_actions=self._options.keep_actions)
        self._runner.send_message("ready")

    def _connect_model_server(self, order: ModelServerOrder) -> None:
        """Connect to the order's model server and load the model; report `loaded` or `refused`."""
        self._close_model()
        interface, rows = self._simulators[0].interface, self._count.most
        try:
            self._model = connect(order, self._runner, self._setup, self._world, interface, rows=rows)
        except LoadRefused as refusal:
            self._runner.send_message("refused", status=refusal.status, reason=unworldly(str(refusal)))
            return
        self._runner.send_message("loaded", info=self._model.description.info)

    def _close_model(self) -> None:
        if self._model is not None:
            self._model.close()
            self._model = None

    def _describe_model(self) -> LoadedModel:
        times, described = self._runner.server_times(), self._connected.description
        return LoadedModel(described.info, round(described.seconds, 6), times.memory or None if times else None)

    @property
    def _connected(self) -> ConnectedModel:
        assert self._model is not None  # tasks are run only with one
        return self._model

    # -- tasks

    def _run_range(self, order: RangeOrder) -> None:
        reports = self._reports
        reports.begin(order)
        self._alone.clear()
        try:
            self._run_tasks(order)
        except SimulatorBroken:
            reports.flush()  # the results of earlier tasks are valid
            raise
        reports.flush()
        self._runner.send_message("idle")

    def _run_tasks(self, order: RangeOrder) -> None:
        page, reports = self._page, self._reports
        while (number := reports.next) < reports.stop:
            page[TASK] = page[FIRST_TASK] = number
            page[WORLDS] = 1
            if self._model is None:
                self._request_model_server("no model server has been given yet")
            if (kernel := self._kernel(order)) is not None:
                self._run_worlds(kernel)
            elif len(self._simulators) == 1:
                self._run_alone(partial(self._run_task, number))
            else:
                end = min(number - number % len(self._simulators) + len(self._simulators), reports.stop)
                self._run_alone(partial(self._run_batch, number, end))

    def _kernel(self, order: RangeOrder) -> Kernel | None:
        """Return how the model server computes the actions of tasks side by side; None: the next is played alone."""
        number = self._reports.next
        if number <= order.careful_until or self._alone or self._model is None:
            return None
        if (patience := self._count.patience(self._reports.stop - number)) is None:
            return None
        try:
            one_step = self._world.one_step(self._setup.definition)
            kernel = self._model.acting.open_rows(one_step=one_step, patience=patience)
        except ModelFault as fault:
            self._failed(fault, together=True)
            return None
        if kernel is None:
            self._count.stay_alone()
        return kernel

    def _run_worlds(self, kernel: Kernel) -> None:
        """Play tasks side by side until each has a result, a fault ends them, or one is to be played by itself."""
        connected = self._connected
        exchange = connected.acting.rows
        assert self._worlds is not None and exchange is not None
        page, count, reports, tasks = self._page, self._count, self._reports, self._tasks
        following = reports.next

        def next_tasks(working: int) -> Iterator[tuple[PlannedTask, int]]:
            nonlocal following
            most = 0 if self._alone else count.worlds
            last = min(reports.stop, reports.next + AHEAD * MOST_WORLDS)
            page[WORLDS] = max(page[WORLDS], min(most, working + last - following))
            while working < most and following < last:
                number, following = following, following + 1
                if not reports.has(number):
                    working += 1
                    yield tasks.task(number), tasks.model_seed(number)

        try:
            for finished in self._worlds.play(exchange, kernel, next_tasks, lambda: reports.stop):
                results = [(task, played) for task, played in finished if played is not None]
                reports.add(results)
                if len(results) < len(finished):
                    self._alone.update(task.number for task, played in finished if played is None)
                    count.record_fault(together=False)
                for task, played in results if connected.trusted is not None else ():
                    self._check(task, played)
                reports.flush_if_due()
                if self._model is not connected:  # a check has lost its model server, and with it this exchange
                    return
        except ModelFault as fault:
            self._alone.update(self._worlds.begun)
            self._failed(fault, together=True)

    def _run_alone(self, run: Callable[..., ModelFault | None]) -> None:
        """Play the next task, or batch, alone; ``run`` adds its results, or only its ``last`` if it is interrupted."""
        fault = run(last=False)
        for strike in range(2, STRIKES + 1):
            if not isinstance(fault, Interrupted):
                break
            self._drop_model_server(fault)
            fault = run(last=strike == STRIKES)
        self._alone = {number for number in self._alone if number >= self._reports.next}
        self._reports.flush_if_due()
        if fault is None:
            self._count.record_alone()
        else:
            self._failed(fault, together=False)

    def _run_task(self, number: int, *, last: bool) -> ModelFault | None:
        task = self._tasks.task(number)
        result, fault = self._play(task, self._connected.acting, self._next_seed(number + 1))
        self._count.record_task(result.seconds, result.latencies)
        if last or not isinstance(fault, Interrupted):
            self._reports.add([(task, result)])
            self._check(task, result)
        return fault

    def _play(self, task: PlannedTask, acting: Acting, next_seed: int | None) -> tuple[Played, ModelFault | None]:
        steps, seed = task.latency_steps, self._tasks.model_seed(task.number)
        options = replace(self._options, latency_steps=steps) if steps else self._options
        return episodes.run(self._simulators[0], acting, task.scenario, seed, options, next_seed=next_seed)

    def _run_batch(self, start: int, stop: int, *, last: bool) -> ModelFault | None:
        """Run the part [start, stop) of a batch; a task's row in the batch depends on its number alone."""
        size, planned = len(self._simulators), self._tasks
        first = start - start % size
        tasks = [planned.task(number) if start <= number < stop else None for number in range(first, first + size)]
        results, fault = self._play_batch(tasks, self._connected.acting, self._next_seed(first + size))
        if isinstance(fault, Interrupted) and not last:
            return fault
        both = zip(tasks, results, strict=True)
        self._reports.add([(task, result) for task, result in both if task is not None and result is not None])
        self._check_batch(tasks, results)
        return fault

    def _play_batch(
        self, tasks: Sequence[PlannedTask | None], acting: Acting, next_seed: int | None
    ) -> tuple[list[Played | None], ModelFault | None]:
        scenarios = [None if task is None else task.scenario for task in tasks]
        seed = next(self._tasks.model_seed(task.number - row) for row, task in enumerate(tasks) if task is not None)
        return episodes.run_batch(self._simulators, acting, scenarios, seed, self._options, next_seed=next_seed)

    def _next_seed(self, number: int) -> int | None:
        """Return the model's seed of a task that probably follows."""
        return self._tasks.model_seed(number) if number < self._reports.stop else None

    def _failed(self, fault: ModelFault, *, together: bool) -> None:
        """Play the next tasks by themselves, with a new model server if the fault has ended this one."""
        self._count.record_fault(together=together)
        if fault.fatal:
            self._drop_model_server(fault)

    def _drop_model_server(self, fault: ModelFault) -> None:
        self._close_model()
        self._reports.flush()
        self._request_model_server(fault.status)

    def _request_model_server(self, reason: str) -> None:
        """Request a model server and wait until one has loaded the model; its runner decides how often to try."""
        self._runner.send_message("need_model_server", reason=reason)
        while self._model is None:
            order = self._runner.next()
            if isinstance(order, ModelServerOrder):
                self._connect_model_server(order)
            else:
                raise RunnerGone

    # -- spot checks

    def _check(self, task: PlannedTask, result: Played) -> None:
        """Play a task of a trusted model again with its model server, if it is drawn; refuse a model that differs."""
        connected = self._connected
        if connected.trusted is not None and self._is_drawn(task):
            isolated, fault = self._play(task, connected.server, None)
            self._compare([(task, result, isolated)], fault)

    def _check_batch(self, tasks: Sequence[PlannedTask | None], results: Sequence[Played | None]) -> None:
        connected = self._connected
        if connected.trusted is None or not any(task is not None and self._is_drawn(task) for task in tasks):
            return
        isolated, fault = self._play_batch(tasks, connected.server, None)
        both = zip(tasks, results, isolated, strict=True)
        self._compare([(task, one, other) for task, one, other in both if task and one and other], fault)

    def _is_drawn(self, task: PlannedTask) -> bool:
        return is_drawn(task.number, self._tasks.count, self._tasks.model_seed(task.number))

    def _compare(self, played: Sequence[tuple[PlannedTask, Played, Played]], fault: ModelFault | None) -> None:
        space = self._simulators[0].interface.action
        if isinstance(fault, Interrupted):  # by what has nothing to do with the model
            played = ()
        for task, trusted, isolated in played:
            if (found := difference(task, trusted, isolated, space)) is not None:
                self._reports.flush()
                self._runner.send_message("refused", status="failed", reason=unworldly(found), final=True)
                self._runner.next()  # which ends this process
                raise RunnerGone
        if fault is not None and fault.fatal:
            self._drop_model_server(fault)

    # -- replays

    def _replay(self, order: ReplayOrder) -> None:
        try:
            trace = _inflate(order.trace)
            dt = float(self._setup.definition.dt or 0.1)
            frames = episodes.replay(self._simulators[0], self._tasks.task(order.task).scenario, trace, dt)
        except SimulatorBroken:
            raise
        except Exception as error:
            self._runner.send_message("replay", replay=None, error=simulator_error(error))
            return
        self._runner.send_message("replay", replay=frames)


def _inflate(trace: bytes) -> bytes:
    inflating = zlib.decompressobj()
    data = inflating.decompress(trace, LARGEST)
    if not inflating.eof:
        raise ValueError("the trace is truncated or too large")
    return data
