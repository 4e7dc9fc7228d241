"""The evaluator: owns the simulator, the clock and the score; sandboxed, with no token, no network and one runner."""

import importlib
import json
import mmap
import os
import re
import socket
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from ..model_server import model_protocol
from ..model_server.model_faults import ModelFault
from ..simulators.base import Scenario, World, WorldBroken
from . import episodes
from .episodes import Rules, blame, play, play_together
from .result_batch import ResultBatch, unworldly
from .tasks import Located, Plan

#: The code with which an evaluator ends whose simulator cannot be trusted any more.
BROKEN = 70
#: Seconds after which a first result is worth a batch of its own, and after which the second batch goes.
SLOW, SOON = 0.02, 0.1
LARGEST = 256 << 20
#: Room for batches that the runner has not taken yet, so that playing goes on.
BUFFER = 4 << 20


class Play(msgspec.Struct):
    """All that is to be known of a simulation to play it."""

    definition: dict[str, Any]
    tasks: dict[str, Any]
    deadline: float
    params: dict[str, Any] = {}
    record: str = "none"
    dry_run: bool = False
    isolation: str = "launch"
    batch: int = 1
    format: str = ""


class Setup(msgspec.Struct, tag="setup"):
    """What is to be played."""

    play: Play


class NewModelServer(msgspec.Struct, tag="model_server"):
    """A model server's socket and the model's bytes, as descriptors; how the last one ended, if that is known."""

    last: str | None = None


class Range(msgspec.Struct, tag="play"):
    """Tasks [start, stop), results every ``flush`` seconds; one by one as far as ``careful_until``."""

    start: int
    stop: int
    flush: float = 1.0
    careful_until: int = -1


class Again(msgspec.Struct, tag="replay"):
    """A task to be played again from its trace."""

    task: int
    trace: bytes


Order = Setup | NewModelServer | Range | Again


class Gone(Exception):
    """The runner is gone."""


class Link:
    """The way to the runner: length-prefixed msgpack, descriptors riding on a message's first byte."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        self._decoder = msgspec.msgpack.Decoder(Order)
        self._encoder = msgspec.msgpack.Encoder()
        self.rights: list[int] = []

    def next(self) -> Order:
        """Wait for an order; descriptors that came with it are in ``rights``."""
        try:
            head, self.rights, _, _ = socket.recv_fds(self._socket, model_protocol.LENGTH.size, 2)
            if not head:
                raise Gone
            (length,) = model_protocol.LENGTH.unpack(head + self._exactly(model_protocol.LENGTH.size - len(head)))
            if length > LARGEST:
                raise Gone
            return self._decoder.decode(self._exactly(length))  # type: ignore[no-any-return]
        except OSError:
            raise Gone from None

    def _exactly(self, length: int) -> bytearray:
        data = bytearray(length)
        view = memoryview(data)
        while view:
            got = self._socket.recv_into(view)
            if not got:
                raise Gone
            view = view[got:]
        return data

    def say(self, kind: str, **fields: Any) -> None:
        """Tell the runner something."""
        self.send({"type": kind, **fields})

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a whole message."""
        payload = self._encoder.encode(message)
        try:
            self._socket.sendall(model_protocol.LENGTH.pack(len(payload)) + payload)
        except OSError:
            raise Gone from None


def main() -> None:
    """Confine this process, import the simulator, seal, and play what the runner says until it is gone."""
    told = json.loads(sys.argv[1])
    sealed = _confine(told.get("confinement"))
    dataset = Path(told["dataset"])
    definition = told["world"] or json.loads((dataset / "dataset.json").read_bytes())
    kind = definition["simulator"]
    if not re.fullmatch(r"[a-z][a-z0-9_]*", kind):
        raise SystemExit(f"no such simulator: {kind!r}")
    module = importlib.import_module(f"..simulators.{kind}", __package__)
    if hasattr(module, "preload"):
        module.preload(definition)
    if sealed:
        from ..sandbox import seal

        seal()
    page = memoryview(mmap.mmap(told["page"], 16)).cast("q")
    evaluator = Evaluator(Link(socket.socket(fileno=told["socket"])), page, dataset, module.World)
    try:
        evaluator.serve()
    except Gone:
        os._exit(0)  # a simulator's own clearing up could hang or crash, and would save nothing
    except WorldBroken as error:
        print(f"the simulator cannot be trusted any more: {error}", file=sys.stderr, flush=True)
        os._exit(BROKEN)


def _confine(told: dict[str, Any] | None) -> bool:
    if told is None:
        return False
    from ..sandbox import Confinement, confine

    fields = dict(told)
    fields["readonly"] = tuple(fields.get("readonly", ()))
    fields["keep"] = tuple(fields.get("keep", ()))
    return confine(Confinement(**fields)).level > 1


class Evaluator:
    """Plays ranges of tasks and says how they went."""

    def __init__(
        self, link: Link, page: memoryview, dataset: Path, make: Callable[[Path, Mapping[str, Any]], World]
    ) -> None:
        self._link = link
        self._page = page
        self._dataset = dataset
        self._make = make
        self._play: Play
        self._plan: Plan
        self._rules = Rules()
        self._lines: ResultBatch
        self._worlds: list[World] = []
        self._specs: list[dict[str, Any]] = []
        self._extras: list[dict[str, Any]] = []
        self._model_server: model_protocol.ModelServerClient | None = None
        self._foreseen = (-1, 0)
        self._flushed_at = 0.0
        self._pace = 0.0

    def serve(self) -> None:
        """Do what the runner says, one thing after another."""
        while True:
            order = self._link.next()
            if isinstance(order, Setup):
                self._set_up(order.play)
            elif isinstance(order, NewModelServer):
                self._take_model_server()
            elif isinstance(order, Range):
                self._play_range(order)
            else:
                self._replay(order)

    # -- set-up

    def _set_up(self, play: Play) -> None:
        definition = play.definition
        try:
            for world in self._worlds:
                world.close()
            self._worlds = [self._make(self._dataset, definition) for _ in range(max(1, play.batch))]
            self._specs = self._read_specs(definition)
            self._plan = Plan(play.tasks)
        except WorldBroken:
            raise
        except Exception as error:
            self._link.say("broken", reason=blame(error))
            return
        self._play = play
        shown = ("name", *definition.get("group_by", ()))
        self._extras = [{key: spec[key] for key in shown if key in spec} for spec in self._specs]
        self._lines = ResultBatch(definition, play.record, definition.get("dt"))
        self._rules = Rules(
            latency_steps=int(play.params.get("latency_steps", 0)),
            one_step=play.dry_run,
            keep_actions=bool(definition.get("record")) and play.record != "none",
        )
        self._pace = 0.0
        self._foreseen = (-1, 0)
        self._link.say("ready")

    def _read_specs(self, definition: Mapping[str, Any]) -> list[dict[str, Any]]:
        name = definition.get("scenarios")
        if not name:
            return []
        with open(self._dataset / name, "rb") as file:
            return [json.loads(line) for line in file if line.strip()]

    def _take_model_server(self) -> None:
        """Greet the model server that came, and give it the model."""
        end, model = self._link.rights  # the runner brings both
        if self._model_server is not None:
            self._model_server.close()
            self._model_server = None
        play = self._play
        model_server = model_protocol.ModelServerClient(
            socket.socket(fileno=end),
            self._worlds[0].interface,
            batch=len(self._worlds),
            deadline=play.deadline,
            tell_done=play.isolation == "scenario",
        )
        try:
            greeting = model_server.hello()
            info = model_server.load(play.format, play.params, model)
        except ModelFault as fault:
            model_server.close()
            self._link.say("refused", status=fault.status, reason=unworldly(str(fault)))
            return
        finally:
            os.close(model)
        self._model_server = model_server
        self._link.say("loaded", info={**greeting, **info})

    # -- play

    def _play_range(self, order: Range) -> None:
        self._lines.begin(order.start)
        self._flushed_at = time.perf_counter()
        task = order.start
        size = len(self._worlds)
        while task < (stop := min(order.stop, self._page[1])):
            self._page[0] = task
            if self._model_server is None:
                self._ask_for_model_server("there is none")
            if size == 1:
                fault = self._play_one(task, stop)
                task += 1
            else:
                end = min(task - task % size + size, stop)
                fault = self._play_group(task, end)
                task = end
            self._flush_if_due(order)
            if fault is not None and fault.fatal:
                self._drop_model_server(fault)
        self._flush()
        self._link.say("idle")

    def _scenario(self, located: Located) -> Scenario:
        spec = self._specs[located.index] if self._specs else {}
        return Scenario(index=located.index, seed=located.seed, repeat=located.repeat, spec=spec, params=located.params)

    def _model_server_seed(self, task: int) -> int:
        """Return a task's seed, which was asked for before if the task was foreseen."""
        if self._foreseen[0] != task:
            self._foreseen = (task, self._plan.model_server_seed(task))
        return self._foreseen[1]

    def _following(self, task: int, stop: int) -> int | None:
        return self._model_server_seed(task) if task < stop else None

    def _play_one(self, task: int, stop: int) -> ModelFault | None:
        assert self._model_server is not None
        located = self._plan.locate(task)
        seed = self._model_server_seed(task)
        if "latency_steps" in located.swept:
            self._rules = replace(self._rules, latency_steps=int(located.params["latency_steps"]))
        try:
            played, fault = play(
                self._worlds[0],
                self._model_server,
                self._scenario(located),
                seed,
                self._rules,
                self._following(task + 1, stop),
            )
        except WorldBroken:
            self._flush()  # what was played before counts
            raise
        self._lines.add(located, self._extras[located.index] if self._extras else {}, played)
        return fault

    def _play_group(self, start: int, stop: int) -> ModelFault | None:
        """Play the part [start, stop) of a group; what a model sees depends on task numbers alone."""
        assert self._model_server is not None
        size = len(self._worlds)
        first = start - start % size
        located = [self._plan.locate(task) if start <= task < stop else None for task in range(first, first + size)]
        scenarios = [None if one is None else self._scenario(one) for one in located]
        try:
            seed, following = self._model_server_seed(first), self._following(first + size, stop)
            played, fault = play_together(self._worlds, self._model_server, scenarios, seed, self._rules, following)
        except WorldBroken:
            self._flush()
            raise
        for where, result in zip(located, played, strict=True):
            if where is not None and result is not None:
                self._lines.add(where, self._extras[where.index] if self._extras else {}, result)
        return fault

    def _drop_model_server(self, fault: ModelFault) -> None:
        assert self._model_server is not None
        self._model_server.close()
        self._model_server = None
        self._flush()
        self._ask_for_model_server(fault.status)

    def _ask_for_model_server(self, reason: str) -> None:
        """Wait for a model server with the model; a refusal after an acceptance ends the launch, not this process."""
        self._link.say("need_model_server", reason=reason)
        while self._model_server is None:
            order = self._link.next()
            if isinstance(order, NewModelServer):
                self._take_model_server()
            else:
                raise Gone

    # -- report

    def _flush_if_due(self, order: Range) -> None:
        now = time.perf_counter()
        waited = now - self._flushed_at
        careful = self._lines.to - 1 <= order.careful_until
        if waited >= min(self._pace, order.flush) and (self._pace or waited >= SLOW):
            self._pace = SOON if not self._pace else order.flush
            self._flush()
        elif careful or self._lines.full:
            self._flush()

    def _flush(self) -> None:
        if len(self._lines):
            self._link.send(self._lines.take())
        self._flushed_at = time.perf_counter()

    # -- replays

    def _replay(self, order: Again) -> None:
        try:
            trace = _inflated(order.trace)
            dt = float(self._play.definition.get("dt") or 0.1)
            seen = episodes.replay(self._worlds[0], self._scenario(self._plan.locate(order.task)), trace, dt)
        except WorldBroken:
            raise
        except Exception as error:
            self._link.say("replay", replay=None, error=blame(error))
            return
        self._link.say("replay", replay=seen)


def _inflated(trace: bytes) -> bytes:
    inflating = zlib.decompressobj()
    data = inflating.decompress(trace, LARGEST)
    if not inflating.eof:
        raise ValueError("the trace is cut off or too large")
    return data
