"""Charts of signals: observations, actions and rewards of a task over time, with a moving cursor (SMIL)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from api.rendering.svg_animation import decimal
from api.rendering.svg_page import ACCENT, HEIGHT, INK, PANEL, WIDTH, figure, page, printable

#: Charts of a column of the picture.
CHARTS = 8
#: Points of a line; of longer signals every second, third, ... value is drawn.
POINTS = 400
#: Seconds in which the cursor crosses the charts: those of the task, within these limits.
SHORTEST, LONGEST = 2.0, 30.0
TOP, GAP, LABEL = 66, 8, 150


def svg(replay: Mapping[str, Any]) -> str:
    """Return the charts of a replay whose scene has signals."""
    frames: Sequence[Mapping[str, Any]] = replay.get("frames") or ()
    if not frames:
        raise ValueError("The replay has no frames.")
    scene, dt = replay["scene"], float(replay.get("dt") or 1.0)
    status = (replay.get("result") or {}).get("status")
    observations = _signals(scene["observation"], frames, "observation")
    actions = _signals(scene["action"], frames, "action")
    rewards = [frame.get("reward") for frame in frames]
    if any(reward is not None for reward in rewards):
        actions.insert(0, ({"name": "reward", "unit": ""}, rewards))
    half = WIDTH / 2
    duration = min(LONGEST, max(SHORTEST, dt * (len(frames) - 1)))
    body = [
        *_column("Actions and rewards", actions, 24, half - 36, duration),
        *_column("Observations", observations, half + 12, half - 36, duration),
        f'<text x="28" y="{HEIGHT - 8}" font-size="12" fill="{INK}" opacity=".6">{len(frames) - 1} steps,'
        f" {figure(dt * (len(frames) - 1))} s</text>",
    ]
    return page(replay.get("title") or "task", replay.get("outcome") or "", good=status == "ok", body=body)


def _signals(
    described: Sequence[Mapping[str, Any]], frames: Sequence[Mapping[str, Any]], member: str
) -> list[tuple[Mapping[str, Any], list[float | None]]]:
    """Return each signal's description and its value in each frame, None where it has none."""
    columns: list[tuple[Mapping[str, Any], list[float | None]]] = []
    for number, description in enumerate(described):
        values = [frame[member][number] if frame.get(member) is not None else None for frame in frames]
        columns.append((description, values))
    return columns


def _column(
    heading: str,
    signals: Sequence[tuple[Mapping[str, Any], Sequence[float | None]]],
    left: float,
    width: float,
    duration: float,
) -> Iterable[str]:
    more = f", {CHARTS} of {len(signals)}" if len(signals) > CHARTS else ""
    yield f'<text x="{left + 4:.0f}" y="{TOP - 6}" font-size="13" fill="{INK}" opacity=".65">{heading}{more}</text>'
    shown = signals[:CHARTS]
    height = (HEIGHT - TOP - 24) / max(len(shown), 3) - GAP
    for row, (description, values) in enumerate(shown):
        yield from _chart(description, values, left, TOP + row * (height + GAP), width, height)
    if shown and len(shown[0][1]) > 1:
        bottom = TOP + len(shown) * (height + GAP) - GAP
        start, end = left + LABEL, left + width
        yield (
            f'<line x1="{start:.0f}" x2="{start:.0f}" y1="{TOP}" y2="{bottom:.0f}" stroke="{INK}" opacity=".5">'
            f'<animateTransform attributeName="transform" type="translate" dur="{decimal(duration, 2)}s"'
            f' repeatCount="indefinite" values="0 0;{decimal(end - start)} 0"/></line>'
        )


def _chart(
    description: Mapping[str, Any], values: Sequence[float | None], left: float, top: float, width: float, height: float
) -> Iterable[str]:
    known = [value for value in values if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    yield f'<rect x="{left:.0f}" y="{top:.1f}" width="{width:.0f}" height="{height:.1f}" rx="6" fill="{PANEL}"/>'
    unit = f" {printable(description.get('unit'), 16)}" if description.get("unit") else ""
    middle = top + height / 2
    yield (
        f'<text x="{left + 8:.0f}" y="{middle:.1f}" font-size="12" font-weight="600" fill="{INK}">'
        f"{printable(description['name'], 19)}</text>"
        f'<text x="{left + 8:.0f}" y="{middle + 14:.1f}" font-size="11" fill="{INK}" opacity=".65">'
        f"{figure(low)} to {figure(high)}{unit}</text>"
    )
    steps = max(1, len(values) - 1)
    stride = -(-len(values) // POINTS)
    drawn = [(at, value) for at, value in enumerate(values) if value is not None and at % stride == 0]
    half = high / 2 - low / 2 or 1.0  # their difference may be beyond every float
    base = top + height - 5 if high > low else middle
    across = (width - LABEL - 6) / steps
    points = " ".join(
        f"{decimal(left + LABEL + at * across)},{decimal(base - (value / 2 - low / 2) / half * (height - 10))}"
        for at, value in drawn
    )
    if len(drawn) == 1:
        x, y = points.split(",")
        yield f'<circle cx="{x}" cy="{y}" r="3.5" fill="{ACCENT}"/>'
    else:
        yield f'<polyline points="{points}" fill="none" stroke="{ACCENT}" stroke-width="1.8"/>'
