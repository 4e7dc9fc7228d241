"""What dispatch tells Prometheus: the figures of every executor that has some, on a port of its own."""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Metric, start_http_server
from prometheus_client.registry import Collector


class Figures(Collector):
    """Several collectors as one: a family that two of them have is told once, with the samples of both."""

    def __init__(self, parts: Iterable[Collector]) -> None:
        self._parts = tuple(parts)

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        families: dict[str, Metric] = {}
        for part in self._parts:
            for found in part.collect():
                known = families.setdefault(found.name, Metric(found.name, found.documentation, found.type))
                known.samples.extend(found.samples)
        yield from families.values()


def tell(port: int, parts: Iterable[Collector]) -> None:
    """Serve `/metrics` from a thread, on every address: what reaches it is the network's affair."""
    registry = CollectorRegistry()
    registry.register(Figures(parts))
    start_http_server(port, registry=registry)
