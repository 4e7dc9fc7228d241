"""Prometheus metrics of the API and of the platform; the number of label values is bounded."""

import time
from collections.abc import Callable, Iterator, Mapping

from flask import Flask, Response, g, request
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.context import Context
from common.ages import seconds_since
from common.errors import StoreUnavailable
from core.domain.access.scopes import OPERATION
from core.domain.scheduling.states import State
from core.notifications.change_notifier import Waiters
from core.services.service_groups import OperationServices
from core.services.uploads.disk_floor import DiskFloor

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

#: Name of the gauge of requests to webhooks.
WEBHOOK_REQUESTS = "windtunnel_webhook_requests"
#: Gauges of the platform: name, text and labels.
GAUGES: tuple[tuple[str, str, list[str]], ...] = (
    ("windtunnel_check_ok", "Whether a check of /readyz passes (1 or 0).", ["check"]),
    ("windtunnel_disk_free_bytes", "Free bytes of a disk of this machine, by what is kept on it.", ["holds"]),
    ("windtunnel_disk_floor_bytes", "Free bytes of that disk below which uploads are refused.", ["holds"]),
    ("windtunnel_streams", "Event and result streams open in this process.", []),
    ("windtunnel_simulations", "Simulations by state.", ["state"]),
    ("windtunnel_waiting_simulations", "Simulations that wait for a model, for workers or for an executor.", []),
    ("windtunnel_waiting_tasks", "Tasks of the simulations that wait.", []),
    ("windtunnel_waiting_oldest_seconds", "Seconds that the oldest of these simulations has waited; 0: none.", []),
    ("windtunnel_quota_drift", "By how much the last recount of quotas has changed what was counted.", []),
    (WEBHOOK_REQUESTS, "Requests to the present webhooks, by outcome.", ["outcome"]),
    ("windtunnel_webhook_oldest_due_seconds", "Seconds for which an event is due to a webhook; 0: none is.", []),
    ("windtunnel_executor_workers", "Most workers at the same time, by executor.", ["executor"]),
    ("windtunnel_executor_in_use", "Workers in use, by executor.", ["executor"]),
    ("windtunnel_executor_healthy", "Whether the executor answers (1 or 0).", ["executor"]),
)

Checks = Mapping[str, Callable[[], str | None]]


class PlatformCollector(Collector):
    """Collector that reads the platform's metrics at each scrape; ``checks`` are those of /readyz.

    While the database is away, the metrics that are read from it are absent and the others are served.
    """

    def __init__(self, operations: OperationServices, floor: DiskFloor, streams: Waiters, checks: Checks) -> None:
        self._operations = operations
        self._floor = floor
        self._streams = streams
        self._checks = checks

    @staticmethod
    def describe() -> list[GaugeMetricFamily]:
        """Return every metric family, without samples."""
        return [GaugeMetricFamily(name, text, labels=labels) for name, text, labels in GAUGES]

    def collect(self) -> Iterator[Metric]:
        """Yield checks, disks, open streams, simulations by state, what waits, and the executors."""
        families = {family.name: family for family in self.describe()}
        for name, check in self._checks.items():
            families["windtunnel_check_ok"].add_metric([name], float(check() is None))
        for disk in self._floor.disks():
            holds = ",".join(disk.holds)
            families["windtunnel_disk_free_bytes"].add_metric([holds], disk.free)
            families["windtunnel_disk_floor_bytes"].add_metric([holds], disk.floor)
        families["windtunnel_streams"].add_metric([], self._streams.waiting)
        try:
            self._read_database(families)
        except StoreUnavailable:
            pass  # windtunnel_check_ok says so
        yield from families.values()

    def _read_database(self, families: Mapping[str, GaugeMetricFamily]) -> None:
        counts = self._operations.queue.states()
        for state in State:
            families["windtunnel_simulations"].add_metric([state.value], counts.get(state.value, 0))
        numbers = {"windtunnel_quota_drift": float(self._operations.quotas.last_drift())}
        if waiting := self._operations.queue.counts().waiting:
            numbers["windtunnel_waiting_simulations"] = waiting.simulations
            numbers["windtunnel_waiting_tasks"] = waiting.tasks
            oldest = waiting.oldest_at
            seconds = seconds_since(oldest.timestamp(), time.time()) if oldest else 0.0
            numbers["windtunnel_waiting_oldest_seconds"] = seconds
        load = self._operations.webhooks.load()
        numbers["windtunnel_webhook_oldest_due_seconds"] = load.oldest_due
        for outcome, requests in (("delivered", load.delivered), ("failed", load.failed)):
            families[WEBHOOK_REQUESTS].add_metric([outcome], requests)
        for name, number in numbers.items():
            families[name].add_metric([], number)
        for executor in self._operations.executors.list(OPERATION):
            families["windtunnel_executor_workers"].add_metric([executor.name], executor.workers)
            families["windtunnel_executor_in_use"].add_metric([executor.name], executor.in_use)
            if executor.healthy is not None:
                families["windtunnel_executor_healthy"].add_metric([executor.name], float(executor.healthy))


class RequestMetrics:
    """Requests of an application by their route, and the seconds that they took."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "windtunnel_http_requests", "HTTP requests answered.", ["method", "route", "status"], registry=registry
        )
        self.durations = Histogram(
            "windtunnel_http_request_seconds",
            "Seconds until the head of the response.",
            ["route"],
            buckets=BUCKETS,
            registry=registry,
        )

    def record(self, response: Response) -> Response:
        """Count the request at hand, whose response is about to be sent."""
        route = request.url_rule.rule if request.url_rule else "none"
        method = request.method if request.method in METHODS else "other"
        self.requests.labels(method, route, str(response.status_code)).inc()
        if "started_at" in g:
            self.durations.labels(route).observe(time.perf_counter() - g.started_at)
        return response


def observe(app: Flask, context: Context) -> CollectorRegistry:
    """Count and time the requests of an application; return the registry of all metrics."""
    registry = CollectorRegistry()
    registry.register(
        PlatformCollector(context.operations, context.files.disk_floor, context.submissions.changes, context.checks)
    )
    metrics = RequestMetrics(registry)

    def start_timer() -> None:
        g.started_at = time.perf_counter()

    app.before_request(start_timer)
    app.after_request(metrics.record)
    return registry
