"""RQ, two SimpleWorkers (without a fork per job: its fastest workers): Redis carries jobs and keeps results."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version

import redis
import rq

from benchmarks.peers.clock import timed
from benchmarks.peers.noop import noop


def main() -> None:
    """Measure and print the rate."""
    url = os.environ["BROKER"]
    connection = redis.Redis.from_url(url)
    queue = rq.Queue(connection=connection)

    def run_tasks(count: int) -> Sequence[int]:
        jobs = queue.enqueue_many([rq.Queue.prepare_data(noop, (task,), result_ttl=600) for task in range(count)])
        while queue.finished_job_registry.count < count:
            time.sleep(0.005)
        ids = [job.id for job in jobs]
        fetched = rq.job.Job.fetch_many(ids, connection)
        results = [job.return_value() for job in fetched if job]
        connection.flushdb()
        return results

    command = [sys.executable, "-m", "rq.cli", "worker", "-w", "rq.worker.SimpleWorker", "--quiet", "--url", url]
    workers = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)]
    try:
        timed(run_tasks, f"RQ {version('rq')}")
    finally:
        for worker in workers:
            worker.terminate()
            worker.wait()


if __name__ == "__main__":
    main()
