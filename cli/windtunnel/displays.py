"""Displays of records in notebooks: HTML of a few rows, with every text escaped."""

from collections.abc import Iterable
from html import escape
from typing import Any

from windtunnel.answers import answer_lines
from windtunnel.figures import number, percent
from windtunnel.records import Dataset, Record, Simulation

STYLE = "font-variant-numeric:tabular-nums"
#: Metrics of a simulation that are listed; the others are in ``metrics``.
MOST_METRICS = 12


def record_html(record: Record) -> str:
    """Return the display of a record."""
    if isinstance(record, Simulation):
        return simulation_html(record)
    if isinstance(record, Dataset):
        return table_html(
            f"{record.name}@{record.version}: {record.title}",
            ("metric", "unit", "better", "formula"),
            (
                (metric.title or metric.name, metric.unit, metric.better or "", metric.formula)
                for metric in record.metrics
            ),
        )
    members = {name: getattr(record, name) for name in record.__struct_fields__ if name != "raw"}
    rows = ((name, value) for name, value in members.items() if value not in (None, {}, []))
    return table_html(type(record).__name__, ("", ""), rows)


def simulation_html(simulation: Simulation) -> str:
    """Return the display of a simulation: its state, and the statistics of its first metrics."""
    tasks = simulation.tasks
    title = (
        f"{simulation.model.name} on {simulation.dataset.name}: {simulation.state},"
        f" {tasks.done} of {tasks.total} tasks ({percent(tasks.done, tasks.total)}), {tasks.failed} not ok"
    )
    if simulation.answer is not None:
        title = ". ".join([title, *answer_lines(simulation.answer)])
    rows = [
        (
            name,
            number(metric.mean),
            f"{number(metric.low)} to {number(metric.high)}",
            number(metric.min),
            number(metric.max),
        )
        for name, metric in list(simulation.metrics.items())[:MOST_METRICS]
    ]
    return table_html(title, ("metric", "mean of ok tasks", "95 % interval", "min", "max"), rows)


def table_html(title: str, head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return a table with a caption."""
    header = "".join(f"<th>{escape(text)}</th>" for text in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f'<table style="{STYLE}"><caption>{escape(title)}</caption><tr>{header}</tr>{body}</table>'
