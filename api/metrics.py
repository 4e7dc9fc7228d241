"""What is measured of the API itself, and of the platform, for Prometheus; labels never grow with what people do."""

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
    """Looks at the platform when it is asked, and keeps nothing."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    def collect(self) -> Iterator[Metric]:
        """Yield simulations by state, open streams, and how each place fares."""
        simulations = GaugeMetricFamily("windtunnel_simulations", "Simulations by state.", labels=["state"])
        with self._platform.database.read() as c:
            found = by_state(c)
        for state in State:
            simulations.add_metric([state.value], found.get(state.value, 0))
        yield simulations
        streams = GaugeMetricFamily("windtunnel_streams", "Event and result streams open in this process.")
        streams.add_metric([], self._platform.changes.streams)
        yield streams
        workers = GaugeMetricFamily(
            "windtunnel_executor_workers", "Pairs at work at once, by place.", labels=["executor"]
        )
        in_use = GaugeMetricFamily("windtunnel_executor_in_use", "Of those, how many are taken.", labels=["executor"])
        healthy = GaugeMetricFamily("windtunnel_executor_healthy", "Whether the place answers.", labels=["executor"])
        for one in self._platform.executors.list():
            workers.add_metric([one["name"]], one["workers"])
            in_use.add_metric([one["name"]], one["in_use"])
            if one["healthy"] is not None:
                healthy.add_metric([one["name"]], float(one["healthy"]))
        yield from (workers, in_use, healthy)


def observe(app: Flask, platform: Platform) -> CollectorRegistry:
    """Count and time an application's requests by the template of their address."""
    registry = CollectorRegistry()
    registry.register(PlatformCollector(platform))
    requests = Counter(
        "windtunnel_http_requests", "Requests answered.", ["method", "route", "status"], registry=registry
    )
    seconds = Histogram(
        "windtunnel_http_request_seconds",
        "Seconds to the head of an answer.",
        ["route"],
        buckets=BUCKETS,
        registry=registry,
    )

    def begin() -> None:
        g.began = time.perf_counter()

    def end(response: Response) -> Response:
        route = request.url_rule.rule if request.url_rule else "none"
        method = request.method if request.method in METHODS else "other"
        requests.labels(method, route, str(response.status_code)).inc()
        if "began" in g:
            seconds.labels(route).observe(time.perf_counter() - g.began)
        return response

    app.before_request(begin)
    app.after_request(end)
    return registry
