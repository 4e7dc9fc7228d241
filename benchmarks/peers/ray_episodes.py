"""Ray: a task is an episode; an actor-free remote function with an environment per worker process."""

from functools import cache
from typing import Any

import ray

from benchmarks.peers.episodes import WORKERS, Task, play, timed


@cache
def _of_process(document: str) -> tuple[Any, Any]:
    import json

    task = Task(json.loads(document))
    return task.make(), task.policy()


def episode(document: str, seed: int) -> float:
    """Run one episode in a worker process, which keeps its environment."""
    environment, policy = _of_process(document)
    return play(environment, policy, seed)


def main() -> None:
    """Measure."""
    import json

    task = Task.of_command_line()
    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    remote = ray.remote(episode)
    document = json.dumps(task.document | {"seeds": []})

    def run(seeds: list[int]) -> list[float]:
        returns: list[float] = ray.get([remote.remote(document, seed) for seed in seeds])
        return returns

    timed(run, task.seeds, f"Ray {ray.__version__}")


if __name__ == "__main__":
    main()
