"""Evaluator process: owns the simulator, the clock and the score; sandboxed, without token or network.

It runs ranges of tasks on orders from its runner, queries a model server for actions, and returns results in batches.
"""

import json
import mmap
import os
import socket
import sys
import time
import zlib
from dataclasses import replace
from typing import Any

from ..model_server.model_faults import Interrupted, ModelFault
from ..model_server.model_server_client import ModelServerClient
from ..simulators.base import Scenario, Simulator, SimulatorBroken
from . import episodes
from .confined_start import World, start
from .episodes import EpisodeOptions, simulator_error
from .frame_sharing import FrameSharing
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
from .tasks import Located, TaskPlan

#: Exit code of an evaluator whose simulator's state is undefined after a fatal error.
BROKEN = 70
#: Model servers that may end by no fault of a task before its result is that of the last one.
STRIKES = 3
#: Seconds after which a first result is sent as a batch of its own, and seconds from it to the second batch.
FIRST_FLUSH, SECOND_FLUSH = 0.02, 0.1


def main() -> None:
    """Confine this process, import the simulator, seal the sandbox, and execute the runner's orders to the last."""
    options = json.loads(sys.argv[1])
    world = start(options)
    page = memoryview(mmap.mmap(options["page"], 16)).cast("q")
    runner = RunnerConnection(socket.socket(fileno=options["socket"]))
    evaluator = Evaluator(runner, page, world)
    try:
        evaluator.serve()
    except RunnerGone:
        os._exit(0)  # without the simulator's cleanup, which could hang or crash and saves nothing
    except SimulatorBroken as error:
        print(f"evaluator: the simulator failed and its process must be replaced: {error}", file=sys.stderr, flush=True)
        os._exit(BROKEN)


class Evaluator:
    """Executes the runner's orders. ``page``: the current task, and the task to stop before (runner/processes.py)."""

    def __init__(
        self,
        runner: RunnerConnection,
        page: memoryview,
        world: World,
    ) -> None:
        self._runner = runner
        self._page = page
        self._world = world
        self._setup: EvaluationSetup
        self._plan: TaskPlan
        self._options = EpisodeOptions()
        self._model: LoadedModel
        self._lines: ResultBatch
        self._simulators: list[Simulator] = []  # one per row of a batch
        self._sharing = FrameSharing(allowed=False)
        self._sharing_simulators: list[Simulator] = []  # one per task of a shared frame
        self._specs: list[dict[str, Any]] = []  # the dataset's scenarios
        self._labels: list[dict[str, Any]] = []  # of each scenario, for its results
        self._model_server: ModelServerClient | None = None
        self._cached_seed = (-1, 0)  # a task and its model server's seed
        self._flushed_at = 0.0
        self._flush_interval = 0.0  # seconds; 0 until the first batch

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
            for simulator in (*self._simulators, *self._sharing_simulators):
                simulator.close()
            self._sharing_simulators = []
            self._simulators = [self._world.create(definition) for _ in range(max(1, setup.batch))]
            self._specs = self._world.scenarios(definition)
            self._plan = TaskPlan(setup.tasks)
        except SimulatorBroken:
            raise
        except Exception as error:
            self._runner.send_message("broken", reason=simulator_error(error))
            return
        self._setup = setup
        self._sharing = FrameSharing(allowed=self._may_share(setup))
        keys = ("name", *definition.group_by)
        self._labels = [{key: spec[key] for key in keys if key in spec} for spec in self._specs]
        self._lines = ResultBatch(definition, setup.record, definition.dt)
        self._options = EpisodeOptions(
            latency_steps=int(setup.params.get("latency_steps", 0)),
            describe_model=self._describe_model if setup.dry_run else None,
            keep_actions=definition.record and setup.record != "none",
        )
        self._flush_interval = 0.0
        self._cached_seed = (-1, 0)
        self._runner.send_message("ready")

    def _may_share(self, setup: EvaluationSetup) -> bool:
        """Whether tasks may share frames, if the model server can."""
        delayed = "latency_steps" in setup.params or "latency_steps" in (setup.tasks.get("sweep") or {})
        whole_launch = setup.isolation == "launch" and setup.batch <= 1
        return whole_launch and not delayed and not setup.dry_run and self._world.one_step(setup.definition)

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
        self._lines.begin(order.start)
        self._flushed_at = time.perf_counter()
        task = order.start
        while task < (stop := min(order.stop, self._page[1])):
            self._page[0] = task
            if self._model_server is None:
                self._request_model_server("no model server has been given yet")
            count = self._shared_tasks(task, stop, order)
            task = self._run_shared(task, task + count, order) if count > 1 else self._run_alone(task, stop, order)
        self._flush()
        self._runner.send_message("idle")

    def _shared_tasks(self, task: int, stop: int, order: RangeOrder) -> int:
        """Return how many tasks share the next frame."""
        if task <= order.careful_until or self._model_server is None or not self._model_server.shares_frames:
            return 1
        return min(self._sharing.tasks, stop - task)

    def _run_alone(self, task: int, stop: int, order: RangeOrder) -> int:
        """Run a task, or a batch, by itself; return the next task."""
        size, began = len(self._simulators), time.perf_counter()
        end = task + 1 if size == 1 else min(task - task % size + size, stop)
        fault = self._run_tasks(task, end, stop)
        for strike in range(2, STRIKES + 1):
            if not isinstance(fault, Interrupted):
                break
            self._drop_model_server(fault)
            fault = self._run_tasks(task, end, stop, last=strike == STRIKES)
        now = time.perf_counter()
        if fault is None:
            self._sharing.ran(1, now - began)
        else:
            self._sharing.failed(shared=False)
        self._flush_if_due(order, now)
        if fault is not None and fault.fatal:
            self._drop_model_server(fault)
        return end

    def _run_shared(self, task: int, end: int, order: RangeOrder) -> int:
        """Run tasks [task, end) in one frame; return the first task without a result, which is run by itself next."""
        assert self._model_server is not None
        began, page, first = time.perf_counter(), self._page, task
        while len(self._sharing_simulators) < end - task:
            self._sharing_simulators.append(self._world.create(self._setup.definition))
        located = [self._plan.locate(number) for number in range(task, end)]
        seeds = [self._plan.model_server_seed(number) for number in range(task, end)]

        def enter(row: int) -> None:
            page[0] = first + row

        scenarios = [self._scenario(item) for item in located]
        results = episodes.run_shared(
            self._sharing_simulators, self._model_server, scenarios, seeds, self._options, enter
        )
        try:
            for item, result in zip(located, results, strict=False):
                self._lines.add(item, self._labels[item.index] if self._labels else {}, result)
                task += 1
                self._flush_if_due(order, time.perf_counter())
                if task >= page[1]:
                    return task
        except SimulatorBroken:
            self._flush()  # the results of earlier tasks are valid
            raise
        except ModelFault as fault:
            if fault.fatal:
                self._drop_model_server(fault)
        if task == end:
            self._sharing.ran(end - first, time.perf_counter() - began)
        else:
            self._sharing.failed(shared=True)
        return task

    def _scenario(self, located: Located) -> Scenario:
        spec = self._specs[located.index] if self._specs else {}
        return Scenario(index=located.index, seed=located.seed, repeat=located.repeat, spec=spec, params=located.params)

    def _model_server_seed(self, task: int) -> int:
        """Return the model server's seed for a task. The last one is cached: each is used for two tasks in a row."""
        if self._cached_seed[0] != task:
            self._cached_seed = (task, self._plan.model_server_seed(task))
        return self._cached_seed[1]

    def _next_seed(self, task: int, stop: int) -> int | None:
        return self._model_server_seed(task) if task < stop else None

    def _run_tasks(self, task: int, end: int, stop: int, *, last: bool = False) -> ModelFault | None:
        """Run [task, end) and add the results, unless the model server was interrupted; ``last``: also then."""
        if len(self._simulators) == 1:
            return self._run_task(task, stop, last=last)
        return self._run_batch(task, end, last=last)

    def _run_task(self, task: int, stop: int, *, last: bool) -> ModelFault | None:
        assert self._model_server is not None
        located = self._plan.locate(task)
        seed = self._model_server_seed(task)
        if "latency_steps" in located.swept:
            self._options = replace(self._options, latency_steps=int(located.params["latency_steps"]))
        try:
            result, fault = episodes.run(
                self._simulators[0],
                self._model_server,
                self._scenario(located),
                seed,
                self._options,
                next_seed=self._next_seed(task + 1, stop),
            )
        except SimulatorBroken:
            self._flush()  # the results of earlier tasks are valid
            raise
        if last or not isinstance(fault, Interrupted):
            self._lines.add(located, self._labels[located.index] if self._labels else {}, result)
        return fault

    def _run_batch(self, start: int, stop: int, *, last: bool) -> ModelFault | None:
        """Run the part [start, stop) of a batch; a task's row in the batch depends on its number alone."""
        assert self._model_server is not None
        size = len(self._simulators)
        first = start - start % size
        located = [self._plan.locate(task) if start <= task < stop else None for task in range(first, first + size)]
        scenarios = [None if task is None else self._scenario(task) for task in located]
        try:
            seed, next_seed = self._model_server_seed(first), self._next_seed(first + size, stop)
            results, fault = episodes.run_batch(
                self._simulators, self._model_server, scenarios, seed, self._options, next_seed=next_seed
            )
        except SimulatorBroken:
            self._flush()
            raise
        if isinstance(fault, Interrupted) and not last:
            return fault
        for task, result in zip(located, results, strict=True):
            if task is not None and result is not None:
                self._lines.add(task, self._labels[task.index] if self._labels else {}, result)
        return fault

    def _drop_model_server(self, fault: ModelFault) -> None:
        assert self._model_server is not None
        self._model_server.close()
        self._model_server = None
        self._flush()
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

    # -- batches

    def _flush_if_due(self, order: RangeOrder, now: float) -> None:
        elapsed = now - self._flushed_at
        careful = self._lines.to - 1 <= order.careful_until
        if elapsed >= min(self._flush_interval, order.flush) and (self._flush_interval or elapsed >= FIRST_FLUSH):
            self._flush_interval = SECOND_FLUSH if not self._flush_interval else order.flush
            self._flush()
        elif careful or self._lines.full:
            self._flush()

    def _flush(self) -> None:
        if len(self._lines):
            self._runner.send(self._lines.take())
        self._flushed_at = time.perf_counter()

    # -- replays

    def _replay(self, order: ReplayOrder) -> None:
        try:
            trace = _inflate(order.trace)
            dt = float(self._setup.definition.dt or 0.1)
            frames = episodes.replay(self._simulators[0], self._scenario(self._plan.locate(order.task)), trace, dt)
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
