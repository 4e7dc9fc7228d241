"""Prometheus metrics of the dispatcher: whether it leads, and its passes by outcome."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class DispatcherMetrics:
    """Metrics of one dispatcher, in a ``registry`` of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.leads = Gauge(
            "windtunnel_dispatcher_leads",
            "Whether this dispatcher acts (1), or stands by (0).",
            registry=self.registry,
        )
        self.passes = Counter(
            "windtunnel_dispatcher_passes",
            "Passes over simulations and launches, by outcome (done, failed).",
            ["outcome"],
            registry=self.registry,
        )
        # both exist from the start: a rate of a counter that appears with its first failure misses that failure
        self.done, self.failed = self.passes.labels("done"), self.passes.labels("failed")
