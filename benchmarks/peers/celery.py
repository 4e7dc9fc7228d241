"""Celery, two worker processes: Redis carries tasks and keeps results."""

import os
import subprocess
import sys
from collections.abc import Sequence

import celery

from benchmarks.peers.clock import timed
from benchmarks.peers.noop import noop

app = celery.Celery("peer", broker=os.environ.get("BROKER"), backend=os.environ.get("BROKER"))
task = app.task(noop, name="noop")


def run_tasks(count: int) -> Sequence[int]:
    """Submit all tasks, then gather all results."""
    results: list[int] = celery.group(task.s(number) for number in range(count)).apply_async().get()
    return results


def main() -> None:
    """Measure and print the rate."""
    command = [sys.executable, "-m", "celery", "-A", "benchmarks.peers.celery", "worker", "-c", "2", "-l", "ERROR"]
    worker = subprocess.Popen(
        [*command, "--without-gossip", "--without-mingle"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        timed(run_tasks, f"Celery {celery.__version__}")
    finally:
        worker.terminate()
        worker.wait()


if __name__ == "__main__":
    main()
