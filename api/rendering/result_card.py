"""Card of a result: metrics with their ranges, scenario and error of a task that has no trace of its actions."""

from collections.abc import Iterable, Mapping
from textwrap import wrap
from typing import Any

from api.rendering.svg_page import ACCENT, ALARM, HEIGHT, INK, PANEL, WIDTH, figure, page, printable

#: Metrics, and lines of an error, that are drawn.
METRICS, LINES = 12, 5
TOP, ROW = 72, 30


def svg(replay: Mapping[str, Any]) -> str:
    """Return the card of a replay whose scene is its result."""
    result = replay["result"]
    declared = {metric["name"]: metric for metric in replay["scene"].get("metrics", ())}
    values = {name: value for name, value in result["metrics"].items() if value is not None}
    body = [*_metrics(values, declared), *_footer(result, len(values))]
    return page(replay.get("title") or "task", replay.get("outcome") or "", good=result["status"] == "ok", body=body)


def _metrics(values: Mapping[str, Any], declared: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    for row, (name, value) in enumerate(list(values.items())[:METRICS]):
        metric = declared.get(name, {})
        y = TOP + row * ROW
        unit = f" {printable(metric['unit'], 16)}" if metric.get("unit") else ""
        text = f"{figure(value)}{unit}" if _is_number(value) else printable(value, 40)
        yield f'<rect x="24" y="{y}" width="{WIDTH - 48}" height="{ROW - 4}" rx="6" fill="{PANEL}"/>'
        title = printable(metric.get("title") or name, 40)
        yield f'<text x="36" y="{y + 18}" font-size="14" fill="{INK}">{title}</text>'
        attributes = f'font-size="14" font-weight="700" fill="{INK}" text-anchor="end"'
        yield f'<text x="520" y="{y + 18}" {attributes}>{text}</text>'
        low, high = metric.get("low"), metric.get("high")
        if _is_number(value) and low is not None and high is not None and high > low:
            share = (min(max(value, low), high) - low) / (high - low)
            yield f'<rect x="550" y="{y + 9}" width="240" height="8" rx="4" fill="{INK}" opacity=".12"/>'
            yield f'<rect x="550" y="{y + 9}" width="{240 * share:.1f}" height="8" rx="4" fill="{ACCENT}"/>'
            yield (
                f'<text x="{WIDTH - 36}" y="{y + 18}" font-size="12" fill="{INK}" opacity=".6" text-anchor="end">'
                f"{figure(low)} to {figure(high)}</text>"
            )


def _footer(result: Mapping[str, Any], metrics: int) -> Iterable[str]:
    y = TOP + max(1, min(metrics, METRICS)) * ROW + 16
    if not metrics:
        yield f'<text x="36" y="{TOP + 18}" font-size="14" fill="{INK}" opacity=".65">no metrics</text>'
    if metrics > METRICS:
        yield f'<text x="36" y="{y}" font-size="12" fill="{INK}" opacity=".6">and {metrics - METRICS} more</text>'
    if result.get("error"):
        for line in wrap(str(result["error"]), 120)[: min(LINES, int((HEIGHT - 40 - y) // 18))]:
            yield f'<text x="36" y="{y + 14}" font-size="13" fill="{ALARM}">{printable(line, 120)}</text>'
            y += 18
    fields = [f"{name} {value}" for name, value in result["scenario"].items() if isinstance(value, str | int | float)]
    timing = result.get("timing") or {}
    if _is_number(timing.get("seconds")):
        fields.append(f"{figure(timing['seconds'])} s")
    text = printable(" · ".join(fields), 130)
    yield f'<text x="28" y="{HEIGHT - 14}" font-size="12" fill="{INK}" opacity=".6">{text}</text>'


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
