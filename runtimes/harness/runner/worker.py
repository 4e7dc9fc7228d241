"""Worker: one evaluator with its model server; leases ranges, reports results, replaces a process that dies."""

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..model_server.deadlines import ServerTimes
from ..model_server.explanations import explain_end
from .captured_output import CapturedOutput
from .framed_socket import (
    Batch,
    Broken,
    Idle,
    Message,
    ModelLoaded,
    ModelRefused,
    ModelServerEndWanted,
    NeedModelServer,
    PeerClosed,
    Ready,
    ServerTimesWanted,
)
from .lease_client import HeldLease, LeaseClient
from .processes import EvaluatorProcess, ModelServerProcess
from .runner_api_client import RequestRejected
from .task_patience import TaskPatience

if TYPE_CHECKING:
    from .runner import Runner

#: Seconds an evaluator may take to be set up, and a model server to load its model.
SETUP = 180.0
#: Model servers that may die one after the other before one has loaded the model, and evaluators before one has been
#: set up.
ATTEMPTS = 3
#: Seconds to wait for a model server's exit before a crash is described and blamed on the model, and the bytes that
#: mark a crash in a result.
EXIT_WAIT, CRASHED = 2.0, b'"status":"crashed"'
#: Seconds to wait for a model server to exit by itself, to learn its exit status, before it is killed.
GRACE = 0.1


class SetupFailed(Exception):
    """No evaluator can be set up here."""


class ModelRejected(Exception):
    """The model does not load, or does not fit the dataset."""

    def __init__(self, reason: str, status: str) -> None:
        super().__init__(reason)
        self.reason, self.status = reason, status


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchContext:
    """What all workers of a launch share. ``patience``: seconds an evaluator may spend on one task, which it plays
    twice if it is a spot check of a ``trusted`` model.

    ``model``: path of its file, or of the folder of its files. ``cores``: one core per worker; empty if workers are not
    pinned.
    """

    setup: Mapping[str, Any]
    model: str | None
    outputs: CapturedOutput
    began: float
    patience: float
    cores: Sequence[int] = ()
    trusted: bool = False  # an evaluator runs the model itself
    name: str = ""  # prefix of worker names; unique among the launch's runners
    loaded: threading.Event = field(default_factory=threading.Event)  # set once a worker's model has been loaded,
    under_way: threading.Event = field(default_factory=threading.Event)  # and once it has results and tasks left


class Worker:
    """An evaluator, its model server, and the lease they work on."""

    def __init__(self, number: int, supplier: "Runner", leases: LeaseClient, context: LaunchContext) -> None:
        self.name = f"{context.name}{number}"
        self._core = context.cores[number] if number < len(context.cores) else None
        self._supplier = supplier
        self._leases = leases.holder(self.name)
        self._client = self._leases.client
        self._context = context
        self._lock = threading.Lock()  # guards the evaluator against the heartbeat thread
        self._evaluator: EvaluatorProcess | None = None
        self._patiences = (TaskPatience(), TaskPatience())  # for the task whose world works, and for the first
        self._blamed: int | None = None  # the task that exceeded one
        self._model_server: ModelServerProcess | None = None
        self._rate: float | None = None
        self._unloaded = 0  # consecutive model servers that ended before the model was loaded
        self._loaded = False

    # -- the worker's own thread

    def run(self) -> None:
        """Run tasks until no work is left or the worker must leave. Raises LaunchOver, ModelRejected or SetupFailed."""
        deaths = 0
        while True:
            try:
                self._set_up()
                deaths = 0
                self._work()
                return
            except (PeerClosed, TimeoutError, RequestRejected) as error:
                deaths += 1
                how = self._report_death(error)
                if deaths >= ATTEMPTS:
                    raise SetupFailed(f"the evaluator cannot be set up: {how}") from None

    def _set_up(self) -> None:
        """Take an evaluator, set it up, and give it a model server with the model loaded."""
        evaluator = self._supplier.evaluator()
        with self._lock:
            self._evaluator = evaluator
        if self._core is not None:
            evaluator.process.pin(self._core)
        evaluator.channel.send({"type": "setup", "play": self._context.setup})
        self._expect(evaluator, Ready)
        self._bring_model_server(evaluator)
        self._expect(evaluator, ModelLoaded)

    def _expect(self, evaluator: EvaluatorProcess, kind: type[Message]) -> None:
        until = time.monotonic() + SETUP
        while True:
            message = evaluator.channel.receive(until - time.monotonic())
            if isinstance(message, kind):
                self._handle_message(evaluator, message)
                return
            if isinstance(message, Batch | Idle):
                raise PeerClosed("the evaluator sent an unexpected message")
            self._handle_message(evaluator, message)
            until = time.monotonic() + SETUP  # the evaluator is at work, and has deadlines of its own

    def _handle_message(self, evaluator: EvaluatorProcess, message: Message) -> None:
        """Handle a message that is not a result."""
        match message:
            case NeedModelServer():
                self._unloaded += 1
                how = explain_end(self._dismiss_model_server())
                if self._unloaded > ATTEMPTS:
                    raise ModelRejected(f"The model's process ends before it has loaded the model: {how}.", "crashed")
                self._bring_model_server(evaluator)
            case ModelLoaded():
                self._unloaded, self._loaded = 0, True
                self._context.loaded.set()
            case ModelRefused():
                self._unloaded += 1
                # The model server may have died of another cause, and a model that loaded once will load again.
                again = self._unloaded < ATTEMPTS and (self._loaded or message.status == "crashed")
                if message.final or not again:
                    raise ModelRejected(message.reason, message.status)
                self._dismiss_model_server()
                self._bring_model_server(evaluator)
            case ServerTimesWanted():
                model_server = self._model_server
                times = None if model_server is None else model_server.process.times()
                evaluator.channel.send({"type": "server_times", "times": times})
            case ModelServerEndWanted():
                ended = None if self._model_server is None else self._model_server.process.wait(EXIT_WAIT)
                evaluator.channel.send({"type": "model_server_end", "how": ended})
            case Broken():
                raise SetupFailed(message.reason)
            case Ready():
                pass
            case _:
                raise PeerClosed("the evaluator sent an unexpected message")

    def _bring_model_server(self, evaluator: EvaluatorProcess) -> None:
        """Send the evaluator a new model server's socket and the model."""
        self._model_server = model_server = self._supplier.model_server()
        if self._core is not None:
            model_server.process.pin(self._core)
        descriptors = [model_server.socket.fileno()]
        model = self._context.model
        order = {"type": "model_server"}
        if model is not None and os.path.isdir(model):
            order["folder"] = model
        elif model is not None:
            descriptors.append(os.open(model, os.O_RDONLY | os.O_CLOEXEC))  # every model server needs its own offset
        try:
            evaluator.channel.send(order, descriptors)
        finally:
            model_server.socket.close()  # only the evaluator uses it
            for descriptor in descriptors[1:]:
                os.close(descriptor)

    def _dismiss_model_server(self) -> str:
        """End the model server; return how it ended if it ended by itself."""
        model_server, self._model_server = self._model_server, None
        if model_server is None:
            return "it was not there"
        by_itself = model_server.process.wait(GRACE)
        model_server.dismiss("it did not answer, or its answer was invalid")
        if by_itself is not None:
            self._context.outputs.add(model_server.process.name, f"[the model's process ended: {by_itself}]\n".encode())
        return by_itself or "it did not answer and was ended"

    def _work(self) -> None:
        """Lease, run, report, until no work is left."""
        while (held_lease := self._leases.next(self._require_evaluator().page, self._rate)) is not None:
            self._run_lease(held_lease)

    def _run_lease(self, held_lease: HeldLease) -> None:
        """Run a lease to its end, until it is lost, or until the worker is to stop."""
        evaluator = self._require_evaluator()
        while (tasks := self._leases.resume(held_lease)) is not None:
            flush = flush_after(time.monotonic() - self._context.began)
            order = {
                "start": tasks.start,
                "stop": tasks.stop,
                "flush": flush,
                "careful_until": held_lease.granted.careful,
            }
            evaluator.channel.send({"type": "play"} | order)
            since = time.monotonic()
            while not isinstance(message := evaluator.channel.receive(), Idle):
                if isinstance(message, Batch):
                    self._rate = blend(self._rate, (message.to - message.since) / max(1e-6, time.monotonic() - since))
                    self._report(held_lease, message)
                    since = time.monotonic()
                else:
                    self._handle_message(evaluator, message)
            if range(held_lease.cursor, held_lease.stop) == tasks and not held_lease.lost and not self._leases.stopping:
                raise PeerClosed("the evaluator produced no result")

    def _report(self, held_lease: HeldLease, batch: Batch) -> None:
        """Report results; results that do not continue the lease are dropped."""
        if not held_lease.continues_with(batch):
            return
        if batch.to <= batch.since:
            raise PeerClosed("the evaluator sent an empty batch")
        if batch.failed and CRASHED in bytes(batch.lines):
            self._await_model_server_exit()
        if batch.to >= held_lease.stop:
            self.send_output()  # captured output must not arrive after the end of the range
        self._leases.report(held_lease, batch, self._rate)
        if held_lease.unfinished:
            self._context.under_way.set()

    def _await_model_server_exit(self) -> None:
        """Wait for the model server's exit status: if all processes end with it, the runner stops without reporting."""
        if self._model_server is not None:
            self._model_server.process.wait(EXIT_WAIT)

    def send_output(self) -> None:
        """Send the output captured so far."""
        for name, data in self._context.outputs.take():
            self._client.log(name, data)

    def refuse(self, refusal: ModelRejected) -> None:
        """Report that the model cannot be used for this launch."""
        self.send_output()
        self._client.refuse_model(refusal.reason, refusal.status)

    def _require_evaluator(self) -> EvaluatorProcess:
        if self._evaluator is None:
            raise PeerClosed("the evaluator is gone")
        return self._evaluator

    def _report_death(self, error: Exception) -> str:
        """Report that the evaluator died, which releases the lease, and reset the worker."""
        with self._lock:
            evaluator, self._evaluator = self._evaluator, None
        held_lease = self._leases.drop()  # before the evaluator's page is closed
        how = str(error)
        task = -1
        if evaluator is not None:
            how = evaluator.process.wait(1.0) or f"it was ended: {error}"
            task, self._blamed = evaluator.page.task if self._blamed is None else self._blamed, None
            evaluator.dismiss(how)
        if self._context.trusted:
            how += "; the model is trusted and runs in its process"
        self._context.outputs.add(f"evaluator-{self.name}", f"[the simulator's process ended: {how}]\n".encode())
        if self._model_server is not None:
            self._model_server.dismiss()
            self._model_server = None
        self.send_output()
        if held_lease is not None:
            self._leases.report_death(held_lease, task, how)
        return how

    # -- the thread that balances cores

    @property
    def core(self) -> int | None:
        """The core that evaluator and model server are pinned to; None: not pinned."""
        return self._core

    def move(self, core: int) -> None:
        """Pin evaluator and model server, and their successors, to this core from now on."""
        self._core = core
        with self._lock:
            evaluator, model_server = self._evaluator, self._model_server
        for child in (evaluator, model_server):
            if child is not None:
                child.process.pin(core)

    # -- the heartbeat thread

    def check_patience(self) -> None:
        """Kill an evaluator that exceeds the limit for one task; time in which the machine did not run it is free."""
        with self._lock:
            if self._evaluator is None or not self._leases.at_work:
                return
            page = self._evaluator.page
            # Tasks that are played side by side divide the time of their worker.
            watched = ((page.task, self._context.patience), (page.first, self._context.patience * page.worlds))
            for patience, (task, seconds) in zip(self._patiences, watched, strict=True):
                if patience.is_exceeded(task, seconds, self._read_times):
                    self._blamed = task
                    self._evaluator.process.kill(f"it spent more than {seconds:g} s on task {task}")
                    return

    def _read_times(self) -> ServerTimes | None:
        """Return the times of evaluator, its ranks and model server together: they work on the task in turns."""
        parts = [part for part in (self._evaluator, self._model_server) if part is not None]
        times = [process.times() for part in parts for process in part.processes]
        known = [ServerTimes(**part) for part in times if part is not None]
        if not known or len(known) < len(times):
            return None
        return ServerTimes(
            threads={
                f"{part}/{name}": item for part, values in enumerate(known) for name, item in values.threads.items()
            },
            ready=[f"{part}/{name}" for part, values in enumerate(known) for name in values.ready],
            throttled=max(values.throttled for values in known),
            stalled=max(values.stalled for values in known),
            blocked=any(values.blocked for values in known),
            stolen=max(values.stolen for values in known),
        )


def flush_after(elapsed: float) -> float:
    """Return the seconds of results per batch: fresh news at first, fewer objects in a long run."""
    return 1.0 if elapsed < 60 else 2.0 if elapsed < 600 else 5.0


def blend(rate: float | None, measured: float) -> float:
    """Return the moving estimate of tasks per second after one more batch."""
    return measured if rate is None else (rate + measured) / 2
