"""Ray: a task is an episode; a worker process keeps its environment from one task to the next."""

import json

import ray

from benchmarks.peers.episodes import WORKERS, Task, episode_of_process, timed


def main() -> None:
    """Measure."""
    task = Task.of_command_line()
    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    remote = ray.remote(episode_of_process)
    document = json.dumps(task.document | {"seeds": []})

    def run(seeds: list[int]) -> list[float]:
        returns: list[float] = ray.get([remote.remote(document, seed) for seed in seeds])
        return returns

    timed(run, task.seeds, f"Ray {ray.__version__}")


if __name__ == "__main__":
    main()
