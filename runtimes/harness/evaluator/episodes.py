"""Episodes: the loop between a world and a model, judged from the world's side."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model_server.model_faults import ModelFault, WrongAnswer
from ..model_server.model_protocol import ModelServerClient, finite
from ..simulators.base import Interface, Scenario, World, WorldBroken
from .result_batch import Played, unworldly


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """What holds for every episode."""

    latency_steps: int = 0
    one_step: bool = False
    keep_actions: bool = True


class Delay:
    """Actions take effect so many steps after they were decided; zeros before."""

    def __init__(self, steps: int, like: NDArray[Any]) -> None:
        self._waiting = [np.zeros_like(like) for _ in range(steps)]

    def __call__(self, action: NDArray[Any]) -> NDArray[Any]:
        self._waiting.append(action)
        return self._waiting.pop(0)


def play(
    world: World,
    model_server: ModelServerClient,
    scenario: Scenario,
    seed: int,
    rules: Rules,
    following: int | None = None,
) -> tuple[Played, ModelFault | None]:
    """Play one scenario to its end, or to the model's; return the fault if it was that.

    ``seed`` is the model server's, and ``following`` that of the scenario which is likely to come next.
    """
    began = time.perf_counter()
    latencies: list[float] = []
    actions: list[bytes] = []
    fault: ModelFault | None = None
    try:
        fault = begun(model_server, seed)  # the model server begins while the world does
        observation = world.reset(scenario)
        if fault is not None:
            raise fault
        model_server.ready(seed)
        drive(world, model_server, observation, rules, latencies, actions)
        model_server.end(following)
        played = Played("ok", world.outcome(None))
    except ModelFault as error:
        fault = error
        played = broken_off(world, error)
    except WorldBroken:
        raise
    except Exception as error:
        played = Played("failed", {}, blame(error))
    if fault is None or not fault.fatal:
        model_server.end(following)
    played.seconds, played.latencies, played.actions = time.perf_counter() - began, latencies, actions
    return played, fault


def drive(
    world: World,
    model_server: ModelServerClient,
    observation: NDArray[Any],
    rules: Rules,
    latencies: list[float],
    actions: list[bytes],
) -> None:
    """Ask and step until the scenario is over; latencies and actions are kept however it ends."""
    act, step, keep = model_server.act, world.step, rules.keep_actions
    delay = Delay(rules.latency_steps, np.zeros(world.interface.action.shape)) if rules.latency_steps else None
    over = False
    while not over:
        answer, took = act(observation)
        latencies.append(took)
        action = answer[0].copy()
        if not finite(action):
            raise not_finite(action)
        if delay is not None:
            action = delay(action)
        if keep:
            actions.append(action.astype(np.float32, copy=False).tobytes())
        observation, over = step(action)
        over = over or rules.one_step


def play_together(
    worlds: Sequence[World],
    model_server: ModelServerClient,
    scenarios: Sequence[Scenario | None],
    seed: int,
    rules: Rules,
    following: int | None = None,
) -> tuple[list[Played | None], ModelFault | None]:
    """Play a group in lock-step, one frame a step for all of them; the rows of absent or ended ones are zeros.

    They share one `reset`. A fault that is not one row's is everybody's.
    """
    began = time.perf_counter()
    space = worlds[0].interface.observation
    observations = np.zeros((len(worlds), *space.shape), space.dtype)
    found: list[Played | None] = [None] * len(worlds)
    latencies: list[float] = []
    running = []
    fault = begun(model_server, seed)
    for row, scenario in enumerate(scenarios):
        if scenario is None:
            continue
        try:
            observations[row] = worlds[row].reset(scenario)
            running.append(row)
        except WorldBroken:
            raise
        except Exception as error:
            found[row] = Played("failed", {}, blame(error))
    while running:
        try:
            if fault is not None:
                raise fault
            if not latencies:
                model_server.ready(seed)
            answers, took = model_server.act(observations)
        except ModelFault as error:
            fault = error
            for row in running:
                found[row] = broken_off(worlds[row], error)
            break
        latencies.append(took)
        whole = finite(answers)
        going = []
        for row in running:
            answer = answers[row].copy()
            if not whole and not finite(answer):
                found[row] = broken_off(worlds[row], not_finite(answer))
            else:
                try:
                    observations[row], over = worlds[row].step(answer)
                    if over or rules.one_step:
                        found[row] = Played("ok", worlds[row].outcome(None))
                    else:
                        going.append(row)
                except WorldBroken:
                    raise
                except Exception as error:
                    found[row] = Played("failed", {}, blame(error))
            if found[row] is not None:
                observations[row] = 0
        running = going
    if fault is None or not fault.fatal:
        model_server.end(following)
    took = (time.perf_counter() - began) / max(1, sum(one is not None for one in found))
    for played in found:
        if played is not None:
            played.seconds, played.latencies = took, latencies
    return found, fault


def replay(world: World, scenario: Scenario, trace: bytes, dt: float) -> dict[str, Any]:
    """Play a scenario again from its actions and return what there was to see."""
    actions = steps(trace, world.interface)
    world.reset(scenario)
    scene = world.scene()
    frames = [world.frame()]
    for action in actions:
        _, over = world.step(action)
        frames.append(world.frame())
        if over:
            break
    return {"scene": scene, "frames": frames, "dt": dt}


def steps(trace: bytes, interface: Interface) -> NDArray[Any]:
    """Read a trace as the actions it holds."""
    flat = np.frombuffer(trace, np.float32)
    return flat.reshape(-1, *interface.action.shape).astype(interface.action.dtype)


def broken_off(world: World, fault: ModelFault) -> Played:
    """Judge a scenario that the model broke off; where even that cannot be done, the fault still counts."""
    try:
        metrics = world.outcome(fault.status)
    except WorldBroken:
        raise
    except Exception as error:
        return Played(fault.status, {}, f"{unworldly(str(fault))}; {blame(error)}")
    return Played(fault.status, metrics, unworldly(str(fault)))


def not_finite(action: NDArray[Any]) -> WrongAnswer:
    """Say what a model answered instead of numbers."""
    return WrongAnswer(f"the action is not finite: {action.reshape(-1)[:8].tolist()}")


def blame(error: Exception) -> str:
    """Say that it was the simulator, and what it said."""
    return unworldly(f"simulator: {type(error).__name__}: {error}"[:500])


def begun(model_server: ModelServerClient, seed: int) -> ModelFault | None:
    """Have the model server begin; the fault if it cannot, which counts once the world has begun, too."""
    try:
        model_server.begin(seed)
    except ModelFault as error:
        return error
    return None
