"""Metrics of an ended simulation as an MLflow run shows them: names, values and one tag per simulation."""

import math
import re
from collections.abc import Mapping

import msgspec

#: Figures of each metric that are logged.
FIGURES = ("mean", "low", "high", "p50", "mean_penalised")
#: Most metrics that one request to MLflow may have.
MOST = 900
_ALLOWED = re.compile(r"[^A-Za-z0-9_\-. :/]")


class _LoggedSummary(msgspec.Struct):
    """The members of a summary that are logged."""

    tasks: Mapping[str, int]
    metrics: Mapping[str, Mapping[str, object]]


def metrics_of(dataset: str, summary: Mapping[str, object]) -> dict[str, float]:
    """Return the metrics of a summary by their names in MLflow: `windtunnel/DATASET/METRIC_FIGURE`."""
    prefix = f"windtunnel/{dataset}"
    logged = msgspec.convert(summary, _LoggedSummary)
    values: dict[str, object] = {f"{prefix}/tasks_{name}": value for name, value in logged.tasks.items()}
    for metric, figures in logged.metrics.items():
        values |= {f"{prefix}/{metric}_{figure}": figures.get(figure) for figure in FIGURES}
    finite = {name: value for name, value in values.items() if isinstance(value, int | float) and math.isfinite(value)}
    return {_ALLOWED.sub("_", name)[:250]: float(value) for name, value in list(finite.items())[:MOST]}


def tags_of(id: str, state: str, address: str, *, trusted: bool) -> dict[str, str]:
    """Return the tag of a simulation: its state and address. Each has its own, so that none replaces another."""
    label = " trusted" if trusted else ""
    return {f"windtunnel.simulation.{id}": f"{state}{label} {address}/v1/simulations/{id}"}
