"""Metrics of a cache node: its buckets, from the Prometheus text that it serves at `/metrics`."""

import re
import time
from collections import defaultdict
from dataclasses import dataclass

from datasets.scs_client.http_pool import ConnectionPool, TransportError

#: Most bytes of a response, and the time-out in seconds of a request.
LARGEST, TIMEOUT = 1 << 20, 2.0
_SAMPLE = re.compile(r'^(scs_[a-z_]+)\{bucket="([^"]*)"\} ([0-9.e+-]+)$', re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketUse:
    """A bucket of a cache node: what it holds, in bytes, and its counts since the node's folder was created."""

    bucket: str
    entries: int
    bytes: int
    capacity: int
    hits: int
    misses: int
    evictions: int


def parse(text: str) -> list[BucketUse]:
    """Return the buckets of a node, by name."""
    buckets: dict[str, dict[str, int]] = defaultdict(dict)
    for name, bucket, value in _SAMPLE.findall(text):
        buckets[bucket][name] = int(float(value))
    return [
        BucketUse(
            bucket=bucket,
            entries=values.get("scs_objects", 0),
            bytes=values.get("scs_used_bytes", 0),
            capacity=values["scs_quota_bytes"],
            hits=values.get("scs_hits_total", 0),
            misses=values.get("scs_misses_total", 0),
            evictions=values.get("scs_evictions_total", 0),
        )
        for bucket, values in sorted(buckets.items())
        if "scs_quota_bytes" in values  # else it is not in the node's configuration any more
    ]


def read(url: str) -> list[BucketUse]:
    """Return the buckets of a node. Raise TransportError if it does not answer in time."""
    pool, deadline = ConnectionPool(TIMEOUT), time.monotonic() + 2 * TIMEOUT
    try:
        with pool.exchange(url, "GET", "/metrics", {}) as response:
            if response.status != 200:
                raise TransportError(f"it answers {response.status}")
            if response.length is None or response.length > LARGEST:
                raise TransportError("its metrics are longer than 1 MiB, or have no length")
            body, received = memoryview(bytearray(response.length)), 0
            while received < len(body):
                if time.monotonic() > deadline:
                    raise TransportError("it is too slow")
                received += response.read_into(body[received:])
    finally:
        pool.close()
    return parse(bytes(body).decode(errors="replace"))
