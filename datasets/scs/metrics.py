"""What is counted, and how Prometheus reads it."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import accumulate

Key = tuple[str, str]

#: Upper bounds of the latency histogram, in seconds.
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_HELP: Mapping[str, tuple[str, str]] = {
    "scs_hits_total": ("counter", "Objects found when asked for."),
    "scs_misses_total": ("counter", "Objects asked for that were not there."),
    "scs_stores_total": ("counter", "Objects stored."),
    "scs_evictions_total": ("counter", "Objects that went to make room for one of this bucket."),
    "scs_sent_bytes_total": ("counter", "Bytes of objects announced in answers."),
    "scs_received_bytes_total": ("counter", "Bytes of objects stored."),
    "scs_refusals_total": ("counter", "Requests refused, by status."),
    "scs_reviews_total": ("counter", "Tokens that a reviewer was asked about, by verdict."),
    "scs_scrubbed_total": ("counter", "Objects read again, by what was found."),
    "scs_used_bytes": ("gauge", "Bytes a bucket holds, those on their way included."),
    "scs_quota_bytes": ("gauge", "Bytes a bucket may hold."),
    "scs_objects": ("gauge", "Objects a bucket holds."),
    "scs_connections": ("gauge", "Connections of the process that answers."),
    "scs_request_seconds": ("histogram", "From a request's last byte to its answer's last byte leaving, GET and PUT."),
}


class Tally:
    """A bucket's reads, counted apart because there are so many of them."""

    __slots__ = ("hits", "misses", "sent")

    def __init__(self) -> None:
        self.hits = self.misses = self.sent = 0

    def take(self) -> dict[str, int]:
        """Return what was counted, by name, and begin anew."""
        found = {"scs_hits_total": self.hits, "scs_misses_total": self.misses, "scs_sent_bytes_total": self.sent}
        self.hits = self.misses = self.sent = 0
        return found


class Counts:
    """What one process has counted since the last `take`. Used by its loop alone."""

    def __init__(self) -> None:
        self._values: dict[Key, float] = {}
        self._times: dict[str, list[float]] = {}
        self._tallies: dict[str, Tally] = {}

    def tally(self, labels: str) -> Tally:
        """Return where a bucket's reads are counted."""
        return self._tallies.setdefault(labels, Tally())

    def add(self, name: str, labels: str, value: float = 1) -> None:
        """Count something; ``labels`` as Prometheus writes them, without braces."""
        _count(self._values, name, labels, value)

    def merge(self, values: Mapping[Key, float]) -> None:
        """Count again what could not be written down."""
        for (name, labels), value in values.items():
            _count(self._values, name, labels, value)

    def time(self, method: str, seconds: float) -> None:
        """Count a request's latency."""
        times = self._times.get(method)
        if times is None:
            times = self._times[method] = [0.0] * (len(BOUNDS) + 2)
        times[bisect_left(BOUNDS, seconds)] += 1
        times[-1] += seconds

    def take(self) -> dict[Key, float]:
        """Return what has been counted, and begin anew."""
        found, self._values = self._values, {}
        for labels, tally in self._tallies.items():
            for name, value in tally.take().items():
                _count(found, name, labels, value)
        for method, times in self._times.items():
            *buckets, total = times
            bounds = (*map(str, BOUNDS), "+Inf")
            for bound, count in zip(bounds, accumulate(buckets), strict=True):
                _count(found, "scs_request_seconds_bucket", f'method="{method}",le="{bound}"', count)
            _count(found, "scs_request_seconds_count", f'method="{method}"', sum(buckets))
            _count(found, "scs_request_seconds_sum", f'method="{method}"', total)
        self._times = {}
        return found


def _count(values: dict[Key, float], name: str, labels: str, value: float) -> None:
    values[name, labels] = values.get((name, labels), 0) + value


def text(values: Iterable[Mapping[Key, float]]) -> bytes:
    """Write sums of values in Prometheus' text format."""
    sums: dict[Key, float] = {}
    for one in values:
        for key, value in one.items():
            sums[key] = sums.get(key, 0) + value
    lines: list[str] = []
    for family, (kind, told) in _HELP.items():
        members = (family,) if kind != "histogram" else tuple(f"{family}_{end}" for end in ("bucket", "count", "sum"))
        lines += [f"# HELP {family} {told}", f"# TYPE {family} {kind}"]
        for member in members:
            found = [(labels, value) for (name, labels), value in sums.items() if name == member]
            for labels, value in sorted(found, key=lambda one: _order(one[0])):
                lines.append(f"{member}{'{' + labels + '}' if labels else ''} {value:.17g}")
    return ("\n".join(lines) + "\n").encode()


def _order(labels: str) -> tuple[str, float]:
    rest, _, bound = labels.partition(',le="')
    return rest, float(bound.rstrip('"')) if bound else 0.0
