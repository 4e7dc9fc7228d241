"""Ratios of benchmarks: the platform against a peer of the same run, recorded by commit and machine.

A ratio depends less on the machine and its load than a rate does. `history.ndjson` has a line for each recorded run of
a benchmark; `make bench-check` compares new runs with the last line of an equal machine.
"""

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HISTORY = Path("benchmarks/history.ndjson")
#: A ratio that is worse by this share is reported.
TOLERANCE = 0.10
Figures = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """A ratio now and as it was recorded, at which commit."""

    name: str
    recorded: float
    now: float
    commit: str

    @property
    def change(self) -> float:
        """Relative change: -0.1 is a tenth worse. Of every ratio more is better."""
        return self.now / self.recorded - 1

    @property
    def is_worse(self) -> bool:
        """Whether it is worse by more than the tolerance."""
        return self.now < self.recorded * (1 - TOLERANCE)


def _fanout(figures: Figures) -> Iterator[tuple[str, float]]:
    for batch, rates in figures["batches"].items():
        setting = "default" if batch == "1" else f"batch {batch}"
        for peer, rate in figures["peers"].items():
            yield f"{setting} to {peer}", rates["done"]["median"] / rate["median"]


def _latency(figures: Figures) -> Iterator[tuple[str, float]]:
    job = figures["ray_job"]["p50"]
    for name, seconds in first_results(figures).items():
        yield f"{name}: first result, Ray job to it", job / seconds["p50"]


def first_results(figures: Figures) -> dict[str, Mapping[str, float]]:
    """Return the percentiles of the first result of each kind of submission: with pauses, in a row and at once."""
    rushes = figures["rushes"]
    found: dict[str, Mapping[str, float]] = {}
    for kind, seconds in figures["kinds"].items():
        found[f"{kind}, with pauses"] = seconds["first"]
        found[f"{kind}, {rushes['row']} in a row"] = rushes["kinds"][kind]["row"]["first"]
        found[f"{kind}, {rushes['callers']} callers at once"] = rushes["kinds"][kind]["at_once"]["first"]
    return found


def _driving(figures: Figures) -> Iterator[tuple[str, float]]:
    for name, of_loop in figures["loops"].items():
        yield f"platform to {name}", of_loop["ratio"]["median"]
        if "trusted" in of_loop:  # not in figures of 0.3.0
            yield f"platform, trusted, to {name}", of_loop["trusted"]["median"]
    sumo, *_ = figures["loops"].values()
    yield "SUMO's share of the processor time", sumo["cpu"] / sum(figures["platform"]["1"]["cpu"].values())


def _episodes(figures: Figures) -> Iterator[tuple[str, float]]:
    for dataset, of_dataset in figures["datasets"].items():
        for peer, rate in of_dataset["peers"].items():
            yield f"{dataset} to {peer}", rate["ratio"]["median"]
            if "trusted" in rate:
                yield f"{dataset}, trusted, to {peer}", rate["trusted"]["median"]


#: By benchmark: its ratios, each with a name. Of every ratio more is better.
RATIOS: Mapping[str, Callable[[Figures], Iterator[tuple[str, float]]]] = {
    "fanout": _fanout,
    "latency": _latency,
    "driving": _driving,
    "episodes": _episodes,
}


def of(benchmark: str, figures: Figures) -> dict[str, float]:
    """Return the ratios of a benchmark's figures by name; none of a benchmark without a peer."""
    ratios = RATIOS.get(benchmark)
    return dict(ratios(figures)) if ratios is not None else {}


def kind_of_machine(machine: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what has to be equal of two machines, so that their ratios may be compared."""
    return tuple(machine[name] for name in ("processor", "cores", "memory_gib", "python"))


def lines(history: Path = HISTORY) -> list[dict[str, Any]]:
    """Return the recorded runs, oldest first."""
    return [json.loads(line) for line in history.read_text().splitlines()] if history.exists() else []


def record(benchmark: str, figures: Figures, machine: Mapping[str, Any], history: Path = HISTORY) -> None:
    """Append a run's ratios, if the benchmark has any."""
    if not (ratios := of(benchmark, figures)):
        return
    line = {"benchmark": benchmark, "commit": commit(), "at": datetime.now(UTC).isoformat(timespec="seconds")}
    rounded = {name: float(f"{ratio:.4g}") for name, ratio in ratios.items()}
    with history.open("a") as file:
        file.write(json.dumps(line | {"machine": dict(machine), "ratios": rounded}) + "\n")


def compared(
    benchmark: str, ratios: Mapping[str, float], machine: Mapping[str, Any], recorded: list[dict[str, Any]]
) -> list[Change]:
    """Compare with the last recorded run of the benchmark on an equal machine; a ratio that it lacks is left out."""
    runs = [
        run
        for run in recorded
        if run["benchmark"] == benchmark and kind_of_machine(run["machine"]) == kind_of_machine(machine)
    ]
    if not runs:
        return []
    last = runs[-1]
    return [
        Change(name, last["ratios"][name], now, last["commit"])
        for name, now in ratios.items()
        if last["ratios"].get(name, 0.0) > 0
    ]


def commit() -> str:
    """Return the commit of the working tree; with a "+" if files differ from it."""
    name = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True).stdout
    status = ["git", "status", "--porcelain", "--untracked-files=no", "--", ":!benchmarks"]
    changed = subprocess.run(status, capture_output=True, text=True, check=True).stdout
    return name.strip() + ("+" if changed.strip() else "")
