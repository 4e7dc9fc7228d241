"""Prometheus metrics of one cluster: API calls by verb and outcome, launches by phase, warm pods."""

from collections import Counter as Counted
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from core.domain.scheduling.launches import LaunchStatus, Phase

_BUCKETS = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class ClusterMetrics:
    """Metrics of one executor, each in its own ``registry``, so that executors do not collide in names."""

    def __init__(self, context: str) -> None:
        self.registry = CollectorRegistry()
        self._context = context
        self._calls = Counter(
            "windtunnel_cluster_calls",
            "Calls of a cluster's API.",
            ["context", "verb", "outcome"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "windtunnel_cluster_call_seconds",
            "Seconds that a call of a cluster's API took.",
            ["context", "verb"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._launches = Gauge(
            "windtunnel_cluster_launches",
            "Launches in a cluster by phase, as they were last seen.",
            ["context", "phase"],
            registry=self.registry,
        )

        self._waiting = Gauge(
            "windtunnel_cluster_waiting",
            "Pods kept warm: those that are ready for a launch, and those that are wanted.",
            ["context", "state"],
            registry=self.registry,
        )

    def observe_call(self, verb: str, outcome: str, seconds: float) -> None:
        """Record an API call."""
        self._calls.labels(self._context, verb, outcome).inc()
        self._seconds.labels(self._context, verb).observe(seconds)

    def set_launch_phases(self, statuses: Iterable[LaunchStatus]) -> None:
        """Set the number of launches per phase."""
        counts = Counted(status.phase for status in statuses)
        for phase in Phase:
            self._launches.labels(self._context, phase.value).set(counts[phase])

    def set_warm_pods(self, ready: int, wanted: int) -> None:
        """Set the numbers of ready and desired warm pods."""
        for state, count in (("ready", ready), ("wanted", wanted)):
            self._waiting.labels(self._context, state).set(count)
