"""Episodes of Gymnasium's Hopper-v5 with an ONNX policy as peers run them: 16 environments, one call of the policy.

Arguments: a JSON file {model, seeds}, and `async` (a process for each environment) or `rollout` (all in MuJoCo's own
batched rollout, with observation, reward and end computed from its states). Printed: seconds, steps and returns.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import onnxruntime
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from mujoco import rollout

from runtimes.harness.simulators.mujoco import preload

WORLDS = 16
#: Of Hopper-v5: steps of the solver for an action, the longest episode, and where it is healthy.
SKIPPED, LONGEST = 4, 1000
Policy = Callable[[Any], Any]


def make() -> Any:
    """Return an environment."""
    preload(None)  # type: ignore[arg-type]
    return gymnasium.make("Hopper-v5", disable_env_checker=True)


def played_async(policy: Policy, seeds: list[int]) -> tuple[int, list[float]]:
    """Play an episode for each seed, each reset by itself; return the number of steps, and the returns."""
    environments = AsyncVectorEnv([make] * WORLDS, autoreset_mode=AutoresetMode.DISABLED)
    returns, steps, upcoming = [0.0] * len(seeds), 0, WORLDS
    running = list(range(WORLDS))
    observations, _ = environments.reset(seed=[seeds[number] for number in running])
    while any(number >= 0 for number in running):
        observations, rewards, terminated, truncated, _ = environments.step(policy(observations))
        over = terminated | truncated
        for row, number in enumerate(running):
            if number >= 0:
                returns[number] += float(rewards[row])
                steps += 1
        if over.any():
            for row in np.flatnonzero(over):
                running[row] = upcoming if upcoming < len(seeds) and running[row] >= 0 else -1
                upcoming += running[row] >= 0
            following = [seeds[max(0, number)] if ended else None for number, ended in zip(running, over, strict=True)]
            observations, _ = environments.reset(seed=following, options={"reset_mask": over})
    environments.close()
    return steps, returns


def played_rollout(policy: Policy, seeds: list[int]) -> tuple[int, list[float]]:
    """Play an episode for each seed; rows of episodes that have ended begin the next."""
    environment = make()
    model, whole = environment.unwrapped.model, mujoco.mjtState.mjSTATE_FULLPHYSICS
    positions, velocities = slice(1, 1 + model.nq), slice(1 + model.nq, 1 + model.nq + model.nv)
    states = np.zeros((WORLDS, mujoco.mj_stateSize(model, whole)))
    returns, steps, upcoming = [0.0] * len(seeds), 0, 0
    running, lengths = [-1] * WORLDS, [0] * WORLDS

    def begin(row: int) -> None:
        nonlocal upcoming
        running[row] = upcoming if upcoming < len(seeds) else -1
        if running[row] >= 0:
            environment.reset(seed=seeds[upcoming])
            mujoco.mj_getState(model, environment.unwrapped.data, states[row], whole)
            lengths[row], upcoming = 0, upcoming + 1

    for row in range(WORLDS):
        begin(row)
    data, time_step = mujoco.MjData(model), model.opt.timestep * SKIPPED
    with rollout.Rollout(nthread=0) as rolled:
        while any(number >= 0 for number in running):
            observed = np.concatenate([states[:, positions][:, 1:], np.clip(states[:, velocities], -10, 10)], axis=1)
            actions = policy(observed)
            before = states[:, 1].copy()
            control = np.repeat(actions[:, None].astype(np.float64), SKIPPED, axis=1)
            following, _ = rolled.rollout(model, data, states, control)
            states = following[:, -1].copy()
            moved = states[:, positions]
            rest = np.concatenate([moved[:, 2:], states[:, velocities]], axis=1)
            healthy = (np.abs(rest) < 100).all(axis=1) & (moved[:, 1] > 0.7) & (np.abs(moved[:, 2]) < 0.2)
            rewards = (states[:, 1] - before) / time_step + healthy - 1e-3 * np.square(actions).sum(axis=1)
            for row, number in enumerate(running):
                if number >= 0:
                    returns[number] += float(rewards[row])
                    steps, lengths[row] = steps + 1, lengths[row] + 1
                    if not healthy[row] or lengths[row] == LONGEST:
                        begin(row)
    return steps, returns


def main() -> None:
    """Measure; the second argument is `async` or `rollout`."""
    task = json.loads(Path(sys.argv[1]).read_text())
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(task["model"], options)

    def policy(observations: Any) -> Any:
        return session.run(["action"], {"observation": observations.astype(np.float32)})[0]

    play = played_async if sys.argv[2] == "async" else played_rollout
    play(policy, task["seeds"][:WORLDS])
    began = time.perf_counter()
    steps, returns = play(policy, task["seeds"])
    print(json.dumps({"seconds": time.perf_counter() - began, "steps": steps, "returns": returns}))


if __name__ == "__main__":
    main()
