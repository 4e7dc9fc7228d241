"""Plots of docs/performance.md: SVG files in docs/performance/, drawn by Matplotlib from the stored figures.

`python -m benchmarks plots` draws them, in an environment of its own: the platform does not need Matplotlib.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import ratios
from benchmarks.figures import stored

FOLDER = Path("docs/performance")
PACKAGES = "requirements-plots.txt"
#: Colours that remain distinct for colour-blind readers (Okabe and Ito, 2008), on light and on dark pages.
OURS, THEIRS, PALE = "#0072b2", "#d55e00", "#999999"


def draw() -> None:
    """Draw every plot whose figures are stored, in a process of the plots' environment."""
    from benchmarks import peer_systems

    python = peer_systems.install(PACKAGES)
    environ = {"PATH": os.defpath, "PYTHONPATH": str(Path.cwd()), "HOME": os.environ.get("HOME", "/")}
    subprocess.run([str(python), "-m", "benchmarks.plots"], env=environ, check=True)


def _axes(height: float) -> tuple[Any, Any]:
    from matplotlib import pyplot

    pyplot.rcParams |= {"svg.hashsalt": "windtunnel", "font.size": 9, "axes.spines.top": False}
    pyplot.rcParams |= {"axes.spines.right": False, "svg.fonttype": "none", "font.family": "sans-serif"}
    return pyplot.subplots(figsize=(8, height), layout="constrained")


def _save(figure: Any, name: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    # without a date, so that equal figures give equal bytes
    figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None}, facecolor="white")
    print(f"drawn: {FOLDER / name}.svg")


def driving(figures: dict[str, Any]) -> None:
    """Draw the processor time of an episode of car_street: loops without the platform, and the platform."""
    bars = [(name, of_loop["cpu"] * 1e3, THEIRS) for name, of_loop in figures["loops"].items()]
    bars += [
        (f"platform, {workers} worker{'s' if workers != '1' else ''}", sum(of_workers["cpu"].values()) * 1e3, OURS)
        for workers, of_workers in figures["platform"].items()
    ]
    figure, axes = _axes(0.5 + 0.35 * len(bars))
    names, values, colours = zip(*bars, strict=True)
    drawn = axes.barh(names, values, color=colours)
    axes.bar_label(drawn, fmt="%.1f", padding=3)
    axes.invert_yaxis()
    axes.set_xlabel("processor time per episode, all processes (ms)")
    _save(figure, "car_street")


def latency(figures: dict[str, Any]) -> None:
    """Draw the time from a POST to its first result: median and 99th percentile of every kind."""
    rows = list(ratios.first_results(figures).items())
    figure, axes = _axes(0.6 + 0.3 * len(rows))
    for row, (_, tail) in enumerate(rows):
        axes.plot([tail["p50"] * 1e3, tail["p99"] * 1e3], [row, row], color=PALE, linewidth=2, zorder=1)
        axes.scatter([tail["p50"] * 1e3], [row], color=OURS, zorder=2, label="p50" if row == 0 else None)
        axes.scatter([tail["p99"] * 1e3], [row], color=THEIRS, zorder=2, label="p99" if row == 0 else None)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds from the POST")
    axes.legend(frameon=False)
    _save(figure, "latency")


def beside() -> None:
    """Draw the last recorded ratios to other tools, more is better, on a logarithmic axis."""
    last: dict[str, float] = {}
    for line in ratios.lines():
        last |= {f"{line['benchmark']}: {name}": ratio for name, ratio in line["ratios"].items()}
    if not last:
        return
    figure, axes = _axes(0.6 + 0.22 * len(last))
    drawn = axes.barh(
        list(last), list(last.values()), color=[OURS if ratio >= 1 else THEIRS for ratio in last.values()]
    )
    axes.bar_label(drawn, fmt="%.2g", padding=3)
    axes.axvline(1.0, color=PALE)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("ratio of the platform to the other; more is better")
    _save(figure, "ratios")


def history() -> None:
    """Draw how ratios changed from commit to commit, each relative to its first value on one kind of machine."""
    series: dict[tuple[Any, ...], list[tuple[str, float]]] = {}
    for line in ratios.lines():
        for name, ratio in line["ratios"].items():
            key = (f"{line['benchmark']}: {name}", ratios.kind_of_machine(line["machine"]))
            series.setdefault(key, []).append((line["commit"], ratio))
    long_enough = {key: points for key, points in series.items() if len(points) > 1}
    if not long_enough:
        return
    figure, axes = _axes(4)
    for (name, _), points in long_enough.items():
        axes.plot(
            [commit for commit, _ in points], [ratio / points[0][1] for _, ratio in points], marker=".", label=name
        )
    axes.axhline(1.0, color=PALE)
    axes.set_ylabel("ratio, relative to its first value")
    axes.legend(frameon=False, fontsize=6, ncols=2)
    _save(figure, "history")


def _figures() -> Iterator[tuple[Any, dict[str, Any]]]:
    for plot, name in ((driving, "driving"), (latency, "latency")):
        if (document := stored(name)) is not None:
            yield plot, document["figures"]


def main() -> int:
    """Draw all plots; called by `draw` in the environment that has Matplotlib."""
    for plot, figures in _figures():
        plot(figures)
    beside()
    history()
    return 0


if __name__ == "__main__":
    sys.exit(main())
