"""Metrics: counters of one process, and the Prometheus text format."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import accumulate

Key = tuple[str, str]

#: Upper bounds of the latency histogram, in seconds.
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
#: Each metric family: its type, its labels and what it says.
FAMILIES: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "scs_hits_total": ("counter", ("bucket",), "Requests for an object that was present."),
    "scs_misses_total": ("counter", ("bucket",), "Requests for an object that was absent."),
    "scs_stores_total": ("counter", ("bucket",), "Objects stored."),
    "scs_evictions_total": ("counter", ("bucket",), "Objects evicted to make room for an object of this bucket."),
    "scs_sent_bytes_total": ("counter", ("bucket",), "Bytes of objects announced in responses."),
    "scs_received_bytes_total": ("counter", ("bucket",), "Bytes of objects stored."),
    "scs_refusals_total": ("counter", ("status",), "Requests refused, by status."),
    "scs_reviews_total": ("counter", ("verdict",), "Tokens that the authenticator checked, by verdict."),
    "scs_damaged_total": (
        "counter",
        ("bucket",),
        "Objects that a GET dropped: their file was damaged, missing or unreadable.",
    ),
    "scs_scrubbed_total": ("counter", ("found",), "Objects that the scrub read, by result."),
    "scs_used_bytes": ("gauge", ("bucket",), "Bytes a bucket holds, PUTs in progress included."),
    "scs_quota_bytes": ("gauge", ("bucket",), "Bytes a bucket may hold."),
    "scs_objects": ("gauge", ("bucket",), "Objects a bucket holds."),
    "scs_connections": ("gauge", (), "Connections of the process that responds."),
    "scs_request_seconds": (
        "histogram",
        ("method",),
        "From a request's last byte to its answer's last byte leaving, GET and PUT.",
    ),
}


class Counters:
    """Read counters of a bucket; attributes, because every read updates them."""

    __slots__ = ("hits", "misses", "sent")

    def __init__(self) -> None:
        self.hits = self.misses = self.sent = 0

    def take(self) -> dict[str, int]:
        """Return the counters by metric name, and reset them."""
        values = {"scs_hits_total": self.hits, "scs_misses_total": self.misses, "scs_sent_bytes_total": self.sent}
        self.hits = self.misses = self.sent = 0
        return values


class ProcessMetrics:
    """Metrics of one process since the last `take`. Only the event loop uses them."""

    def __init__(self) -> None:
        self._values: dict[Key, float] = {}
        self._times: dict[str, list[float]] = {}
        self._counters: dict[str, Counters] = {}

    def counters_for(self, labels: str) -> Counters:
        """Return the read counters with these labels."""
        return self._counters.setdefault(labels, Counters())

    def add(self, name: str, labels: str, value: float = 1) -> None:
        """Add to a counter; ``labels`` as Prometheus writes them, without braces."""
        _count(self._values, name, labels, value)

    def merge(self, values: Mapping[Key, float]) -> None:
        """Add values back that could not be written."""
        for (name, labels), value in values.items():
            _count(self._values, name, labels, value)

    def time(self, method: str, seconds: float) -> None:
        """Add a request to the latency histogram."""
        times = self._times.get(method)
        if times is None:
            times = self._times[method] = [0.0] * (len(BOUNDS) + 2)
        times[bisect_left(BOUNDS, seconds)] += 1
        times[-1] += seconds

    def take(self) -> dict[Key, float]:
        """Return all counters, and reset them."""
        values, self._values = self._values, {}
        for labels, counters in self._counters.items():
            for name, value in counters.take().items():
                _count(values, name, labels, value)
        for method, times in self._times.items():
            *buckets, total = times
            bounds = (*map(str, BOUNDS), "+Inf")
            for bound, count in zip(bounds, accumulate(buckets), strict=True):
                _count(values, "scs_request_seconds_bucket", f'method="{method}",le="{bound}"', count)
            _count(values, "scs_request_seconds_count", f'method="{method}"', sum(buckets))
            _count(values, "scs_request_seconds_sum", f'method="{method}"', total)
        self._times = {}
        return values


def _count(values: dict[Key, float], name: str, labels: str, value: float) -> None:
    values[name, labels] = values.get((name, labels), 0) + value


def exposition(values: Iterable[Mapping[Key, float]]) -> bytes:
    """Render the sums of several sets of values in Prometheus' text format."""
    sums: dict[Key, float] = {}
    for mapping in values:
        for key, value in mapping.items():
            sums[key] = sums.get(key, 0) + value
    lines: list[str] = []
    for family, (kind, _, help_text) in FAMILIES.items():
        members = (family,) if kind != "histogram" else tuple(f"{family}_{end}" for end in ("bucket", "count", "sum"))
        lines += [f"# HELP {family} {help_text}", f"# TYPE {family} {kind}"]
        for member in members:
            samples = [(labels, value) for (name, labels), value in sums.items() if name == member]
            for labels, value in sorted(samples, key=lambda sample: _order(sample[0])):
                lines.append(f"{member}{'{' + labels + '}' if labels else ''} {value:.17g}")
    return ("\n".join(lines) + "\n").encode()


def _order(labels: str) -> tuple[str, float]:
    rest, _, bound = labels.partition(',le="')
    return rest, float(bound.rstrip('"')) if bound else 0.0
