"""Gymnasium's vector environments: one for each processor, in this process (sync) or in a process each (async).

An episode that is over is reset alone, with the next seed; the policy is called once for each running environment.
"""

import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from benchmarks.peers.episodes import WORKERS, Task, timed


def main() -> None:
    """Measure; the second argument is `sync` or `async`."""
    task, kind = Task.of_command_line(), sys.argv[2]
    vector: Any = AsyncVectorEnv if kind == "async" else SyncVectorEnv
    environments = vector([task.make] * WORKERS, autoreset_mode=AutoresetMode.DISABLED)
    policy = task.policy()

    def run(seeds: list[int]) -> list[float]:
        returns = [0.0] * len(seeds)
        running = list(range(min(WORKERS, len(seeds))))  # by environment: the number of its episode; -1: none
        running += [-1] * (WORKERS - len(running))
        upcoming = len([episode for episode in running if episode >= 0])
        observations, _ = environments.reset(seed=[seeds[max(0, episode)] for episode in running])
        while any(episode >= 0 for episode in running):
            actions = np.array([policy(observation) for observation in observations])
            observations, rewards, terminated, truncated, _ = environments.step(actions)
            over = terminated | truncated
            for row, episode in enumerate(running):
                if episode >= 0:
                    returns[episode] += float(rewards[row])
            if over.any():
                next_seeds: list[int | None] = [None] * WORKERS
                for row in np.flatnonzero(over):
                    running[row] = upcoming if upcoming < len(seeds) and running[row] >= 0 else -1
                    if running[row] >= 0:
                        upcoming += 1
                    next_seeds[row] = seeds[max(0, running[row])]
                observations, _ = environments.reset(seed=next_seeds, options={"reset_mask": over})
        return returns

    timed(run, task.seeds, f"Gymnasium {gymnasium.__version__}")
    environments.close()


if __name__ == "__main__":
    main()
