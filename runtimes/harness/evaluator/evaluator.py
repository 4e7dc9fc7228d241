"""Evaluator process: owns the simulator, the clock and the score; sandboxed, without token or network.

It runs ranges of tasks on orders from its runner, queries a model server for actions, and returns results in batches.
"""

import json
import os
import socket
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ..model_server.model_faults import Interrupted, ModelFault
from ..model_server.model_protocol import Kernel
from ..model_server.model_server_client import ModelServerClient
from ..simulators.base import Simulator, SimulatorBroken
from ..task_page import FIRST_TASK, MOST_WORLDS, TASK, WORLDS, map_page
from . import episodes
from .confined_start import World, start
from .episodes import EpisodeOptions, simulator_error
from .planned_tasks import PlannedTask, PlannedTasks
from .reports import Reports
from .result_batch import LoadedModel, ResultBatch, unworldly
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
        self._model: LoadedModel
        self._simulators: list[Simulator] = []  # one per row of a batch
        self._count = WorldCount(1, 1.0)
        self._worlds: Worlds | None = None
        self._alone: set[int] = set()  # tasks that have begun beside others, and are to be played by themselves
        self._model_server: ModelServerClient | None = None

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
            keep_actions=definition.record and setup.record != "none",
        )
        alone = setup.isolation != "launch" or setup.batch > 1 or setup.dry_run or not self._world.many
        self._count = WorldCount(1 if alone else setup.worlds, setup.deadline)
        create = partial(self._world.create, definition)
        self._worlds = Worlds(create, self._count, self._page, keep_actions=self._options.keep_actions)
        self._runner.send_message("ready")

    def _connect_model_server(self, order: ModelServerOrder) -> None:
        """Connect to the order's model server and load the model; report `loaded` or `refused`."""
        server_socket, *models = self._runner.rights
        if self._model_server is not None:
            self._model_server.close()
            self._model_server = None
        setup = self._setup
        model_server = ModelServerClient(
            socket.socket(fileno=server_socket),
            self._simulators[0].interface,
            batch=len(self._simulators),
            deadline=setup.deadline,
            per_scenario=setup.isolation == "scenario",
            rows=self._count.most,
            read_times=self._runner.server_times,
        )
        model_server.describe_end = self._runner.model_server_end
        try:
            greeting = model_server.hello()
            model, step = models[0] if models else str(order.folder), setup.definition.dt
            started = time.perf_counter()
            info = model_server.load(setup.format, setup.params, model, step=step)
            self._model = LoadedModel({**greeting, **info}, time.perf_counter() - started, None)
        except ModelFault as fault:
            reason = unworldly(str(model_server.explained(fault)))
            model_server.close()
            self._runner.send_message("refused", status=fault.status, reason=reason)
            return
        finally:
            for model in models:
                os.close(model)
        self._model_server = model_server
        self._runner.send_message("loaded", info=self._model.info)

    def _describe_model(self) -> LoadedModel:
        times = self._runner.server_times()
        return LoadedModel(self._model.info, round(self._model.seconds, 6), times.memory or None if times else None)

    # -- tasks

    def _run_range(self, order: RangeOrder) -> None:
        page, reports = self._page, self._reports
        reports.begin(order)
        self._alone.clear()
        while (number := reports.next) < reports.stop:
            page[TASK] = page[FIRST_TASK] = number
            page[WORLDS] = 1
            if self._model_server is None:
                self._request_model_server("no model server has been given yet")
            if (kernel := self._kernel(order)) is not None:
                self._run_worlds(kernel)
            elif len(self._simulators) == 1:
                self._run_alone(partial(self._run_task, number))
            else:
                end = min(number - number % len(self._simulators) + len(self._simulators), reports.stop)
                self._run_alone(partial(self._run_batch, number, end))
        reports.flush()
        self._runner.send_message("idle")

    def _kernel(self, order: RangeOrder) -> Kernel | None:
        """Return how the model server computes the actions of tasks side by side; None: the next is played alone."""
        number, model_server = self._reports.next, self._model_server
        if number <= order.careful_until or self._alone or model_server is None or model_server.rows is None:
            return None
        if (patience := self._count.patience(self._reports.stop - number)) is None:
            return None
        try:
            one_step = self._world.one_step(self._setup.definition)
            kernel = model_server.open_rows(one_step=one_step, patience=patience)
        except ModelFault as fault:
            self._failed(fault, together=True)
            return None
        if kernel is None:
            self._count.stay_alone()
        return kernel

    def _run_worlds(self, kernel: Kernel) -> None:
        """Play tasks side by side until each has a result, a fault ends them, or one is to be played by itself."""
        assert self._worlds is not None and self._model_server is not None and self._model_server.rows is not None
        page, count, reports, tasks = self._page, self._count, self._reports, self._tasks
        following = reports.next

        def next_task(working: int) -> tuple[PlannedTask, int] | None:
            nonlocal following
            while reports.has(following):
                following += 1
            last = min(reports.stop, reports.next + AHEAD * MOST_WORLDS)
            if self._alone or working >= count.worlds or following >= last:
                return None
            following += 1
            page[WORLDS] = max(page[WORLDS], working + 1)
            return tasks.task(following - 1), tasks.model_seed(following - 1)

        try:
            for task, played in self._worlds.play(self._model_server.rows, kernel, next_task, lambda: reports.stop):
                if played is None:
                    self._alone.add(task.number)
                    count.record_fault(together=False)
                    continue
                reports.add(task, played)
                reports.flush_if_due()
        except SimulatorBroken:
            reports.flush()  # the results of earlier tasks are valid
            raise
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
        assert self._model_server is not None
        task, tasks = self._tasks.task(number), self._tasks
        try:
            result, fault = episodes.run(
                self._simulators[0],
                self._model_server,
                task.scenario,
                tasks.model_seed(number),
                replace(self._options, latency_steps=steps) if (steps := task.latency_steps) else self._options,
                next_seed=self._next_seed(number + 1),
            )
        except SimulatorBroken:
            self._reports.flush()  # the results of earlier tasks are valid
            raise
        self._count.record_task(result.seconds, result.latencies)
        if last or not isinstance(fault, Interrupted):
            self._reports.add(task, result)
        return fault

    def _run_batch(self, start: int, stop: int, *, last: bool) -> ModelFault | None:
        """Run the part [start, stop) of a batch; a task's row in the batch depends on its number alone."""
        assert self._model_server is not None
        size, planned = len(self._simulators), self._tasks
        first = start - start % size
        tasks = [planned.task(number) if start <= number < stop else None for number in range(first, first + size)]
        try:
            results, fault = episodes.run_batch(
                self._simulators,
                self._model_server,
                [None if task is None else task.scenario for task in tasks],
                planned.model_seed(first),
                self._options,
                next_seed=self._next_seed(first + size),
            )
        except SimulatorBroken:
            self._reports.flush()
            raise
        if isinstance(fault, Interrupted) and not last:
            return fault
        for task, result in zip(tasks, results, strict=True):
            if task is not None and result is not None:
                self._reports.add(task, result)
        return fault

    def _next_seed(self, number: int) -> int | None:
        """Return the model's seed of a task that probably follows."""
        return self._tasks.model_seed(number) if number < self._reports.stop else None

    def _failed(self, fault: ModelFault, *, together: bool) -> None:
        """Play the next tasks by themselves, with a new model server if the fault has ended this one."""
        self._count.record_fault(together=together)
        if fault.fatal:
            self._drop_model_server(fault)

    def _drop_model_server(self, fault: ModelFault) -> None:
        assert self._model_server is not None
        self._model_server.close()
        self._model_server = None
        self._reports.flush()
        self._request_model_server(fault.status)

    def _request_model_server(self, reason: str) -> None:
        """Request a model server and wait until one has loaded the model; its runner decides how often to try."""
        self._runner.send_message("need_model_server", reason=reason)
        while self._model_server is None:
            order = self._runner.next()
            if isinstance(order, ModelServerOrder):
                self._connect_model_server(order)
            else:
                raise RunnerGone

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
