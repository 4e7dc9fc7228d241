"""Dask, two worker processes of one thread: a task is a future, its result stays on its worker until gathered."""

from collections.abc import Sequence

import dask
from distributed import Client, LocalCluster

from benchmarks.peers.clock import timed
from benchmarks.peers.noop import noop


def main() -> None:
    """Measure and print the rate."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):

        def run_tasks(count: int) -> Sequence[int]:
            results: list[int] = client.gather(client.map(noop, range(count), pure=False))
            return results

        timed(run_tasks, f"Dask {dask.__version__}")


if __name__ == "__main__":
    main()
