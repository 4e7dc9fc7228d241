"""Stepping: scenarios of a dataset step by step, on the orders that come on standard input.

`{"progress": {"message"}}` tells what is prepared, then `{"world": {...}}` describes the world. Orders are
`{"reset": {"seed", "scenario", "repeat"}}`, whose members may be left out, and `{"step": [numbers]}`. Each is answered
by `{"observed": {...}}`, by `{"refused": text}` (nothing was changed), or by `{"failed": text}` (the scenario is lost;
the next reset starts another one). Numbers that JSON does not have are texts: "nan", "inf", "-inf".
"""

import argparse
import math
import sys
from typing import Any

import msgspec

from core.domain.submissions.selection import checked_params
from core.settings import Settings
from local_play import messages, worlds
from local_play.scenario_choice import Chosen, InvalidReset, ScenarioChoice
from local_play.served_world import ServedWorld
from local_play.session_process import ScenarioFailed, SessionEnded, SessionProcess, StepRefused
from runtimes.harness.dataset_definition import definition_of
from runtimes.harness.session.session_messages import Observed
from runtimes.harness.simulators.declared_interface import described_interface
from windtunnel.submissions import parameters


class Order(msgspec.Struct, forbid_unknown_fields=True):
    """An order of the client: exactly one of the two."""

    reset: dict[str, Any] | None = None
    step: list[float] | None = None


_decoder = msgspec.json.Decoder(Order)


def step_through(options: argparse.Namespace, settings: Settings) -> None:
    """Execute orders until standard input ends. Raise what makes that impossible."""
    dataset = worlds.find(options.dataset, options.server, settings)
    params = checked_params(dataset.declared.params, parameters(options.param), dataset.name)
    world = worlds.served(dataset, params, settings, lambda message: messages.send("progress", {"message": message}))
    interface = described_interface(definition_of(dataset.definition))
    messages.send(
        "world", {"dataset": world.name, "digest": world.digest, "scenarios": world.total, "interface": interface}
    )
    stepping = Stepping(world)
    try:
        for line in sys.stdin.buffer:
            kind, body = stepping.answer(line)
            messages.send(kind, body)
    finally:
        stepping.close()


class Stepping:
    """The scenarios of one client, and the process that plays them, which starts with the first reset."""

    def __init__(self, world: ServedWorld) -> None:
        self._world = world
        self._choice = ScenarioChoice(world.name, world.total)
        self._process: SessionProcess | None = None
        self._under_way = False
        self._chosen: Chosen | None = None

    def answer(self, line: bytes) -> tuple[str, Any]:
        """Execute an order; return the kind and the body of the answer."""
        try:
            order = _decoder.decode(line)
            if order.step is not None:
                return "observed", self._step(order.step)
            return "observed", self._reset(order.reset or {})
        except (msgspec.MsgspecError, InvalidReset, StepRefused) as error:
            return "refused", str(error)
        except ScenarioFailed as error:
            self._under_way = False
            return "failed", f"The simulator has failed, which ends the scenario: {error}. Reset goes on."
        except SessionEnded as error:
            self.close()
            return "failed", f"The process of the simulator has ended: {error}. Reset starts another one."

    def _reset(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if unknown := sorted(arguments.keys() - {"seed", "scenario", "repeat"}):
            raise InvalidReset(f"A reset has no option {unknown[0]!r:.80}; it takes seed, scenario and repeat.")
        chosen = self._choice.choose(**arguments)
        if self._process is None:
            self._process = SessionProcess(self._world)
        self._under_way = False
        observed = self._process.reset(chosen)
        self._under_way, self._chosen = True, chosen
        return self._described(observed, first=True)

    def _step(self, values: list[float]) -> dict[str, Any]:
        if self._process is None or not self._under_way:
            raise StepRefused("No scenario is under way: reset first.")
        expected = len(self._world.interface.action.names)
        if len(values) != expected:
            raise StepRefused(f"The action has {expected} numbers; {len(values)} came. The scenario goes on.")
        observed = self._process.step(values)
        self._under_way = observed.metrics is None
        return self._described(observed)

    def _described(self, observed: Observed, *, first: bool = False) -> dict[str, Any]:
        """Return an observation; of a first and a last one with what scenario it is of."""
        values = [value if math.isfinite(value) else str(value) for value in observed.values]
        body: dict[str, Any] = {"values": values, "reward": observed.reward, "over": observed.metrics is not None}
        if first or observed.metrics is not None:
            assert self._chosen is not None
            chosen = self._chosen
            body |= {"scenario": chosen.scenario, "repeat": chosen.repeat, "seed": chosen.seed}
            body |= {"name": self._world.name_of(chosen.scenario), "scenario_seed": observed.seed}
        if observed.metrics is not None:
            body |= {"metrics": observed.metrics, "truncated": self._world.cut_off(observed.metrics)}
        return body

    def close(self) -> None:
        """End the process, if there is one."""
        self._under_way = False
        if self._process is not None:
            self._process.close()
            self._process = None
