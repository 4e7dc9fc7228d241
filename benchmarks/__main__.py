"""`python -m benchmarks [measure ...]`: measure, keep, and write RESULTS.md; most measures when none is named."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks import (
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
    """What is measured, under which title, and how its figures are shown; ``apart``: only when it is named."""

    name: str
    title: str
    measure: Callable[[], dict[str, Any]]
    section: Callable[[dict[str, Any]], str]
    apart: bool = False


MEASURES = (
    Measure("fanout", "No-op fan-out", fanout.measure, results.fanout),
    Measure("latency", "POST to first result", latency.measure, results.latency),
    Measure("driving", "car_street against a bare loop", driving.measure, results.driving),
    Measure("footprint", "Footprint", footprint.measure, results.footprint),
    Measure("scs", "The cache service against nginx", scs.measure, scs.section),
    Measure("staging", "Staging from S3 against rclone", staging.measure, staging.section),
    Measure("uploads", "Resumable uploads against tusd", uploads.measure, uploads.section),
    Measure("eviction", "Eviction", eviction.measure, eviction.section),
    Measure("ring", "Which node keeps which key", ring.measure, ring.section),
    Measure("registering", "Registering a million files", registering.measure, registering.section),
    Measure("archive", "An archive of ten gigabytes", archive.measure, archive.section),
    Measure("cluster", "On a real Kubernetes", cluster.measure, cluster.section, apart=True),
)


def main(asked: list[str]) -> int:
    """Run what is asked for; `results` alone only writes the page again."""
    known = {one.name for one in MEASURES}
    if unknown := sorted(set(asked) - known - {"results"}):
        print(f"no measure {', '.join(unknown)}; there are {', '.join(sorted(known))} and results", file=sys.stderr)
        return 2
    for one in MEASURES:
        if one.name in asked or (not asked and not one.apart):
            print(f"-- {one.name}", flush=True)
            others = busy()
            keep(one.name, one.measure(), others)
        results.write((each.name, each.title, each.section) for each in MEASURES)
    print(f"written: {results.PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
