"""Metrics server of a role without HTTP (dispatch, jobs): its Prometheus metrics, on a port of their own."""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Metric, start_http_server
from prometheus_client.registry import Collector


class MergedCollector(Collector):
    """Merges collectors: a metric family that several of them have is exposed once, with the samples of all."""

    def __init__(self, collectors: Iterable[Collector]) -> None:
        self._collectors = tuple(collectors)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric family."""
        families: dict[str, Metric] = {}
        for collector in self._collectors:
            for family in collector.collect():
                merged = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                merged.samples.extend(family.samples)
        yield from families.values()


def start(port: int, collectors: Iterable[Collector]) -> None:
    """Serve `/metrics` from a thread, on every address; access is restricted by the network, not here."""
    registry = CollectorRegistry()
    registry.register(MergedCollector(collectors))
    start_http_server(port, registry=registry)
