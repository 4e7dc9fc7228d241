"""The runner: starts evaluators and model servers before it is known for what, then sees one launch through and ends.

It holds the launch's token and speaks HTTP; it parses no model and runs no simulator. Its main thread is the only one
that starts processes (their request to die with it follows the thread) and the one that sees them end. It is an
agent's child and told of its launch by it, or stands alone in a place of its own and knows its launch (``Told``).
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
from typing import Any, Generic, Protocol, TypeVar

from .captured_output import Outputs
from .cpu_pinning import ROUND, Meter, choose
from .framed_socket import receive_with_rights
from .processes import (
    EvaluatorProcess,
    Here,
    Kit,
    ModelServerProcess,
    Process,
    Spawner,
    spawn_evaluator,
    spawn_model_server,
)
from .runner_api_client import Credentials, Over, Surface, Unreachable, Unreadable
from .worker import ATTEMPTS, Engagement, Hopeless, Refusal, Staff, Worker

#: Exit codes: the launch was seen to its end; no evaluator can be set up; nobody answers; a fault of our own; where
#: processes come from, there are no more; we were told to stop (128 + SIGTERM).
DONE, HOPELESS, UNREACHABLE, BROKEN, BEREFT, STOPPED = 0, 70, 75, 76, 77, 143
#: Seconds an evaluator may spend on one task before it is ended; a dataset may say otherwise.
TASK_PATIENCE = 600.0
#: Seconds between two deliveries of what was printed.
LOG_INTERVAL = 1.0
#: Seconds that evaluators get to report what they have played once we are told to stop, and one request after that.
LAST_TASK, LAST_WORD = 1.0, 0.5
PR_SET_DUMPABLE = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """The launch, and this runner's part in it.

    ``described`` is what the runner API says of it, where that was asked already. ``model`` is a file; ``bring``,
    where there is one, returns another once it and the dataset's folder are there, or gives up when the event is set.
    ``name`` tells this runner's workers from those of the launch's other runners. ``roam``: nobody gives out cores, so
    the runner looks for them itself.
    """

    credentials: Credentials
    workers: int
    model: str | None = None
    cores: Sequence[int] = ()
    name: str = ""
    described: Mapping[str, Any] | None = None
    bring: Callable[[threading.Event], str] | None = None
    roam: bool = False


class Staffed(Protocol):
    """An evaluator or a model server."""

    @property
    def process(self) -> Process: ...


T = TypeVar("T", bound=Staffed)


class Stock(Generic[T]):
    """Processes of one kind that are ready to be taken; ``spare`` of them are kept at hand."""

    def __init__(self, make: Callable[[str], T], name: str, spare: int, wake: Callable[[], None]) -> None:
        self.spare = spare
        self.deaths = 0  # in a row, of processes that nobody had taken
        self._make = make
        self._name = name
        self._wake = wake
        self._made = 0
        self._waiting = 0
        self._ready: collections.deque[T] = collections.deque()
        self._changed = threading.Condition()
        self._retry_at = 0.0

    def take(self, *, replaced: bool = True) -> T:
        """Wait for one and take it; any thread may. Not ``replaced``: one less is kept at hand from now on."""
        with self._changed:
            self.spare -= 0 if replaced else min(1, self.spare)
            self._waiting += 1
            self._wake()
            self._changed.wait_for(lambda: bool(self._ready))
            self._waiting -= 1
            taken = self._ready.popleft()
            self.deaths = 0
        self._wake()
        return taken

    def refill(self, now: float) -> list[T]:
        """Make what is lacking; only the main thread may. After a death, the next is made a little later."""
        made: list[T] = []
        with self._changed:
            lacking = self.spare + self._waiting - len(self._ready)
        while lacking > len(made) and now >= self._retry_at:
            one = self._make(f"{self._name}-{self._made}")
            self._made += 1
            made.append(one)
        with self._changed:
            self._ready.extend(made)
            self._changed.notify_all()
        return made

    def remove(self, process: Process, now: float) -> bool:
        """Forget one that has ended; tell whether it was still here."""
        with self._changed:
            found = next((one for one in self._ready if one.process is process), None)
            if found is not None:
                self._ready.remove(found)
                self.deaths += 1
                self._retry_at = now + 0.1 * self.deaths
            return found is not None


class Runner(Staff):
    """One runner and its main thread. ``reserve``: model servers beside the workers' own that are made at once.

    A launch that waits for its first result wants none yet: each costs processor time that the first ones need.
    """

    def __init__(self, kit: Kit, workers: int, spawner: Spawner, *, reserve: int = 1) -> None:
        self._kit = kit
        self._spawner = spawner
        self._control: socket.socket | None = None
        self._selector = selectors.DefaultSelector()
        self._awake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stop = threading.Event()
        self._finishing = threading.Lock()
        self._code: int | None = None
        self._reason = ""
        self._outputs = Outputs()
        self._living: set[Process] = set()
        self._evaluators: Stock[EvaluatorProcess] = Stock(
            lambda name: spawn_evaluator(kit, name, spawner), "evaluator", workers, self._wake
        )
        self._model_servers: Stock[ModelServerProcess] = Stock(
            lambda name: spawn_model_server(kit, name, spawner), "model-server", workers + reserve, self._wake
        )
        self._credentials: Credentials | None = None
        self._workers: list[tuple[Worker, threading.Thread]] = []
        self._under_way = False
        self._interrupted = False
        self._leaving = False

    # -- the main thread

    def heed(self, control: socket.socket) -> None:
        """Be an agent's: it tells of the launch on this socket, and when it is gone, so are we."""
        self._control = control
        self._selector.register(control, selectors.EVENT_READ, lambda: self._spoken_to(control))

    def begin(self, told: Told) -> None:
        """Work for a launch from now on."""
        threading.Thread(target=self._guarded, args=(self._campaign, told), name="campaign", daemon=True).start()

    def attend(self, arrival: Callable[[threading.Event], Told]) -> None:
        """Work for a launch as soon as this returns it, or gives up because the event is set."""
        threading.Thread(target=self._guarded, args=(self._expect, arrival), name="campaign", daemon=True).start()

    def interrupt(self) -> None:
        """Have it stop soon: report what is played, give back what is not. Safe to call from a signal's handler."""
        self._interrupted = True
        self._wake()

    def run(self) -> int:
        """Stay until the launch is over or the agent is gone; leave no process behind."""
        self._selector.register(self._awake, selectors.EVENT_READ, self._woken)
        self._spawner.register(self._selector, lambda reason: self.finish(BEREFT, reason))
        try:
            while self._code is None:
                self._refill(time.monotonic())
                for key, _ in self._selector.select(0.2):
                    key.data()
                if self._interrupted and not self._leaving:
                    self._leaving = True
                    threading.Thread(target=self._guarded, args=(self._leave,), name="leaving", daemon=True).start()
        finally:
            self._stop.set()
            for process in self._living:
                process.kill()
            for process in self._living:
                self._outputs.forget(process.output)
                process.reap()
        self._say_goodbye()
        return self._code

    def _refill(self, now: float) -> None:
        if self._spawner.ready("evaluator"):
            for evaluator in self._evaluators.refill(now):
                self._watch(evaluator.process)
        if self._spawner.ready("model_server"):
            for model_server in self._model_servers.refill(now):
                self._watch(model_server.process)

    def _watch(self, process: Process) -> None:
        self._living.add(process)
        self._outputs.watch(process.output, process.name)
        self._selector.register(process.output, selectors.EVENT_READ, lambda: self._printed(process))
        self._selector.register(process.end, selectors.EVENT_READ, lambda: self._ended(process))

    def _printed(self, process: Process) -> None:
        if process not in self._living:
            return  # it was seen to end a moment ago, and its descriptors may be somebody else's by now
        if not self._outputs.collect(process.output):
            self._selector.unregister(process.output)

    def _ended(self, process: Process) -> None:
        self._selector.unregister(process.end)
        if process.output in self._selector.get_map():
            self._selector.unregister(process.output)
        self._outputs.forget(process.output)
        self._living.remove(process)
        how = process.reap()
        for stock in (self._evaluators, self._model_servers):
            if stock.remove(process, time.monotonic()):
                self._outputs.add(process.name, f"[{process.name} ended before it was used: {how}]\n".encode())
                if stock.deaths > ATTEMPTS:
                    self.finish(HOPELESS, f"{process.name} cannot be started: {how}")

    def _woken(self) -> None:
        os.eventfd_read(self._awake)

    def _wake(self) -> None:
        os.eventfd_write(self._awake, 1)

    def _spoken_to(self, control: socket.socket) -> None:
        data, descriptors = receive_with_rights(control, 1)
        if not data:
            self.finish(DONE, "the agent is gone")
            return
        # The lock on the launch's folder stays with us until we end: that is how others see that we live.
        self._lock = descriptors
        told = json.loads(data)
        credentials = Credentials(url=told["url"], launch=told["launch"], token=told["token"])
        cores = told.get("cores") or ()
        self.begin(Told(credentials=credentials, workers=int(told["workers"]), model=told["model"], cores=cores))

    def finish(self, code: int, reason: str) -> None:
        """End the runner; the first word counts."""
        with self._finishing:
            if self._code is None:
                self._reason = reason
                self._code = code  # last: it is what the main thread looks at
        self._stop.set()
        self._wake()

    def _say_goodbye(self) -> None:
        """Deliver what is still unsaid, if that is quick, and tell the agent why we end."""
        if self._credentials is not None:
            surface = Surface(self._credentials, threading.Event(), patience=0.0, time_out=2 * LAST_WORD)
            try:
                deliver(self._outputs, surface)
            except (Over, Unreachable, Unreadable):
                self._reason = self._reason or "over"
        if self._control is None:
            return
        try:
            self._control.send(json.dumps({"reason": self._reason}).encode())
        except OSError:
            print(self._reason, file=sys.stderr)  # the agent was gone first

    @property
    def reason(self) -> str:
        """Why it ended."""
        return self._reason

    # -- other threads

    def evaluator(self) -> EvaluatorProcess:
        """Take an evaluator."""
        return self._evaluators.take()

    def model_server(self) -> ModelServerProcess:
        """Take a model server."""
        return self._model_servers.take(replaced=self._under_way)

    def _guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        """Run a thread's work; however it ends, the runner knows."""
        try:
            work(*arguments)
        except Over as error:
            self.finish(DONE, f"the launch is over ({error})")
        except Hopeless as error:
            self.finish(HOPELESS, str(error))
        except Unreachable as error:
            self.finish(UNREACHABLE, str(error))
        except Exception as error:
            traceback.print_exc()
            self.finish(BROKEN, f"a fault of the runner: {type(error).__name__}: {error}")

    def _expect(self, arrival: Callable[[threading.Event], Told]) -> None:
        self._campaign(arrival(self._stop))

    def _campaign(self, told: Told) -> None:
        """Worker the evaluators, then heartbeat and deliver output until the launch is over."""
        self._credentials = credentials = told.credentials
        surface = Surface(credentials, self._stop)
        described = told.described or surface.launch()
        model = told.model
        if told.bring is not None:
            model = told.bring(self._stop)
        play = described["play"]
        engagement = Engagement(
            setup=play | {"format": self._kit.format},
            model=model,
            outputs=self._outputs,
            began=time.monotonic(),
            patience=float(play["definition"].get("task_patience", TASK_PATIENCE)),
            cores=told.cores,
            name=told.name,
        )
        for number in range(told.workers):
            worker = Worker(number, self, Surface(credentials, self._stop), engagement)
            thread = threading.Thread(target=self._guarded, args=(self._worker, worker), name=worker.name, daemon=True)
            self._workers.append((worker, thread))
            thread.start()
        threading.Thread(target=self._guarded, args=(self._deliver, credentials), name="logs", daemon=True).start()
        if told.roam:
            threading.Thread(target=self._guarded, args=(self._roam,), name="cores", daemon=True).start()
        # From now on evaluators only when one is asked for; and one model server in reserve, but not before work is
        # under way.
        self._evaluators.spare = 0
        while not self._stop.wait(heartbeat([worker for worker, _ in self._workers], surface)):
            self._model_servers.spare, self._under_way = 1, True

    def _roam(self) -> None:
        """Have each worker's evaluator and model server on one core, and on another when that one is better."""
        meter = Meter()
        while not self._stop.wait(ROUND):
            busy = meter.read()
            for worker, _ in self._workers:
                core = choose(worker.core, busy, random.random())
                if core is not None and core != worker.core:
                    worker.move(core)
                    busy[core] = 1.0  # as far as the next worker is concerned

    def _leave(self) -> None:
        """Stop in good order: let evaluators report what they have played, and give the rest back without blame."""
        until = time.monotonic() + LAST_TASK
        workers = list(self._workers)
        for worker, _ in workers:
            worker.leave()
        for _, thread in workers:
            thread.join(max(0.0, until - time.monotonic()))
        try:
            held = [words for worker, _ in workers if (words := worker.left()) is not None]
            if held and self._credentials is not None:
                Surface(self._credentials, self._stop, patience=0.0, time_out=LAST_WORD).leave(held)
        finally:
            self.finish(STOPPED, "it was told to stop")

    def _worker(self, worker: Worker) -> None:
        try:
            worker.run()
            if not self._leaving:
                self.finish(DONE, "there is no more work")
        except Refusal as refusal:
            worker.refuse(refusal)
            self.finish(DONE, refusal.reason)

    def _deliver(self, credentials: Credentials) -> None:
        surface = Surface(credentials, self._stop)
        while not self._stop.wait(LOG_INTERVAL):
            deliver(self._outputs, surface)


def deliver(outputs: Outputs, surface: Surface) -> None:
    """Hand over what has been printed since last time."""
    for name, data in outputs.take():
        surface.log(name, data)


def heartbeat(workers: list[Worker], surface: Surface) -> float:
    """Keep every lease alive, learn what was stolen; return the seconds until the next time."""
    now = time.monotonic()
    said = [(worker, words) for worker in workers if (words := worker.heartbeat(now)) is not None]
    if said:
        for (worker, words), standing in zip(said, surface.heartbeat([words for _, words in said]), strict=True):
            worker.hear(words, standing)
    lives = [life for worker in workers if (life := worker.time_to_live) is not None]
    return min(lives, default=3.0) / 3


def main() -> None:
    """Run as the agent's child: one JSON object on the command line, the launch by the control socket."""
    # Nobody of the same user may read the token out of our memory.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    told = json.loads(sys.argv[1])
    control = socket.socket(fileno=told["control"])
    kit = Kit.of(told["kit"])
    runner = Runner(kit, told["workers"], Here(kit))
    runner.heed(control)
    code = runner.run()
    os._exit(code)  # threads may still wait for answers that nobody needs
