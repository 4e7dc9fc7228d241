"""Scaling of a stencil on ranks: the dataset heat through the platform, strong and weak, by the size of its gang."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import httpx

from benchmarks.figures import spread
from benchmarks.platform_process import PlatformProcess
from benchmarks.results import number, spanned, table

SIZES, ROUNDS = (1, 2, 4), 5
#: What is scaled -> the parameters: the box is the same for all sizes, or has as many cells for each rank.
CASES = {
    "strong": {"grid": 128, "steps": 60, "weak": False},
    "weak": {"grid": 96, "steps": 60, "weak": True},
}
TEXT = """The dataset `heat` through the platform, on {sizes} ranks in turns; its rate is in millions of cells updated a
second of the slowest rank. *Strong*: a box of 128 x 128 x 128 cells for all sizes. *Weak*: 96 x 96 x 96 cells for
each rank. *Of one rank*: the rate to that of one rank in the same round, over the ranks. This machine has {cores}
processors.

"""


def measure() -> dict[str, Any]:
    """Run each case on each number of ranks, in rounds."""
    rates: dict[str, dict[str, list[float]]] = {case: {str(size): [] for size in SIZES} for case in CASES}
    with tempfile.TemporaryDirectory(prefix="windtunnel-bench-") as name:
        process = PlatformProcess(Path(name))
        try:
            for turn in range(-1, ROUNDS):  # the first warms caches
                for case, params in CASES.items():
                    for size in SIZES:
                        rate = _rate(process, params, size)
                        if turn >= 0:
                            rates[case][str(size)].append(rate)
        finally:
            process.stop()
    figures: dict[str, Any] = {"cores": os.cpu_count()}
    for case, by_size in rates.items():
        figures[case] = {}
        for size, values in by_size.items():
            shares = [value / one / int(size) for value, one in zip(values, by_size["1"], strict=True)]
            figures[case][size] = {"rate": spread(values), "share": spread(shares)}
        print(f"{case}: {figures[case]}", flush=True)
    return figures


def _rate(process: PlatformProcess, params: dict[str, Any], size: int) -> float:
    """Return the cells that a simulation has updated in a second."""
    fields = {"dataset": "heat", "params": json.dumps(params), "gang": json.dumps({"size": size})}
    url = f"http://127.0.0.1:{process.port}/v1/simulations"
    files = {name: (None, text) for name, text in fields.items()}
    accepted = httpx.post(url, files=files).raise_for_status().json()
    client = process.connect()
    client.until(accepted["id"])
    (line,) = client.open("GET", f"/v1/simulations/{accepted['id']}/results").read().splitlines()
    client.close()
    result = json.loads(line)
    if result["status"] != "ok":
        raise RuntimeError(f"a task failed: {result}")
    return float(result["metrics"]["updates_per_second"])


def section(figures: dict[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    rows = [
        [
            case,
            size,
            spanned(of_size["rate"], lambda rate: number(rate / 1e6)),
            spanned(of_size["share"], lambda share: f"{share:.2f}"),
        ]
        for case in CASES
        for size, of_size in figures[case].items()
    ]
    sizes = ", ".join(map(str, SIZES))
    return TEXT.format(sizes=sizes, cores=figures["cores"]) + table(["", "ranks", "rate", "of one rank"], rows)
