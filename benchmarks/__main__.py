"""`python -m benchmarks [NAME ...]`: run benchmarks, store figures, write RESULTS.md; no names: all but `cluster`."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks import (
    api_client,
    archive,
    cluster,
    driving,
    eviction,
    fanout,
    footprint,
    latency,
    registering,
    results,
    ring,
    scs,
    staging,
    uploads,
)
from benchmarks.figures import busy, keep


@dataclass(frozen=True, slots=True)
class Measure:
    """A benchmark: its function, and its section of RESULTS.md; ``apart``: it runs only when it is named."""

    name: str
    title: str
    measure: Callable[[], dict[str, Any]]
    section: Callable[[dict[str, Any]], str]
    apart: bool = False


MEASURES = (
    Measure("fanout", "No-op fan-out", fanout.measure, results.fanout),
    Measure("latency", "POST to first result", latency.measure, results.latency),
    Measure("driving", "car_street against a plain loop", driving.measure, results.driving),
    Measure("footprint", "Footprint", footprint.measure, results.footprint),
    Measure("scs", "The cache service against nginx", scs.measure, scs.section),
    Measure("staging", "Staging from S3 against rclone", staging.measure, staging.section),
    Measure("uploads", "Resumable uploads against tusd", uploads.measure, uploads.section),
    Measure("eviction", "Eviction", eviction.measure, eviction.section),
    Measure("ring", "Distribution of keys over nodes", ring.measure, ring.section),
    Measure("registering", "Registering a million files", registering.measure, registering.section),
    Measure("archive", "An archive of ten gigabytes", archive.measure, archive.section),
    Measure("cluster", "On a real Kubernetes", cluster.measure, cluster.section, apart=True),
    Measure("api_client", "Calls of the Kubernetes API", api_client.measure, api_client.section, apart=True),
)


def main(names: list[str]) -> int:
    """Run the named benchmarks; `results` alone only rewrites the page."""
    known = {measure.name for measure in MEASURES}
    if unknown := sorted(set(names) - known - {"results"}):
        print(f"unknown: {', '.join(unknown)}; known are {', '.join(sorted(known))} and results", file=sys.stderr)
        return 2
    for measure in MEASURES:
        if measure.name in names or (not names and not measure.apart):
            print(f"-- {measure.name}", flush=True)
            others = busy()
            keep(measure.name, measure.measure(), others)
        results.write((each.name, each.title, each.section) for each in MEASURES)
    print(f"written: {results.PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
