"""Report of the demo on a terminal: a sentence, a comparison with the baseline, and the worst results."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from windtunnel.descriptions import result_text
from windtunnel.visible_text import terminal_text, visible

#: Rows of the table: metric, title, display factor, decimals, unit.
ROWS = [
    ("score", "score (ds-1)", 1.0, 1, ""),
    ("at_fault", "collisions at fault", 100.0, 1, "%"),
    ("red_lights", "red lights run", 1.0, 2, "per drive"),
    ("min_ttc", "smallest time to collision", 1.0, 2, "s"),
    ("comfort", "comfort", 100.0, 1, "% of steps"),
    ("route_completion", "progress", 1.0, 1, "%"),
    ("co2", "CO2", 1.0, 0, "g/km"),
]


def sentence(simulation: Mapping[str, Any], comparison: Mapping[str, Any] | None) -> str:
    """Return a sentence with the model's score and its difference from the baseline."""
    metrics, tasks = simulation["metrics"], simulation["tasks"]
    score = metrics.get("score", {}).get("mean_penalised")
    text = f"{simulation['model']['name']} on {simulation['runtime']['name']} drove {tasks['done']} scenarios"
    if score is not None:
        text += f" and scored {score:.1f} of 100"
    if comparison and (compared := comparison["metrics"].get("score")):
        low, high = compared["low"], compared["high"]  # None for a single pair
        word = "not distinguishable from"
        interval = f"{compared['difference']:+.1f}"
        if low is not None and high is not None:
            word = "better than" if low > 0 else "worse than" if high < 0 else word
            interval += f", 95 % {low:+.1f} to {high:+.1f}"
        text += f": {word} the baseline {comparison['models'][1]} ({interval})"
    if tasks["failed"]:
        text += f"; {tasks['failed']} did not succeed"
    return visible(text + ".")


def table(
    simulation: Mapping[str, Any],
    summary: Mapping[str, Any],
    baseline: Mapping[str, Any],
    comparison: Mapping[str, Any],
) -> Table:
    """Return a table of the model's metrics, the baseline's metrics, and the paired differences."""
    report = Table(title=None, header_style="bold")
    report.add_column("")
    for name in (simulation["model"]["name"], comparison["models"][1], "difference (95 % interval)"):
        report.add_column(terminal_text(name), justify="right")
    for name, title, factor, decimals, unit in ROWS:
        compared = comparison["metrics"].get(name)
        if compared is None:
            continue
        number = f"{{:.{decimals}f}}"
        signed = f"{{:+.{decimals}f}}"
        difference = signed.format(compared["difference"] * factor)
        ends = [compared["low"], compared["high"]]  # None for a single pair
        interval = " .. ".join(signed.format(end * factor) for end in ends if end is not None) or "–"
        report.add_row(
            f"{title}{f' ({unit})' if unit else ''}",
            number.format(compared["mean"] * factor),
            number.format(compared["to"] * factor),
            f"{difference}  ({interval})",
        )
    for quantile in ("p50", "p99"):
        latencies = [_latency(run_summary, quantile) for run_summary in (summary, baseline)]
        report.add_row(f"inference {quantile} (ms)", *latencies, "")
    return report


def _latency(summary: Mapping[str, Any], quantile: str) -> str:
    seconds = summary.get("timing", {}).get(f"inference_{quantile}", {}).get("mean")
    return "" if seconds is None else f"{seconds * 1000:.3f}"


def worst_table(lines: list[dict[str, Any]]) -> Table:
    """Return a table of the worst results, a row each."""
    report = Table(title="Worst results", title_justify="left", header_style="bold")
    for name in ("task", "scenario", "score", "reason"):
        report.add_column(name, justify="right" if name in {"task", "score"} else "left")
    for line in lines:
        score = line["metrics"].get("score")
        scenario = str(line["scenario"].get("name", line["scenario"]["index"]))
        report.add_row(
            str(line["task"]),
            terminal_text(scenario),
            "" if score is None else f"{score:.1f}",
            terminal_text(result_text(line)),
        )
    return report
