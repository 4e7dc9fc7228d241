"""Probe of an environment: a first episode, in the sandbox of an evaluator, by which a registration learns its fields.

What it reports comes from a process beside untrusted code, and is checked again by the registration.
"""

import json
import math
import os
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..simulators.base import SimulatorBroken
from ..simulators.openenv.json_mapping import ActionMapping, DoesNotFit, ObservationMapping, path_steps, value_at
from ..simulators.openenv.openenv_protocol import BadAnswer, Closed, HttpTransport, NoWebSocket, TooLate
from ..simulators.openenv.process_client import EnvironmentFault, EnvironmentProcesses
from ..simulators.openenv.schema_mapping import NotObvious, action_fields, observation_fields, shape_of
from ..simulators.openenv.simulator import connect, order_of
from .confined_start import confined, seal_at

#: Steps of the first episode.
STEPS = 2
#: Random actions, which show the lists whose lengths change; unbounded numbers are 0 to FEW in them.
EXPLORED, FEW = 40, 3.0
#: The most bytes of a report.
REPORT = 1 << 20


def main() -> None:
    """Confine this process, play, and write the report to the descriptor ``report``."""
    options = json.loads(sys.argv[1])
    level = confined(options.get("confinement"), starts_processes=True)
    processes = EnvironmentProcesses(level)
    seal_at(level)
    try:
        report = probed(Path(options["dataset"]), options["openenv"], processes)
    except (EnvironmentFault, BadAnswer, DoesNotFit, NotObvious, SimulatorBroken, ValueError) as error:
        report = {"error": str(error)[:1000]}
    with open(options["report"], "wb") as pipe:
        pipe.write(json.dumps(report).encode())
    os._exit(0)


def probed(dataset: Path, declared: Mapping[str, Any], processes: EnvironmentProcesses) -> dict[str, Any]:
    """Return the complete fields of observations and actions, the transport, and whether a seed decides an episode."""
    processes.start(order_of(dataset, declared))
    seconds = float(declared["timeout"])
    first, transport = _first_answer(processes, declared["transport"], seconds)
    schemas: Mapping[str, Any] = {}
    if not declared["observation"] or not declared["action"]:
        schemas = _schemas(processes, seconds)
    applied = [_kind(field) for field in declared["action"] or action_fields(schemas.get("action"))]
    observed, left_out = list(declared["observation"]), list[str]()
    if not observed:
        seen = _explored(processes, applied, transport, seconds)
        observed, left_out = observation_fields(schemas.get("observation"), seen)
    report = {
        "observation": [_complete(field, first["observation"]) for field in observed],
        "action": applied,
        "transport": transport,
        "left_out": left_out,
    }
    episodes = [_episode(processes, report, seconds) for _ in range(2)]
    return report | {"reproducible": episodes[0] == episodes[1]}


def _explored(
    processes: EnvironmentProcesses, applied: Sequence[Mapping[str, Any]], transport: str, seconds: float
) -> list[Mapping[str, Any]]:
    """Return the observations of episodes with random actions, some of which may be illegal."""
    mapping, generator = ActionMapping(applied), random.Random(0)
    connected, made = connect(processes, 0, transport, seconds)
    with connected:
        answer = made.reset({"seed": 0}, seconds)
        seen = [answer["observation"]]
        for _ in range(EXPLORED):
            numbers = [_random(field, generator) for field in applied for _ in range(_count(field))]
            try:
                ended = answer["done"]
                answer = made.reset({"seed": 0}, seconds) if ended else made.step(mapping.action(numbers), seconds)
            except (Closed, TooLate):
                break
            except BadAnswer:
                continue
            seen.append(answer["observation"])
    return seen


def _first_answer(processes: EnvironmentProcesses, transport: str, seconds: float) -> tuple[dict[str, Any], str]:
    """Return the answer to a first reset and the transport: HTTP if the server has no WebSocket."""
    try:
        return _reset(processes, transport or "websocket", seconds), transport or "websocket"
    except NoWebSocket:
        if transport:
            raise
    return _reset(processes, "http", seconds), "http"


def _reset(processes: EnvironmentProcesses, transport: str, seconds: float) -> dict[str, Any]:
    connected, made = connect(processes, 0, transport, seconds)
    with connected:
        try:
            return made.reset({"seed": 0}, seconds)
        except Closed:
            raise processes.fault(processes.explained_end()) from None


def _schemas(processes: EnvironmentProcesses, seconds: float) -> dict[str, Any]:
    connected, made = connect(processes, 0, "http", seconds)
    assert isinstance(made, HttpTransport)
    with connected:
        try:
            return made.request("GET", "/schema", None, seconds)
        except BadAnswer as error:
            raise NotObvious(
                f"its schema is not available ({error}); declare `openenv.observation` and `openenv.action`"
            ) from None


def _complete(field: Mapping[str, Any], observation: Mapping[str, Any]) -> dict[str, Any]:
    """Return a field with the shape that its value has, if it declares none."""
    if field.get("shape") is not None:
        return dict(field)
    shape = shape_of(value_at(observation, path_steps(field["path"])))
    return {**field, "shape": shape} if shape else dict(field)


def _kind(field: Mapping[str, Any]) -> dict[str, Any]:
    """Return a field of an action with the kind that follows from its other members, if it declares none."""
    kind = field.get("kind") or ("constant" if "value" in field else "choice" if field.get("values") else "number")
    return {**field, "kind": kind}


def _episode(processes: EnvironmentProcesses, report: Mapping[str, Any], seconds: float) -> list[Any]:
    """Play a few steps whose actions are in the middle of their ranges; return what was observed."""
    observed, applied = ObservationMapping(report["observation"]), ActionMapping(report["action"])
    numbers = [_middle(field) for field in report["action"] for _ in range(_count(field))]
    connected, transport = connect(processes, 0, report["transport"], seconds)
    with connected:
        try:
            answer = transport.reset({"seed": 0}, seconds)
            seen: list[Any] = [observed.array(answer["observation"]).tolist()]
            for _ in range(STEPS):
                if answer["done"]:
                    break
                answer = transport.step(applied.action(numbers), seconds)
                seen.append([observed.array(answer["observation"]).tolist(), answer["reward"], answer["done"]])
        except Closed:
            raise processes.fault(processes.explained_end()) from None
    return seen


def _random(field: Mapping[str, Any], generator: random.Random) -> float:
    """Return any number within a field's bounds; from 0 to FEW where there are none."""
    low, high = _bounds(field)
    low = low if math.isfinite(low) else min(0.0, high)
    return generator.uniform(low, high if math.isfinite(high) else low + FEW)


def _bounds(field: Mapping[str, Any]) -> tuple[float, float]:
    if field["kind"] in {"choice", "boolean"}:
        return 0.0, len(field["values"]) - 1.0 if field["kind"] == "choice" else 1.0
    low, high = field.get("low"), field.get("high")
    return -math.inf if low is None else low, math.inf if high is None else high


def _count(field: Mapping[str, Any]) -> int:
    return 0 if field["kind"] == "constant" else math.prod(field.get("shape") or ())


def _middle(field: Mapping[str, Any]) -> float:
    """Return the number nearest to zero within a field's bounds."""
    low, high = _bounds(field)
    return min(high, max(low, 0.0))
