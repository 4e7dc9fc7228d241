"""Figures of benchmarks: spread, percentiles, a description of the machine, and storage until RESULTS.md is written."""

import json
import math
import os
import platform
import re
import statistics
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FOLDER = Path("var/bench")


def spread(values: Iterable[float]) -> dict[str, float]:
    """Return minimum, median and maximum, so that a single fast run is not reported as the figure."""
    ordered = sorted(values)
    return {"min": ordered[0], "median": statistics.median(ordered), "max": ordered[-1], "runs": len(ordered)}


def percentile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile, without interpolation, which would understate a tail."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def tail(values: Sequence[float]) -> dict[str, float]:
    """Return the percentiles reported for latencies."""
    return {
        "p50": percentile(values, 0.50),
        "p90": percentile(values, 0.90),
        "p99": percentile(values, 0.99),
        "max": max(values),
        "runs": len(values),
    }


def machine() -> dict[str, Any]:
    """Describe the machine: properties on which figures depend."""
    processor = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    return {
        "processor": processor[1] if processor else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(memory[1]) / 2**20) if memory else None,
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def busy(seconds: float = 2.0) -> float:
    """Return the share of the processors that other processes use now, from 0 to 1."""

    def times() -> tuple[int, int]:
        counters = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(counters), counters[3] + counters[4]  # idle, and waiting for a disk

    total, idle = times()
    time.sleep(seconds)
    later, later_idle = times()
    return 1 - (later_idle - idle) / max(1, later - total)


def store(measure: str, figures: dict[str, Any], load: float) -> None:
    """Store a benchmark's figures with machine, date, and the load by other processes before its start."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    document = {"measure": measure, "at": datetime.now(UTC).isoformat(timespec="seconds"), "others": load}
    document |= {"machine": machine(), "figures": figures}
    (FOLDER / f"{measure}.json").write_text(json.dumps(document, indent=1) + "\n")


def stored(measure: str) -> dict[str, Any] | None:
    """Return a benchmark's figures of its last run on this machine."""
    path = FOLDER / f"{measure}.json"
    document: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return document
