"""Plots of docs/performance.md: SVG files in docs/performance/, drawn by Matplotlib from the stored figures.

`python -m benchmarks plots` draws them, in an environment of its own: the platform does not need Matplotlib.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import ratios
from benchmarks.figures import stored
from benchmarks.results import number

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
    figure, (axes,) = _panels(height, [1])
    return figure, axes


def _panels(height: float, rows: Sequence[int], *, shared: bool = True) -> tuple[Any, Any]:
    """Return a figure and its panels, one above the other; ``rows``: their relative heights, ``shared``: one x axis."""
    from matplotlib import pyplot

    pyplot.rcParams |= {"svg.hashsalt": "windtunnel", "font.size": 9, "axes.spines.top": False}
    pyplot.rcParams |= {"axes.spines.right": False, "svg.fonttype": "none", "font.family": "sans-serif"}
    figure, panels = pyplot.subplots(
        len(rows), figsize=(8, height), layout="constrained", sharex=shared, height_ratios=rows, squeeze=False
    )
    return figure, panels[:, 0]


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
    if "trusted" in figures:  # not in figures of 0.3.0
        bars.append(("platform, 1 worker, trusted", sum(figures["trusted"]["cpu"].values()) * 1e3, OURS))
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
    """Draw the last recorded ratios to other tools, more is better, a panel per benchmark with one logarithmic axis."""
    last: dict[str, dict[str, float]] = {}
    for line in ratios.lines():
        last.setdefault(line["benchmark"], {}).update(line["ratios"])
    if not last:
        return
    rows = [len(panel) for panel in last.values()]
    figure, panels = _panels(1.0 + 0.24 * sum(rows) + 0.3 * len(rows), rows)
    for axes, (benchmark, values) in zip(panels, last.items(), strict=True):
        drawn = axes.barh(
            list(values), list(values.values()), color=[OURS if r >= 1 else THEIRS for r in values.values()]
        )
        axes.bar_label(drawn, [number(ratio) for ratio in values.values()], padding=3)
        axes.axvline(1.0, color=PALE)
        axes.invert_yaxis()
        axes.set_title(benchmark, loc="left", fontweight="bold")
    panels[-1].set_xscale("log")
    panels[-1].set_xlabel("ratio of the platform to the other; more is better")
    _save(figure, "ratios")


def history() -> None:
    """Draw how ratios changed from commit to commit, each relative to its first value on one kind of machine."""
    series: dict[str, dict[tuple[Any, ...], list[tuple[str, float]]]] = {}
    for line in ratios.lines():
        of_benchmark = series.setdefault(line["benchmark"], {})
        for name, ratio in line["ratios"].items():
            of_benchmark.setdefault((name, ratios.kind_of_machine(line["machine"])), []).append((line["commit"], ratio))
    panels_of = {}
    for benchmark, of_benchmark in series.items():
        if lines := {key: points for key, points in of_benchmark.items() if len(points) > 1}:
            panels_of[benchmark] = lines
    if not panels_of:
        return
    figure, panels = _panels(2.2 * len(panels_of), [1] * len(panels_of), shared=False)
    for axes, (benchmark, lines) in zip(panels, panels_of.items(), strict=True):
        for (name, _), points in lines.items():
            commits, values = zip(*points, strict=True)
            axes.plot(
                [commit[:7] for commit in commits], [ratio / values[0] for ratio in values], marker=".", label=name
            )
        axes.axhline(1.0, color=PALE)
        axes.set_title(benchmark, loc="left", fontweight="bold")
        axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.supylabel("ratio, relative to its first value", fontsize=9)
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
