"""Grafana dashboard: helm/files/grafana-dashboard.json, from a table of panels; `make reference` writes it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

TITLE = "Windtunnel"
#: Columns of Grafana's grid, columns of a panel and rows of a panel.
GRID, WIDE, HIGH = 24, 8, 7
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
#: Selects the namespaces chosen on the dashboard; outside of Kubernetes the label is absent and `All` matches that too.
PICK = 'namespace=~"$namespace"'


@dataclass(frozen=True, slots=True)
class Panel:
    """A plot or a number: its expressions with their legends, and the unit of Grafana that their values have."""

    title: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    kind: str = "timeseries"
    stacked: bool = False


ROWS: Sequence[tuple[str, Sequence[Panel]]] = (
    (
        "Health",
        (
            Panel("Checks of /readyz", [(f"min by (check) (windtunnel_check_ok{{{PICK}}})", "{{check}}")], kind="stat"),
            Panel(
                "Executors that answer",
                [(f"min by (executor) (windtunnel_executor_healthy{{{PICK}}})", "{{executor}}")],
                kind="stat",
            ),
            Panel("Dispatchers that lead", [(f"sum(windtunnel_dispatcher_leads{{{PICK}}})", "leads")], kind="stat"),
        ),
    ),
    (
        "Simulations",
        (
            Panel(
                "Simulations by state",
                [(f'max by (state) (windtunnel_simulations{{{PICK}, state!~"succeeded|cancelled"}})', "{{state}}")],
            ),
            Panel(
                "Ended per hour",
                [
                    (
                        f"max by (state) (delta(windtunnel_simulations{{{PICK},"
                        ' state=~"succeeded|failed|errored|cancelled"}[1h]))',
                        "{{state}}",
                    )
                ],
            ),
            Panel(
                "Waiting",
                [
                    (f"max(windtunnel_waiting_simulations{{{PICK}}})", "simulations"),
                    (f"max(windtunnel_waiting_tasks{{{PICK}}})", "tasks"),
                ],
            ),
            Panel(
                "Oldest that waits",
                [(f"max(windtunnel_waiting_oldest_seconds{{{PICK}}})", "oldest")],
                unit="s",
            ),
            Panel(
                "Workers in use",
                [
                    (f"max by (executor) (windtunnel_executor_in_use{{{PICK}}})", "{{executor}}: in use"),
                    (f"max by (executor) (windtunnel_executor_workers{{{PICK}}})", "{{executor}}: most"),
                ],
            ),
            Panel(
                "Passes of the dispatcher",
                [
                    (
                        f"sum by (outcome) (rate(windtunnel_dispatcher_passes_total{{{PICK}}}[$__rate_interval]))",
                        "{{outcome}}",
                    )
                ],
                unit="ops",
            ),
        ),
    ),
    (
        "API",
        (
            Panel(
                "Requests by status",
                [
                    (
                        f"sum by (status) (rate(windtunnel_http_requests_total{{{PICK}}}[$__rate_interval]))",
                        "{{status}}",
                    )
                ],
                unit="reqps",
                stacked=True,
            ),
            Panel(
                "Seconds until the head of the response",
                [
                    (
                        f"histogram_quantile({share}, sum by (le) (rate("
                        f"windtunnel_http_request_seconds_bucket{{{PICK}}}[$__rate_interval])))",
                        name,
                    )
                    for share, name in ((0.5, "median"), (0.99, "99 %"))
                ],
                unit="s",
            ),
            Panel("Open streams", [(f"sum(windtunnel_streams{{{PICK}}})", "streams")]),
        ),
    ),
    (
        "Storage",
        (
            Panel(
                "Free bytes of disks, and their floors",
                [
                    (f"min by (holds) (windtunnel_disk_free_bytes{{{PICK}}})", "{{holds}}: free"),
                    (f"max by (holds) (windtunnel_disk_floor_bytes{{{PICK}}})", "{{holds}}: floor"),
                ],
                unit="bytes",
            ),
            Panel(
                "Hit rate of the cache service",
                [
                    (
                        f"sum by (bucket) (rate(scs_hits_total{{{PICK}}}[$__rate_interval])) / (sum by (bucket) (rate("
                        f"scs_hits_total{{{PICK}}}[$__rate_interval])) + sum by (bucket) (rate("
                        f"scs_misses_total{{{PICK}}}[$__rate_interval])))",
                        "{{bucket}}",
                    )
                ],
                unit="percentunit",
            ),
            Panel(
                "Bytes of the cache service",
                [
                    (f"sum by (bucket) (scs_used_bytes{{{PICK}}})", "{{bucket}}: used"),
                    (f"sum by (bucket) (scs_quota_bytes{{{PICK}}})", "{{bucket}}: quota"),
                ],
                unit="bytes",
            ),
        ),
    ),
    (
        "Jobs",
        (
            Panel("Queued", [(f'max by (kind) (windtunnel_jobs{{{PICK}, state="queued"}})', "{{kind}}")]),
            Panel("Failed", [(f'max by (kind) (windtunnel_jobs{{{PICK}, state="failed"}})', "{{kind}}")]),
            Panel(
                "Seconds of an attempt",
                [
                    (
                        f"sum by (kind) (rate(windtunnel_job_seconds_total{{{PICK}}}[$__rate_interval]))"
                        f" / sum by (kind) (rate(windtunnel_job_attempts_total{{{PICK}}}[$__rate_interval]))",
                        "{{kind}}",
                    )
                ],
                unit="s",
            ),
        ),
    ),
    (
        "Webhooks",
        (
            Panel(
                "Requests to webhooks per hour",
                [(f"max by (outcome) (delta(windtunnel_webhook_requests{{{PICK}}}[1h]))", "{{outcome}}")],
            ),
            Panel(
                "Oldest event that is due",
                [(f"max(windtunnel_webhook_oldest_due_seconds{{{PICK}}})", "seconds")],
                unit="s",
            ),
        ),
    ),
    (
        "Clusters",
        (
            Panel(
                "Calls of API servers by outcome",
                [
                    (
                        f"sum by (context, outcome) (rate(windtunnel_cluster_calls_total{{{PICK}}}[$__rate_interval]))",
                        "{{context}}: {{outcome}}",
                    )
                ],
                unit="reqps",
            ),
            Panel(
                "Launches by phase",
                [(f"max by (context, phase) (windtunnel_cluster_launches{{{PICK}}})", "{{context}}: {{phase}}")],
            ),
            Panel(
                "Warm pods",
                [(f"max by (context, state) (windtunnel_cluster_waiting{{{PICK}}})", "{{context}}: {{state}}")],
            ),
        ),
    ),
)


def expressions() -> list[str]:
    """Return every expression of the dashboard."""
    return [query for _, panels in ROWS for panel in panels for query, _ in panel.queries]


def page() -> str:
    """Return the dashboard as JSON, as Grafana imports and provisions it."""
    drawn: list[dict[str, Any]] = []
    y = 0
    for title, panels in ROWS:
        drawn.append(
            {
                "type": "row",
                "id": len(drawn) + 1,
                "title": title,
                "collapsed": False,
                "panels": [],
                "gridPos": {"h": 1, "w": GRID, "x": 0, "y": y},
            }
        )
        y += 1
        for index, panel in enumerate(panels):
            line, column = divmod(index, GRID // WIDE)
            position = {"h": HIGH, "w": WIDE, "x": column * WIDE, "y": y + line * HIGH}
            drawn.append(_panel(panel, len(drawn) + 1, position))
        y += HIGH * -(-len(panels) // (GRID // WIDE))
    dashboard = {
        "uid": "windtunnel",
        "title": TITLE,
        "tags": ["windtunnel"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": drawn,
    }
    return json.dumps(dashboard, indent=1, ensure_ascii=False) + "\n"


def _variables() -> list[dict[str, Any]]:
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {
            "name": "namespace",
            "label": "Namespace",
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": "label_values(windtunnel_check_ok, namespace)", "refId": "namespace"},
            "refresh": 2,
            "includeAll": True,
            "allValue": ".*",
            "multi": True,
            "current": {"text": "All", "value": "$__all"},
        },
    ]


def _panel(panel: Panel, number: int, position: dict[str, int]) -> dict[str, Any]:
    custom = {"stacking": {"mode": "normal" if panel.stacked else "none"}, "fillOpacity": 20 * panel.stacked}
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.kind == "timeseries":
        defaults["custom"] = custom
    else:
        steps = [{"color": "red", "value": None}, {"color": "green", "value": 1}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    return {
        "type": panel.kind,
        "id": number,
        "title": panel.title,
        "datasource": SOURCE,
        "gridPos": position,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": query, "legendFormat": legend}
            for index, (query, legend) in enumerate(panel.queries)
        ],
    }
