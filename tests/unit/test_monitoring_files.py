"""Prometheus rules and Grafana dashboard: they name metrics that exist, and every alert says what to do."""

import json
import re
from pathlib import Path

import yaml

from scripts import dashboard, metrics_page

RULES = Path("helm/files/prometheus-rules.yaml")
ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
PAGE = Path("docs/operations/monitoring.md").read_text()
METRIC = re.compile(r"\b(?:windtunnel|scs)_\w+")
#: Metrics of the reference page, by name, with their labels.
METRICS = {
    f"{name}{suffix}": {*labels, *(("le",) if suffix == "_bucket" else ())}
    for rows in metrics_page.sections().values()
    for name, kind, labels, _ in rows
    for suffix in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",))
}
#: Labels that Prometheus adds when it scrapes.
TARGET = {"namespace", "pod", "instance", "job"}


def names(expressions: list[str]) -> set[str]:
    return {name for expression in expressions for name in METRIC.findall(expression)}


def test_rules_and_dashboard_name_metrics_of_the_reference_only() -> None:
    used = names([alert["expr"] for alert in ALERTS]), names(dashboard.expressions())
    for found in used:
        assert len(found) > 10 and found <= METRICS.keys()


def test_every_metric_of_the_reference_but_those_of_tokens_and_scrubs_is_watched() -> None:
    """A metric that neither a rule nor the dashboard uses is listed here with intent."""
    used = names([alert["expr"] for alert in ALERTS] + dashboard.expressions())
    unused = {re.sub("_(bucket|sum|count)$", "", name) for name in METRICS.keys() - used}
    assert {name for name in unused if name.startswith("windtunnel_")} == {
        "windtunnel_http_request_seconds",  # its sum and count; the dashboard has the buckets
        "windtunnel_cluster_call_seconds",
    }


def test_selectors_name_labels_that_the_metric_has() -> None:
    for expression in [alert["expr"] for alert in ALERTS] + dashboard.expressions():
        for name, selector in re.findall(r"\b((?:windtunnel|scs)_\w+)\{([^}]*)\}", expression):
            labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))
            assert labels <= METRICS[name] | TARGET, expression


def test_every_alert_has_a_severity_a_summary_and_a_runbook_and_is_in_the_operator_s_page() -> None:
    for alert in ALERTS:
        assert alert["labels"]["severity"] in {"critical", "warning"}
        assert alert["annotations"]["summary"].endswith(".") and len(alert["annotations"]["runbook"]) > 50
        assert f"`{alert['alert']}`" in PAGE
    assert len({alert["alert"] for alert in ALERTS}) == len(ALERTS)


def test_panels_of_the_dashboard_fill_the_grid_without_overlaps() -> None:
    panels = json.loads(dashboard.page())["panels"]
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        covered = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not covered & cells and place["x"] + place["w"] <= dashboard.GRID
        cells |= covered
    assert len({panel["id"] for panel in panels}) == len(panels)
