"""Prometheus metrics of the jobs role: queues and registries from Redis, attempts from its worker processes."""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from core.notifications.job_queue import QueueCounts
from core.notifications.job_statistics import WorkerStatistics


class JobsCollector(Collector):
    """Collects metrics when it is asked. Every jobs role reports the same queues, and its own attempts."""

    def __init__(self, counts: Callable[[], Sequence[QueueCounts]], workers: Sequence[WorkerStatistics]) -> None:
        self._counts = counts
        self._workers = workers

    def collect(self) -> Iterator[Metric]:
        """Yield jobs by kind and state, and attempts by kind and outcome."""
        jobs = GaugeMetricFamily(
            "windtunnel_jobs",
            "Jobs in Redis by kind and state, the same in every jobs role: use max, not sum.",
            labels=["kind", "state"],
        )
        for count in self._counts():
            for state in ("queued", "started", "scheduled", "failed"):
                jobs.add_metric([count.kind, state], getattr(count, state))
        yield jobs
        attempts = CounterMetricFamily(
            "windtunnel_job_attempts",
            "Attempts of jobs that ended in this jobs role.",
            labels=["kind", "outcome"],
        )
        seconds = CounterMetricFamily("windtunnel_job_seconds", "Seconds that these attempts took.", labels=["kind"])
        ends = CounterMetricFamily(
            "windtunnel_job_worker_ends", "Worker processes that ended unasked and were started again.", labels=["kind"]
        )
        for kind in dict.fromkeys(worker.kind for worker in self._workers):
            workers = [worker for worker in self._workers if worker.kind == kind]
            attempts.add_metric([kind, "succeeded"], sum(worker.done for worker in workers))
            attempts.add_metric([kind, "failed"], sum(worker.failed for worker in workers))
            seconds.add_metric([kind], sum(worker.seconds for worker in workers))
            ends.add_metric([kind], sum(worker.ended for worker in workers))
        yield from (attempts, seconds, ends)
