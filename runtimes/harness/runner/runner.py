"""Runner process: starts evaluators and model servers in advance, then serves one launch and exits.

It holds the launch's token and speaks HTTP; it parses no model and runs no simulator. Only the main thread starts
processes (the kernel ties their parent-death signal to the thread that forked them) and observes their exits. A runner
is either a child of the node agent, which sends the launch over a control socket, or stands alone and is given its
launch at the start (``LaunchDocument``).
"""

import collections
import ctypes
import json
import os
import random
import selectors
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..dataset_definition import definition_of
from . import model_folder
from .captured_output import CapturedOutput
from .cpu_pinning import ROUND, CpuMeter, choose
from .fork_spawner import ForkSpawner
from .framed_socket import receive_with_rights
from .lease_client import LeaseClient
from .processes import (
    EvaluatorProcess,
    ModelServerProcess,
    Process,
    Spawner,
    WorkerSpec,
    spawn_evaluator,
    spawn_model_server,
)
from .runner_api_client import (
    Connect,
    Credentials,
    LaunchOver,
    RequestRejected,
    RunnerApi,
    RunnerApiClient,
    Unreachable,
)
from .worker import ATTEMPTS, LaunchContext, ModelRejected, SetupFailed, Worker

#: Exit codes: the launch ended; no evaluator can be set up; the runner API does not answer; a fault of the runner; the
#: spawner can start no more processes; stopped by a signal (128 + SIGTERM).
DONE, SETUP_FAILED, UNREACHABLE, INTERNAL_ERROR, SPAWNER_LOST, STOPPED = 0, 70, 75, 76, 77, 143
#: Seconds an evaluator may spend on one task before it is killed; a dataset's ``task_patience`` overrides this.
TASK_PATIENCE = 600.0
#: Seconds between two deliveries of captured output.
LOG_INTERVAL = 1.0
#: Seconds that evaluators get to report finished tasks once the runner is stopped, and the timeout of one request then.
LAST_TASK, LAST_REQUEST = 1.0, 0.5
#: Seconds that the first worker may take to load the model, and then to its first results, before workers are started
#: for which no processes are there: many a small launch is over by then.
LOADING, ALONE = 0.25, 0.1
PR_SET_DUMPABLE, PR_SET_NAME = 4, 15
#: Modules of which a runner orders processes.
MODULES = ("evaluator", "model_server")


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchDocument:
    """The launch, and this runner's part in it.

    ``description`` is the runner API's description of the launch, if fetched already. ``model`` is the path of a file,
    or of the folder of an archive's files; ``fetch_inputs``, if set, downloads the inputs, returns the model's path
    once it and the dataset's folder exist, and gives up when the event is set. ``name`` prefixes the names of this
    runner's workers; it is unique in the launch. ``choose_cores``: no cores are assigned, and the runner chooses
    them itself.
    """

    credentials: Credentials
    workers: int
    model: str | None = None
    cores: Sequence[int] = ()
    name: str = ""
    description: Mapping[str, Any] | None = None
    fetch_inputs: Callable[[threading.Event], str] | None = None
    choose_cores: bool = False


T = TypeVar("T", bound=EvaluatorProcess | ModelServerProcess)


class ReadyProcesses(Generic[T]):
    """Processes of one module that wait to be taken; ``spare`` of them are kept ready."""

    def __init__(self, make: Callable[[str], T], name: str, spare: int, wake: Callable[[], None]) -> None:
        self.spare = spare
        self.deaths = 0  # consecutive exits of processes that were not taken yet
        self._make = make
        self._name = name
        self._wake = wake
        self._made = 0
        self._waiting = 0
        self._ready: collections.deque[T] = collections.deque()
        self._changed = threading.Condition()
        self._retry_at = 0.0

    def take(self, *, replaced: bool = True) -> T:
        """Wait for a ready process and take it (thread-safe). Not ``replaced``: keep one fewer ready from now on."""
        with self._changed:
            self.spare -= 0 if replaced else min(1, self.spare)
            self._waiting += 1
            self._wake()
            self._changed.wait_for(lambda: bool(self._ready))
            self._waiting -= 1
            process = self._ready.popleft()
            self.deaths = 0
        self._wake()
        return process

    def refill(self, now: float) -> list[T]:
        """Start the missing processes (main thread only). After a death the next start is delayed a little."""
        started: list[T] = []
        with self._changed:
            lacking = self.spare + self._waiting - len(self._ready)
        while lacking > len(started) and now >= self._retry_at:
            process = self._make(f"{self._name}-{self._made}")
            self._made += 1
            started.append(process)
        with self._changed:
            self._ready.extend(started)
            self._changed.notify_all()
        return started

    def remove(self, process: Process, now: float) -> bool:
        """Remove a process that has ended; return whether it was still waiting here."""
        with self._changed:
            waiting = next((ready for ready in self._ready if process in ready.processes), None)
            if waiting is not None:
                self._ready.remove(waiting)
                if len(waiting.processes) > 1:
                    waiting.dismiss("what belongs to it has ended")
                self.deaths += 1
                self._retry_at = now + 0.1 * self.deaths
            return waiting is not None


class Runner:
    """A runner and its main thread. ``workers``: those whose processes are started at once; ``reserve``: model servers
    started at once beyond one per worker.

    A launch that waits for its first result needs no reserve: each start costs CPU time that the first workers need.
    ``connect``: opens its connections to the runner API.
    """

    def __init__(
        self, spec: WorkerSpec, workers: int, spawner: Spawner, *, reserve: int = 1, connect: Connect = RunnerApiClient
    ) -> None:
        self._spec = spec
        self._connect = connect
        self._ahead = workers
        self._spawner = spawner
        self._control: socket.socket | None = None
        self._selector = selectors.DefaultSelector()
        self._awake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stop = threading.Event()
        self._finishing = threading.Lock()
        self._code: int | None = None
        self._reason = ""
        self._outputs = CapturedOutput()
        self._living: set[Process] = set()
        self._evaluators: ReadyProcesses[EvaluatorProcess] = ReadyProcesses(
            lambda name: spawn_evaluator(spec, name, spawner), "evaluator", workers, self._wake
        )
        self._model_servers: ReadyProcesses[ModelServerProcess] = ReadyProcesses(
            lambda name: spawn_model_server(spec, name, spawner), "model-server", workers + reserve, self._wake
        )
        self._credentials: Credentials | None = None
        self._leases: LeaseClient | None = None
        self._workers: list[tuple[Worker, threading.Thread]] = []
        self._under_way = False
        self._interrupted = False
        self._leaving = False

    # -- the main thread

    def attach_agent(self, control: socket.socket) -> None:
        """Attach to a node agent: it sends the launch on this socket, and the runner ends when the socket closes."""
        self._control = control
        self._selector.register(control, selectors.EVENT_READ, lambda: self._on_control_message(control))

    def start_launch(self, document: LaunchDocument) -> None:
        """Start work on a launch."""
        threading.Thread(target=self._guarded, args=(self._run_launch, document), name="campaign", daemon=True).start()

    def start_when_ready(self, arrival: Callable[[threading.Event], LaunchDocument]) -> None:
        """Start work on a launch once ``arrival`` returns it; ``arrival`` gives up when the event is set."""
        threading.Thread(target=self._guarded, args=(self._wait_and_run, arrival), name="campaign", daemon=True).start()

    def interrupt(self) -> None:
        """Stop soon: report finished tasks, release the rest. Safe to call from a signal handler."""
        self._interrupted = True
        self._wake()

    def run(self) -> int:
        """Run until the launch is over or the agent is gone; kill every process started; return the exit code."""
        self._selector.register(self._awake, selectors.EVENT_READ, self._clear_wake_up)
        self._spawner.register(self._selector, lambda reason: self.finish(SPAWNER_LOST, reason))
        try:
            while self._code is None:
                self._refill(time.monotonic())
                for key, _ in self._selector.select(0.2):
                    key.data()
                if self._interrupted and not self._leaving:
                    self._leaving = True
                    threading.Thread(target=self._guarded, args=(self._shut_down,), name="leaving", daemon=True).start()
        finally:
            self._stop.set()
            for process in self._living:
                process.kill("the runner is stopping")
            for process in self._living:
                self._outputs.forget(process.output)
                process.reap()
        self._send_final_reason()
        return self._code

    def _refill(self, now: float) -> None:
        if self._spawner.ready("evaluator"):
            for evaluator in self._evaluators.refill(now):
                for process in evaluator.processes:
                    self._watch(process)
        if self._spawner.ready("model_server"):
            for model_server in self._model_servers.refill(now):
                self._watch(model_server.process)

    def _watch(self, process: Process) -> None:
        self._living.add(process)
        self._outputs.watch(process.output, process.name)
        self._selector.register(process.output, selectors.EVENT_READ, lambda: self._on_output(process))
        self._selector.register(process.end, selectors.EVENT_READ, lambda: self._on_exit(process))

    def _on_output(self, process: Process) -> None:
        if process not in self._living:
            return  # it was reaped a moment ago, and its descriptor numbers may be reused by now
        if not self._outputs.collect(process.output):
            self._selector.unregister(process.output)

    def _on_exit(self, process: Process) -> None:
        self._selector.unregister(process.end)
        if process.output in self._selector.get_map():
            self._selector.unregister(process.output)
        self._outputs.forget(process.output)
        self._living.remove(process)
        how = process.reap()
        for processes in (self._evaluators, self._model_servers):
            if processes.remove(process, time.monotonic()):
                self._outputs.add(process.name, f"[{process.name} ended before it was used: {how}]\n".encode())
                if processes.deaths > ATTEMPTS:
                    self.finish(SETUP_FAILED, f"{process.name} cannot be started: {how}")

    def _clear_wake_up(self) -> None:
        os.eventfd_read(self._awake)

    def _wake(self) -> None:
        os.eventfd_write(self._awake, 1)

    def _on_control_message(self, control: socket.socket) -> None:
        data, descriptors = receive_with_rights(control)
        if not data:
            self.finish(DONE, "the agent is gone")
            return
        # The runner keeps the lock on the launch's folder until it exits: the lock shows others that it is alive.
        self._lock = descriptors
        document = json.loads(data)
        credentials = Credentials(url=document["url"], launch=document["launch"], token=document["token"])
        cores = document.get("cores") or ()
        self.start_launch(
            LaunchDocument(
                credentials=credentials, workers=int(document["workers"]), model=document["model"], cores=cores
            )
        )

    def finish(self, code: int, reason: str) -> None:
        """End the runner; only the first call's code and reason count."""
        with self._finishing:
            if self._code is None:
                self._reason = reason
                self._code = code  # last: the main thread polls it
        self._stop.set()
        self._wake()

    def _send_final_reason(self) -> None:
        """Deliver the remaining output if that is quick, and send the agent the reason for the exit."""
        if self._credentials is not None:
            client = self._connect(self._credentials, threading.Event(), patience=0.0, time_out=2 * LAST_REQUEST)
            try:
                deliver(self._outputs, client)
            except (LaunchOver, Unreachable, RequestRejected):
                self._reason = self._reason or "over"
        if self._control is None:
            return
        try:
            self._control.send(json.dumps({"reason": self._reason}).encode())
        except OSError:
            print(self._reason, file=sys.stderr)  # the agent exited first

    @property
    def reason(self) -> str:
        """Why the runner ended."""
        return self._reason

    # -- other threads

    def evaluator(self) -> EvaluatorProcess:
        """Take an evaluator; waits until one is ready."""
        return self._evaluators.take()

    def model_server(self) -> ModelServerProcess:
        """Take a model server; waits until one is ready."""
        return self._model_servers.take(replaced=self._under_way)

    def _guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        """Run a thread's work; an exception of any kind ends the runner with its exit code."""
        try:
            work(*arguments)
        except LaunchOver as error:
            self.finish(DONE, f"the launch is over ({error})")
        except SetupFailed as error:
            self.finish(SETUP_FAILED, str(error))
        except Unreachable as error:
            self.finish(UNREACHABLE, str(error))
        except Exception as error:
            traceback.print_exc()
            self.finish(INTERNAL_ERROR, f"a fault of the runner: {type(error).__name__}: {error}")

    def _wait_and_run(self, arrival: Callable[[threading.Event], LaunchDocument]) -> None:
        self._run_launch(arrival(self._stop))

    def _run_launch(self, document: LaunchDocument) -> None:
        """Start the workers, then send heartbeats until the launch is over; another thread delivers output."""
        self._credentials = credentials = document.credentials
        client = self._connect(credentials, self._stop)
        description = document.description or client.launch()
        model = document.model
        if document.fetch_inputs is not None:
            try:
                model = document.fetch_inputs(self._stop)
            except ModelRejected as refusal:
                client.refuse_model(refusal.reason, refusal.status)
                self.finish(DONE, refusal.reason)
                return
        if model is not None and os.path.isdir(model):
            model = model_folder.place(model, self._spec.model_folder)
        play = description["play"]
        context = LaunchContext(
            setup=play | {"format": self._spec.format},
            model=model,
            outputs=self._outputs,
            began=time.monotonic(),
            patience=(definition_of(play["definition"]).task_patience or TASK_PATIENCE) * (1 + self._spec.trusted),
            cores=document.cores,
            name=document.name,
            trusted=self._spec.trusted,
        )
        self._leases = leases = LeaseClient(credentials, self._stop, client, self._connect)
        self._evaluators.spare = 0  # from now on an evaluator is started only on demand
        for number in range(document.workers):
            worker = Worker(number, self, leases, context)
            work = self._worker if number < self._ahead else self._worker_later
            thread = threading.Thread(target=self._guarded, args=(work, worker, context), name=worker.name, daemon=True)
            self._workers.append((worker, thread))
            thread.start()
        threading.Thread(target=self._guarded, args=(self._deliver, credentials), name="logs", daemon=True).start()
        if document.choose_cores:
            threading.Thread(target=self._guarded, args=(self._balance_cores,), name="cores", daemon=True).start()
        # One model server is kept in reserve, but not before work is under way.
        while not self._stop.wait(leases.renew()):
            self._model_servers.spare, self._under_way = 1, True
            for worker, _ in self._workers:
                worker.check_patience()

    def _balance_cores(self) -> None:
        """Pin each worker's evaluator and model server to one core, and move them when another core is less busy."""
        meter = CpuMeter()
        while not self._stop.wait(ROUND):
            busy = meter.read()
            for worker, _ in self._workers:
                core = choose(worker.core, busy, random.random())
                if core is not None and core != worker.core:
                    worker.move(core)
                    busy[core] = 1.0  # so that the next worker does not choose it too

    def _shut_down(self) -> None:
        """Stop in order: evaluators report finished tasks, then unfinished leases are released without blame."""
        until = time.monotonic() + LAST_TASK
        leases = self._leases
        for holder in leases.holders if leases is not None else ():
            holder.stop()
        for _, thread in list(self._workers):
            thread.join(max(0.0, until - time.monotonic()))
        try:
            if leases is not None:
                leases.release(LAST_REQUEST)
        finally:
            self.finish(STOPPED, "the runner was stopped by a signal")

    def _worker_later(self, worker: Worker, context: LaunchContext) -> None:
        """Start a worker whose processes must be made first, unless the launch is over in a moment."""
        context.loaded.wait(LOADING)
        context.under_way.wait(ALONE)
        if not self._stop.is_set():
            self._worker(worker, context)

    def _worker(self, worker: Worker, context: LaunchContext) -> None:
        try:
            worker.run()
            if not self._leaving:
                self.finish(DONE, "there is no more work")
        except ModelRejected as refusal:
            worker.refuse(refusal)
            self.finish(DONE, refusal.reason)

    def _deliver(self, credentials: Credentials) -> None:
        client = self._connect(credentials, self._stop)
        while not self._stop.wait(LOG_INTERVAL):
            deliver(self._outputs, client)


def deliver(outputs: CapturedOutput, client: RunnerApi) -> None:
    """Send the output captured since the last delivery."""
    for name, data in outputs.take():
        client.log(name, data)


def main() -> None:
    """Run as the agent's child: one JSON object on the command line, the launch over the control socket."""
    # Processes of the same user must not read the token from this process's memory.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    document = json.loads(sys.argv[1])
    control = socket.socket(fileno=document["control"])
    spec = WorkerSpec(**document["worker_spec"])
    ctypes.CDLL(None).prctl(PR_SET_NAME, document.get("name", "runner").encode())
    if spec.model_folder:
        model_folder.lock(spec.model_folder)
    forks = {module: document[f"{module}_forks"] for module in MODULES if f"{module}_forks" in document}
    connections = {module: socket.socket(fileno=descriptor) for module, descriptor in forks.items()}
    # What is forked is there in milliseconds: no more than the first worker's processes wait for the launch.
    ahead, reserve = (1, 0) if len(connections) == len(MODULES) else (document["workers"], 1)
    runner = Runner(spec, ahead, ForkSpawner(spec, connections), reserve=reserve)
    runner.attach_agent(control)
    code = runner.run()
    os._exit(code)  # threads may still wait for responses that are not needed
