"""Ray, two processors: a task is a remote function, its result an object in the store."""

from collections.abc import Sequence

import ray

from benchmarks.peers.clock import timed
from benchmarks.peers.noop import noop


def main() -> None:
    """Measure and print the rate."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    remote = ray.remote(noop)

    def run_tasks(count: int) -> Sequence[int]:
        results: list[int] = ray.get([remote.remote(task) for task in range(count)])
        return results

    timed(run_tasks, f"Ray {ray.__version__}")


if __name__ == "__main__":
    main()
