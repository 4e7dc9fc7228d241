"""`python -m benchmarks [measure ...]`: measure, keep, and write RESULTS.md; all measures when none is named."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks import driving, fanout, footprint, latency, results
from benchmarks.figures import busy, keep

MEASURES: Mapping[str, Callable[[], dict[str, Any]]] = {
    "fanout": fanout.measure,
    "latency": latency.measure,
    "driving": driving.measure,
    "footprint": footprint.measure,
}


def main(asked: list[str]) -> int:
    """Run what is asked for; `results` alone only writes the page again."""
    if unknown := sorted(set(asked) - MEASURES.keys() - {"results"}):
        print(f"no measure {', '.join(unknown)}; there are {', '.join(MEASURES)} and results", file=sys.stderr)
        return 2
    for name in asked or MEASURES:
        if name in MEASURES:
            print(f"-- {name}", flush=True)
            others = busy()
            keep(name, MEASURES[name](), others)
        results.write()
    print(f"written: {results.PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
