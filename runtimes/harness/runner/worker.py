"""One evaluator at work for a launch: staffed, lent a range, played, reported, replaced when it dies."""

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .captured_output import Outputs
from .framed_socket import Batch, Broken, Closed, Idle, Loaded, Message, NeedModelServer, Ready, Refused
from .processes import EvaluatorProcess, ModelServerProcess
from .runner_api_client import Answer, Lease, Standing, Surface, Unreadable

#: Seconds an evaluator may take to be set up, and a model server to load its model.
SETUP = 180.0
#: Model servers that may die one after the other before one has loaded the model, and evaluators before one has been
#: set up.
ATTEMPTS = 3
#: Seconds to wait for a model server's end before it is held against the model, in a result that says so with these
#: bytes.
INQUEST, CRASHED = 0.5, b'"status":"crashed"'
#: Seconds to wait for a model server's own end, so as to tell how it came, before it is ended.
GRACE = 0.1


class Hopeless(Exception):
    """No evaluator can be brought to work here."""


class Refusal(Exception):
    """The model does not load, or does not fit."""

    def __init__(self, reason: str, status: str) -> None:
        super().__init__(reason)
        self.reason, self.status = reason, status


class Staff(Protocol):
    """Where evaluators and model servers come from."""

    def evaluator(self) -> EvaluatorProcess:
        """Return an evaluator that nobody has, as soon as there is one."""

    def model_server(self) -> ModelServerProcess:
        """Return a model server that has seen no model, as soon as there is one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Engagement:
    """What every worker of a launch shares. ``patience``: seconds an evaluator may spend on one task.

    ``cores``: one for each worker, or none where they are not to be pinned.
    """

    setup: Mapping[str, Any]
    model: str | None
    outputs: Outputs
    began: float
    patience: float
    cores: Sequence[int] = ()
    name: str = ""  # what tells this runner's workers from those of the launch's other runners


@dataclass(slots=True, eq=False)
class Held:
    """A lease at work: where its results have come to, and where it ends now."""

    lease: Lease
    cursor: int
    stop: int
    lost: bool = False


class Worker:
    """An evaluator, its model server, and the lease they work on."""

    def __init__(self, number: int, staff: Staff, surface: Surface, engagement: Engagement) -> None:
        self.name = f"{engagement.name}{number}"
        self._core = engagement.cores[number] if number < len(engagement.cores) else None
        self._staff = staff
        self._surface = surface
        self._engagement = engagement
        self._lock = threading.Lock()  # guards the evaluator and what is held against the heartbeating thread
        self._evaluator: EvaluatorProcess | None = None
        self._held: Held | None = None
        self._at: tuple[int, float] = (-1, 0.0)  # the task seen last, and since when
        self._model_server: ModelServerProcess | None = None
        self._rate: float | None = None
        self._unloaded = 0  # model servers in a row that did not get to load the model
        self._loaded = False
        self._leaving = False

    # -- the worker's own thread

    def run(self) -> None:
        """Play until there is no more work, or until told to leave. Raises Over, Refusal or Hopeless."""
        deaths = 0
        while True:
            try:
                self._take_worker()
                deaths = 0
                self._work()
                return
            except (Closed, TimeoutError, Unreadable) as error:
                deaths += 1
                how = self._mourn(error)
                if deaths >= ATTEMPTS:
                    raise Hopeless(f"the simulator's process cannot be set up: {how}") from None

    def _take_worker(self) -> None:
        """Get an evaluator that is set up and has a model server with the model loaded."""
        evaluator = self._staff.evaluator()
        with self._lock:
            self._evaluator = evaluator
        if self._core is not None:
            evaluator.process.pin(self._core)
        evaluator.channel.send({"type": "setup", "play": self._engagement.setup})
        self._expect(evaluator, Ready)
        self._bring_model_server(evaluator)
        self._expect(evaluator, Loaded)

    def _expect(self, evaluator: EvaluatorProcess, kind: type[Message]) -> None:
        until = time.monotonic() + SETUP
        while True:
            message = evaluator.channel.receive(until - time.monotonic())
            if isinstance(message, kind):
                self._heed(evaluator, message)
                return
            if isinstance(message, Batch | Idle):
                raise Closed("it spoke out of turn")
            self._heed(evaluator, message)

    def _heed(self, evaluator: EvaluatorProcess, message: Message) -> None:
        """Act on what is not a result."""
        match message:
            case NeedModelServer():
                self._unloaded += 1
                last = self._dismiss_model_server()
                if self._unloaded > ATTEMPTS:
                    raise Refusal(f"The model's process ends before it has loaded the model: {last}.", "crashed")
                self._bring_model_server(evaluator, last)
            case Loaded():
                self._unloaded, self._loaded = 0, True
            case Refused():
                self._unloaded += 1
                # A model server may have died of something else, and a model that loaded once will load again.
                if self._unloaded >= ATTEMPTS or not (self._loaded or message.status == "crashed"):
                    raise Refusal(message.reason, message.status)
                self._bring_model_server(evaluator, self._dismiss_model_server())
            case Broken():
                raise Hopeless(message.reason)
            case Ready():
                pass
            case _:
                raise Closed("it spoke out of turn")

    def _bring_model_server(self, evaluator: EvaluatorProcess, last: str | None = None) -> None:
        """Hand the evaluator a new model server's socket and the model; ``last`` tells how the one before ended."""
        self._model_server = model_server = self._staff.model_server()
        if self._core is not None:
            model_server.process.pin(self._core)
        descriptors = [model_server.socket.fileno()]
        model = self._engagement.model
        if model is not None:
            descriptors.append(os.open(model, os.O_RDONLY | os.O_CLOEXEC))  # each its own offset
        try:
            evaluator.channel.send({"type": "model_server"} | ({"last": last} if last else {}), descriptors)
        finally:
            model_server.socket.close()  # only the evaluator speaks with it
            if model is not None:
                os.close(descriptors[1])

    def _dismiss_model_server(self) -> str:
        """End the model server; return how it ended if it did so by itself."""
        model_server, self._model_server = self._model_server, None
        if model_server is None:
            return "it was not there"
        by_itself = model_server.process.wait(GRACE)
        model_server.dismiss()
        if by_itself is not None:
            self._engagement.outputs.add(
                model_server.process.name, f"[the model's process ended: {by_itself}]\n".encode()
            )
        return by_itself or "it did not answer and was ended"

    def _work(self) -> None:
        """Lease, play, report, until there is nothing left."""
        following: Answer | None = None
        while not self._leaving:
            answer = following or self._surface.lease(self.name, self._rate)
            if answer.ended:
                return
            following = None
            if answer.lease is not None:
                following = self._play(answer.lease)
            elif answer.retry_after is not None:
                time.sleep(answer.retry_after)  # short, and there is nothing to be woken for

    def _play(self, lease: Lease) -> Answer | None:
        """Play a lease to its end, or until it is lost; return what was offered to go on with."""
        evaluator = self._seated()
        held = Held(lease, lease.cursor, lease.stop)
        with self._lock:
            self._held = held
        following: Answer | None = None
        while held.cursor < held.stop and not held.lost:
            before = (held.cursor, held.stop)
            with self._lock:
                if self._leaving:
                    return None
                evaluator.page.stop = held.stop
            flush = flush_after(time.monotonic() - self._engagement.began)
            order = {"start": held.cursor, "stop": held.stop, "flush": flush, "careful_until": lease.careful}
            evaluator.channel.send({"type": "play"} | order)
            since = time.monotonic()
            while not isinstance(message := evaluator.channel.receive(), Idle):
                if isinstance(message, Batch):
                    self._rate = blend(self._rate, (message.to - message.since) / max(1e-6, time.monotonic() - since))
                    following = self._report(evaluator, held, message) or following
                    since = time.monotonic()
                else:
                    self._heed(evaluator, message)
            if (held.cursor, held.stop) == before and not held.lost and not self._leaving:
                raise Closed("it gave no result")
        with self._lock:
            self._held = None
        return following

    def _report(self, evaluator: EvaluatorProcess, held: Held, batch: Batch) -> Answer | None:
        """Hand results in and go where we are told; return the offer of further work, if there is one."""
        if held.lost or batch.since != held.cursor:
            return None  # played before we knew better
        if batch.to <= batch.since:
            raise Closed("it reported nothing")
        if batch.failed and CRASHED in bytes(batch.lines):
            self._inquire()
        if batch.to >= held.stop:
            self.tell()  # what was printed must not come after the end
        lease = held.lease
        head = {"worker": self.name, "stage": lease.stage, "start": lease.start, "fencing_token": lease.fencing_token}
        head["next"] = not self._leaving
        head |= {"from": batch.since, "to": batch.to, "lines": len(batch.lines), "rate": self._rate}
        head |= {"artifacts": batch.artifacts, "sketch": batch.sketch}
        taken, answer = self._surface.report(head, batch.lines, batch.blobs)
        with self._lock:
            if answer.lost or answer.cursor is None or answer.stop is None:
                held.lost = True
                evaluator.page.stop = 0
                return None
            held.cursor, held.stop = answer.cursor, answer.stop
            # A report that was answered twice finds its own cursor; anything else means to begin again elsewhere.
            astray = not taken and held.cursor != batch.to
            evaluator.page.stop = 0 if astray else min(evaluator.page.stop, held.stop)
        offered = answer.lease is not None or answer.retry_after is not None or answer.ended
        return answer if offered else None

    def _inquire(self) -> None:
        """Wait for how the model server ended: if all processes ended with it, the runner stops and reports nothing."""
        if self._model_server is not None:
            self._model_server.process.wait(INQUEST)

    def tell(self) -> None:
        """Hand over what has been printed so far."""
        for name, data in self._engagement.outputs.take():
            self._surface.log(name, data)

    def refuse(self, refusal: Refusal) -> None:
        """Say that the model is of no use here."""
        self.tell()
        self._surface.refused(refusal.reason, refusal.status)

    def _seated(self) -> EvaluatorProcess:
        if self._evaluator is None:
            raise Closed("nobody is there")
        return self._evaluator

    def _mourn(self, error: Exception) -> str:
        """Bear witness that the evaluator died, let the lease go back, and clear the worker."""
        with self._lock:
            evaluator, self._evaluator = self._evaluator, None
            held, self._held = self._held, None
        how = str(error)
        task = -1
        if evaluator is not None:
            how = evaluator.process.wait(1.0) or f"it was ended: {error}"
            task = evaluator.page.task
            evaluator.dismiss()
        self._engagement.outputs.add(f"evaluator-{self.name}", f"[the simulator's process ended: {how}]\n".encode())
        if self._model_server is not None:
            self._model_server.dismiss()
            self._model_server = None
        self.tell()
        if held is not None and not held.lost:
            lease = held.lease
            said = {
                "worker": self.name,
                "stage": lease.stage,
                "start": lease.start,
                "fencing_token": lease.fencing_token,
            }
            self._surface.death(said | {"task": task, "witness": True, "reason": how})
        return how

    # -- when the runner is to stop

    def leave(self) -> None:
        """Have the evaluator stop after the task it is at, and report what it has played; ``run`` returns then."""
        with self._lock:
            self._leaving = True
            if self._evaluator is not None:
                self._evaluator.page.stop = 0

    def left(self) -> dict[str, Any] | None:
        """Return what to give back, if there is anything."""
        with self._lock:
            held = self._held
            if held is None or held.lost or held.cursor >= held.stop:
                return None
            return {"stage": held.lease.stage, "start": held.lease.start, "fencing_token": held.lease.fencing_token}

    # -- the thread that looks at cores

    @property
    def core(self) -> int | None:
        """The core that its evaluator and model server are kept on; None: wherever the kernel puts them."""
        return self._core

    def move(self, core: int) -> None:
        """Keep evaluator and model server on this core from now on, and those that come after them."""
        self._core = core
        with self._lock:
            evaluator, model_server = self._evaluator, self._model_server
        for one in (evaluator, model_server):
            if one is not None:
                one.process.pin(core)

    # -- the heartbeating thread

    def heartbeat(self, now: float) -> dict[str, Any] | None:
        """Return what to say of the lease held, or None; end an evaluator that has been at one task for too long."""
        with self._lock:
            if self._held is None or self._evaluator is None or self._held.lost:
                return None
            task = self._evaluator.page.task
            if self._at[0] != task:
                self._at = (task, now)
            elif now - self._at[1] > self._engagement.patience:
                self._evaluator.process.kill()
                self._at = (task, now)
            lease = self._held.lease
            return {"stage": lease.stage, "start": lease.start, "fencing_token": lease.fencing_token, "task": task}

    def hear(self, said: Mapping[str, Any], standing: Standing) -> None:
        """Take notice of how the lease stands that ``heartbeat`` spoke of."""
        with self._lock:
            held, evaluator = self._held, self._evaluator
            if (
                held is None
                or evaluator is None
                or held.lease.fencing_token != said["fencing_token"]
                or held.lease.start != said["start"]
            ):
                return
            if standing.lost:
                held.lost = True
                evaluator.page.stop = 0
            else:
                held.stop = min(held.stop, standing.stop)
                evaluator.page.stop = min(evaluator.page.stop, held.stop)

    @property
    def time_to_live(self) -> float | None:
        """Seconds the lease held lives without a heartbeat."""
        with self._lock:
            return self._held.lease.ttl if self._held is not None else None


def flush_after(elapsed: float) -> float:
    """Return how many seconds of results make a batch: fresh news at first, fewer objects in a long run."""
    return 1.0 if elapsed < 60 else 2.0 if elapsed < 600 else 5.0


def blend(rate: float | None, seen: float) -> float:
    """Return the tasks a second to go by, after one more batch."""
    return seen if rate is None else (rate + seen) / 2
