"""Prometheus metrics of the API and of the platform; the number of label values is bounded."""

import time
from collections.abc import Iterator

from flask import Flask, Response, g, request
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from core.domain.states import State
from core.services.platform import Platform
from core.store.simulations import by_state

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class PlatformCollector(Collector):
    """Collector that reads the platform's metrics at each scrape."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    def collect(self) -> Iterator[Metric]:
        """Yield simulations by state, open streams, and workers and health of each executor."""
        simulations = GaugeMetricFamily("windtunnel_simulations", "Simulations by state.", labels=["state"])
        with self._platform.database.read() as c:
            counts = by_state(c)
        for state in State:
            simulations.add_metric([state.value], counts.get(state.value, 0))
        yield simulations
        streams = GaugeMetricFamily("windtunnel_streams", "Event and result streams open in this process.")
        streams.add_metric([], self._platform.changes.waiting)
        yield streams
        workers = GaugeMetricFamily(
            "windtunnel_executor_workers", "Most workers at the same time, by executor.", labels=["executor"]
        )
        in_use = GaugeMetricFamily("windtunnel_executor_in_use", "Workers in use, by executor.", labels=["executor"])
        healthy = GaugeMetricFamily(
            "windtunnel_executor_healthy", "Whether the executor answers (1 or 0).", labels=["executor"]
        )
        for executor in self._platform.executors.list():
            workers.add_metric([executor["name"]], executor["workers"])
            in_use.add_metric([executor["name"]], executor["in_use"])
            if executor["healthy"] is not None:
                healthy.add_metric([executor["name"]], float(executor["healthy"]))
        yield from (workers, in_use, healthy)


def observe(app: Flask, platform: Platform) -> CollectorRegistry:
    """Count and time the requests of an application by their route; return the registry of all metrics."""
    registry = CollectorRegistry()
    registry.register(PlatformCollector(platform))
    requests = Counter(
        "windtunnel_http_requests", "HTTP requests answered.", ["method", "route", "status"], registry=registry
    )
    durations = Histogram(
        "windtunnel_http_request_seconds",
        "Seconds until the head of the response.",
        ["route"],
        buckets=BUCKETS,
        registry=registry,
    )

    def start_timer() -> None:
        g.started_at = time.perf_counter()

    def record(response: Response) -> Response:
        route = request.url_rule.rule if request.url_rule else "none"
        method = request.method if request.method in METHODS else "other"
        requests.labels(method, route, str(response.status_code)).inc()
        if "started_at" in g:
            durations.labels(route).observe(time.perf_counter() - g.started_at)
        return response

    app.before_request(start_timer)
    app.after_request(record)
    return registry
