"""Exchange of halos: its bandwidth beside a plain copy of as many bytes, and what is gained by computing meanwhile."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.figures import spread
from benchmarks.results import number, spanned, table
from tests.mpi import prepared_mpi

RANKS = 2
#: Name of a row -> the program's arguments: cells, width of the halo, and the grid of ranks.
CASES: Mapping[str, Mapping[str, Any]] = {
    "2048 x 2048, rows": {"shape": [2048, 2048], "width": 1, "grid": [2, 1]},
    "2048 x 2048, columns": {"shape": [2048, 2048], "width": 1, "grid": [1, 2]},
    "128 x 128 x 128, planes": {"shape": [128, 128, 128], "width": 1, "grid": [2, 1, 1]},
    "128 x 128 x 128, planes, width 3": {"shape": [128, 128, 128], "width": 3, "grid": [2, 1, 1]},
    "128 x 128 x 128, last axis": {"shape": [128, 128, 128], "width": 1, "grid": [1, 1, 2]},
    "32 x 32 x 32, planes": {"shape": [32, 32, 32], "width": 1, "grid": [2, 1, 1]},
}
EXCHANGE_TEXT = """{ranks} ranks of the package `halo` (docs/halo.md) on this machine, periodic, by MPICH in shared
memory, where its processes copy each cell themselves: twice, and both ranks at once. *Of a copy*: the rate of the
exchange, in bytes that a rank receives in messages, divided by that of `numpy.copyto` of as many bytes. *Packed to it*:
seconds of an exchange by buffers that numpy packs and unpacks, to those of this one.

"""
STEP_TEXT = """A step is a stencil of the halo's width along each axis. *Overlapped*: the interior is computed between
`begin` and `finish`, then the rim. *To the longer*: its seconds to those of the computation or the exchange, whichever
is longer; 1 is all that an overlap can gain. *To the sum*: to those of both. *In turn to it*: exchange, then compute,
to it. *Divided to whole*: to compute interior and rim, to all cells at once, both without an exchange. Ratios are those
of a round, in which all parts follow each other.

"""
Seconds = Mapping[str, float]
#: Ratios of the seconds of one round, each part of which follows the others.
RATIOS: Mapping[str, Callable[[Seconds], float]] = {
    "bandwidth": lambda times: times["copy"] / times["exchange"],
    "packed": lambda times: times["packed_exchange"] / times["exchange"],
    "longer": lambda times: times["overlapped_step"] / max(times["computation"], times["exchange"]),
    "sum": lambda times: times["overlapped_step"] / (times["computation"] + times["exchange"]),
    "in_turn": lambda times: times["step_in_turn"] / times["overlapped_step"],
    "division": lambda times: times["parts"] / times["computation"],
}


def measure(cases: Mapping[str, Mapping[str, Any]] = CASES, ranks: int = RANKS) -> dict[str, Any]:
    """Measure each case by ranks of its own."""
    mpi, figures = prepared_mpi(), {}
    for name, case in cases.items():
        printed = json.loads(mpi.python(ranks, "-m", "benchmarks.halo_steps", json.dumps(case)))
        parts = printed["seconds"]
        rounds = [dict(zip(parts, times, strict=True)) for times in zip(*parts.values(), strict=True)]
        figures[name] = {
            "bytes": printed["bytes"],
            "messages": printed["messages"],
            "seconds": {part: spread(times) for part, times in parts.items()},
            "ratios": {ratio: spread(map(of_round, rounds)) for ratio, of_round in RATIOS.items()},
        }
        print(f"{name}: {figures[name]['ratios']}", flush=True)
    return {"ranks": ranks, "cases": figures}


def section(figures: dict[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    exchanges, steps = [], []
    for name, case in figures["cases"].items():
        parts, ratios = case["seconds"], case["ratios"]
        exchanges.append(
            [
                name,
                f"{case['messages']}, {number(case['bytes'] / 1024)} KiB",
                spanned(parts["exchange"], microseconds),
                number(case["bytes"] / parts["exchange"]["median"] / 2**20),
                spanned(ratios["bandwidth"]),
                spanned(ratios["packed"]),
            ]
        )
        steps.append(
            [
                name,
                spanned(parts["overlapped_step"], microseconds),
                *(spanned(ratios[ratio]) for ratio in ("longer", "sum", "in_turn", "division")),
            ]
        )
    exchange_head = ("cells of doubles", "received", "exchange", "MiB/s", "of a copy", "packed to it")
    step_head = ("a step", "overlapped", "to the longer", "to the sum", "in turn to it", "divided to whole")
    return (
        EXCHANGE_TEXT.format(ranks=figures["ranks"])
        + table(exchange_head, exchanges)
        + "\n\n"
        + STEP_TEXT
        + table(step_head, steps)
    )


def microseconds(seconds: float) -> str:
    """Format seconds as microseconds."""
    return f"{number(seconds * 1e6)} µs"
