"""Stable-Baselines3's evaluate_policy on a SubprocVecEnv with as many processes as processors."""

from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import SubprocVecEnv

from benchmarks.peers.episodes import WORKERS, Task, timed


class SeedsInTurn(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Resets an environment with one seed after another; the same ones again after `begin`."""

    def __init__(self, environment: Any, seeds: list[int]) -> None:
        super().__init__(environment)
        self._seeds, self._next = seeds, 0

    def begin(self, count: int) -> None:
        """Start with the first seed again; of all environments' seeds, `count` are run."""
        self._next = 0

    def reset(self, **options: Any) -> Any:
        seed = self._seeds[self._next % len(self._seeds)]
        self._next += 1
        return self.env.reset(seed=seed)


class Predictor:
    """The policy as `evaluate_policy` calls it: a row of actions for a row of observations."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy

    def predict(self, observations: Any, **options: Any) -> tuple[Any, Any]:
        """Return the actions, and no recurrent state."""
        return np.array([self._policy(observation) for observation in observations]), None


def main() -> None:
    """Measure. Environment i of n runs the seeds i, i + n, i + 2n ..., as `evaluate_policy` divides episodes."""
    task = Task.of_command_line()

    def of(worker: int) -> Any:
        return lambda: SeedsInTurn(task.make(), task.seeds[worker::WORKERS])

    environments = SubprocVecEnv([of(worker) for worker in range(WORKERS)], start_method="forkserver")
    predictor: Any = Predictor(task.policy())

    def run(seeds: list[int]) -> list[float]:
        environments.env_method("begin", len(seeds))
        done: list[list[float]] = [[] for _ in range(WORKERS)]

        def note(local: dict[str, Any], _: dict[str, Any]) -> None:
            if local["done"] and local["episode_counts"][local["i"]] < local["episode_count_targets"][local["i"]]:
                done[local["i"]].append(float(local["current_rewards"][local["i"]]))

        evaluate_policy(predictor, environments, len(seeds), callback=note, warn=False)
        returns = [0.0] * len(seeds)
        for worker, of_worker in enumerate(done):
            returns[worker::WORKERS] = of_worker
        return returns

    timed(run, task.seeds, f"stable-baselines3 {stable_baselines3.__version__}")
    environments.close()


if __name__ == "__main__":
    main()
