"""Page of the metrics: docs/reference/metrics.md, from the collectors of each role; `make reference` writes it."""

from collections.abc import Iterable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from api.metrics import PlatformCollector, RequestMetrics
from datasets.scs.metrics import FAMILIES
from server.job_metrics import JobsCollector
from workers.dispatcher_metrics import DispatcherMetrics
from workers.executors.kubernetes.metrics import ClusterMetrics

HEAD = """# Metrics

Generated from the code by `make reference`. Every role serves Prometheus' text format. No label has ids or
names of users as values, so the number of time series does not grow with use. [What to alert
on](../operations/monitoring.md) has rules and a dashboard.

A counter's samples end in `_total`; a histogram's in `_bucket` (with the label `le`), `_sum` and `_count`.
"""
TABLE = "| metric | type | labels | meaning |\n|---|---|---|---|\n"
Row = tuple[str, str, Sequence[str], str]


def sections() -> dict[str, list[Row]]:
    """Return the metrics of each role, by the heading of their section."""
    return {
        "API: `/metrics` on `WINDTUNNEL_PORT`": [
            *_families(PlatformCollector.describe()),
            *_instruments(RequestMetrics(CollectorRegistry())),
        ],
        "Dispatcher: `/metrics` on `WINDTUNNEL_METRICS_PORT`": _instruments(DispatcherMetrics()),
        "Kubernetes executors, on the dispatcher's port": _instruments(ClusterMetrics("")),
        "Jobs: `/metrics` on `WINDTUNNEL_JOBS_METRICS_PORT`": _families(JobsCollector(list, ()).collect()),
        "Cache service: `/metrics` on its own port": [
            (name, kind, labels, text) for name, (kind, labels, text) in FAMILIES.items()
        ],
    }


def _families(families: Iterable[Any]) -> list[Row]:
    """Return rows for the families that a collector makes at each scrape."""
    return [_row(family.name, family.type, family._labelnames, family.documentation) for family in families]


def _instruments(owner: object) -> list[Row]:
    """Return rows for the counters, gauges and histograms that are attributes of an object."""
    instruments: list[Any] = [value for value in vars(owner).values() if isinstance(value, MetricWrapperBase)]
    return [
        _row(family.name, family.type, instrument._labelnames, family.documentation)
        for instrument in instruments
        if instrument._is_parent() or not instrument._labelnames
        for family in instrument.describe()
    ]


def _row(name: str, kind: str, labels: Sequence[str], text: str) -> Row:
    return (f"{name}_total" if kind == "counter" else name), kind, labels, text


def page() -> str:
    """Return the page: a section for each role with a row for each metric."""
    parts = [HEAD]
    for heading, rows in sections().items():
        lines = "".join(
            f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {text} |\n"
            for name, kind, labels, text in rows
        )
        parts.append(f"\n## {heading}\n\n{TABLE}{lines}")
    return "".join(parts)
