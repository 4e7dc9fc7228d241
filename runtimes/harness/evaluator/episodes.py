"""Episodes: the observe-act loop between a simulator and a model server, and the outcome of each scenario."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model_server.model_faults import ModelFault, WrongAnswer
from ..model_server.model_server_client import ModelServerClient, finite, finite_check
from ..simulators.base import Interface, Scenario, Simulator, SimulatorBroken
from ..simulators.direct_exchange import Pause
from .result_batch import LoadedModel, Played, unworldly
from .trusted_model import TrustedModel

#: What is asked for actions.
Acting = ModelServerClient | TrustedModel

#: Steps and seconds after which a dry run ends: enough to see how fast the model answers after its first call.
DRY_STEPS, DRY_SECONDS = 20, 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class EpisodeOptions:
    """Options of every episode. ``keep_actions``: record the actions for replays.

    ``describe_model``: of a dry run, which ends after a few steps; called then, while the model's process still runs.
    """

    latency_steps: int = 0
    keep_actions: bool = True
    describe_model: Callable[[], LoadedModel] | None = None

    def cut_off(self, steps: int, since: float) -> bool:
        """Whether an episode ends after so many steps although it is not over. ``since``: its start (perf_counter)."""
        if self.describe_model is None:
            return False
        return steps >= DRY_STEPS or time.perf_counter() - since > DRY_SECONDS


class ActionDelay:
    """Delays actions by a number of steps; the first ones are zeros."""

    def __init__(self, steps: int, like: NDArray[Any]) -> None:
        self._pending = [np.zeros_like(like) for _ in range(steps)]

    def __call__(self, action: NDArray[Any]) -> NDArray[Any]:
        self._pending.append(action)
        return self._pending.pop(0)


def run(
    simulator: Simulator,
    model_server: Acting,
    scenario: Scenario,
    seed: int,
    options: EpisodeOptions,
    *,
    next_seed: int | None = None,
) -> tuple[Played, ModelFault | None]:
    """Run a scenario to its end or to the model's fault; return the result, and the fault if there was one.

    ``seed`` and ``next_seed`` are the model server's seeds for this scenario and for the one that probably follows.
    """
    started = time.perf_counter()
    latencies: list[float] = []
    actions: list[bytes] = []
    fault: ModelFault | None = None
    try:
        fault = begin_fault(model_server, seed)  # the model server resets while the simulator does
        observation = simulator.reset(scenario)
        if fault is not None:
            raise fault
        model_server.ready(seed)
        if may_drive_directly(simulator, options):
            drive_directly(simulator, model_server, observation, options, latencies, actions)
        else:
            drive(simulator, model_server, observation, options, latencies, actions)
        model = options.describe_model() if options.describe_model is not None else None
        model_server.end(next_seed)
        result = Played("ok", simulator.outcome(None), model=model)
    except ModelFault as error:
        fault = model_server.explain_fault(error)
        result = faulted(simulator, fault)
    except SimulatorBroken:
        raise
    except Exception as error:
        result = Played("failed", {}, simulator_error(error))
    if fault is None or not fault.fatal:
        model_server.end(next_seed)
    result.seconds, result.latencies, result.actions = time.perf_counter() - started, latencies, actions
    return result, fault


def drive(
    simulator: Simulator,
    model_server: Acting,
    observation: NDArray[Any],
    options: EpisodeOptions,
    latencies: list[float],
    actions: list[bytes],
) -> None:
    """Loop until the scenario is over; ``latencies`` and ``actions`` are appended to, also if an exception ends it."""
    act, step, keep = model_server.act_alone, simulator.step, options.keep_actions
    is_finite = finite_check(simulator.interface.action)
    delay = (
        ActionDelay(options.latency_steps, np.zeros(simulator.interface.action.shape))
        if options.latency_steps
        else None
    )
    dry = options.describe_model is not None
    over, started = False, time.perf_counter()
    while not over:
        action, latency = act(observation)
        latencies.append(latency)
        if not is_finite(action):
            raise not_finite(action)
        if delay is not None:
            action = delay(action)
        if keep:
            actions.append(recorded(action))
        observation, over = step(action)
        if dry and not over:
            over = options.cut_off(len(latencies), started)


def may_drive_directly(simulator: Simulator, options: EpisodeOptions) -> bool:
    """Whether a scenario's loop can be that of its simulator's compiled code."""
    plain = not options.latency_steps and options.describe_model is None
    return plain and bool(getattr(simulator, "drives_directly", False))


def drive_directly(
    simulator: Any,
    model_server: Acting,
    observation: NDArray[Any],
    options: EpisodeOptions,
    latencies: list[float],
    actions: list[bytes],
) -> None:
    """Do what ``drive`` does, in the simulator's compiled code; an entry of ``actions`` has those of many steps."""
    loop = model_server.direct_loop(observation)
    kept = actions if options.keep_actions else None
    try:
        while (pause := simulator.drive_directly(loop.exchange)) is not Pause.OVER:
            if pause is Pause.NOT_FINITE:
                raise not_finite(loop.action)
            if pause is not Pause.FULL:
                loop.settle(pause)
            loop.take(latencies, kept)
    finally:
        loop.take(latencies, kept)


def recorded(action: NDArray[Any]) -> bytes:
    """Return an applied action as a trace has it."""
    return action.astype(np.float32, copy=False).tobytes()


def run_batch(
    simulators: Sequence[Simulator],
    model_server: Acting,
    scenarios: Sequence[Scenario | None],
    seed: int,
    options: EpisodeOptions,
    *,
    next_seed: int | None = None,
) -> tuple[list[Played | None], ModelFault | None]:
    """Run a batch of scenarios in lock-step, with one `act` per step for all; rows of absent or ended ones are zeros.

    They share one `reset`. A fault of the model server ends all scenarios of the batch that are still running.
    """
    started = time.perf_counter()
    space = simulators[0].interface.observation
    observations = np.zeros((len(simulators), *space.shape), space.dtype)
    results: list[Played | None] = [None] * len(simulators)
    latencies: list[float] = []
    running = []
    fault = begin_fault(model_server, seed)
    for row, scenario in enumerate(scenarios):
        if scenario is None:
            continue
        try:
            observations[row] = simulators[row].reset(scenario)
            running.append(row)
        except SimulatorBroken:
            raise
        except Exception as error:
            results[row] = Played("failed", {}, simulator_error(error))
    while running:
        try:
            if fault is not None:
                raise fault
            if not latencies:
                model_server.ready(seed)
            answers, latency = model_server.act(observations)
        except ModelFault as error:
            fault = model_server.explain_fault(error)
            for row in running:
                results[row] = faulted(simulators[row], fault)
            break
        latencies.append(latency)
        all_finite = finite(answers)
        still_running = []
        for row in running:
            answer = answers[row].copy()
            if not all_finite and not finite(answer):
                results[row] = faulted(simulators[row], not_finite(answer))
            else:
                try:
                    observations[row], over = simulators[row].step(answer)
                    if over or options.cut_off(len(latencies), started):
                        results[row] = Played("ok", simulators[row].outcome(None))
                    else:
                        still_running.append(row)
                except SimulatorBroken:
                    raise
                except Exception as error:
                    results[row] = Played("failed", {}, simulator_error(error))
            if results[row] is not None:
                observations[row] = 0
        running = still_running
    model = options.describe_model() if options.describe_model is not None and fault is None else None
    if fault is None or not fault.fatal:
        model_server.end(next_seed)
    seconds = (time.perf_counter() - started) / max(1, sum(result is not None for result in results))
    for result in results:
        if result is not None:
            result.seconds, result.latencies, result.model = seconds, latencies, model
    return results, fault


def replay(simulator: Simulator, scenario: Scenario, trace: bytes, dt: float) -> dict[str, Any]:
    """Run a scenario again from its recorded actions; return the scene and a frame per step, ``dt`` seconds apart."""
    actions = actions_of(trace, simulator.interface)
    simulator.reset(scenario)
    scene = simulator.scene()
    frames = [simulator.frame()]
    for action in actions:
        _, over = simulator.step(action)
        frames.append(simulator.frame())
        if over:
            break
    return {"scene": scene, "frames": frames, "dt": dt}


def actions_of(trace: bytes, interface: Interface) -> NDArray[Any]:
    """Decode a trace to the recorded actions."""
    flat = np.frombuffer(trace, np.float32)
    return flat.reshape(-1, *interface.action.shape).astype(interface.action.dtype)


def faulted(simulator: Simulator, fault: ModelFault) -> Played:
    """Return the result of a scenario that a model's fault ended, without metrics if the simulator fails as well."""
    try:
        metrics = simulator.outcome(fault.status)
    except SimulatorBroken:
        raise
    except Exception as error:
        return Played(fault.status, {}, f"{unworldly(str(fault))}; {simulator_error(error)}")
    return Played(fault.status, metrics, unworldly(str(fault)))


def not_finite(action: NDArray[Any]) -> WrongAnswer:
    """Return the fault for an action with infinite or undefined entries."""
    return WrongAnswer(f"the action is not finite: {action.reshape(-1)[:8].tolist()}")


def simulator_error(error: Exception) -> str:
    """Return the error text of a result for an exception that the simulator raised."""
    return unworldly(f"simulator: {type(error).__name__}: {error}"[:500])


def begin_fault(model_server: Acting, seed: int) -> ModelFault | None:
    """Send the model server's `reset`; return its fault, which the caller raises after the simulator's own reset."""
    try:
        model_server.begin(seed)
    except ModelFault as error:
        return error
    return None
