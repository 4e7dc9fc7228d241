"""Charts of signals: observations, actions and rewards of a task over time, with a moving cursor (SMIL)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.rendering.svg_animation import decimal
from api.rendering.svg_page import ACCENT, HEIGHT, INK, PANEL, WIDTH, NotDrawable, figure, page, printable

#: Charts of a column of the picture.
CHARTS = 8
#: Points of a line; of longer signals every second, third, ... value is drawn.
POINTS = 400
#: Height of a chart beneath a drawing.
ROW = 44
#: Seconds in which the cursor crosses the charts: those of the task, within these limits.
SHORTEST, LONGEST = 2.0, 30.0
TOP, GAP, LABEL = 66, 8, 178


@dataclass(frozen=True, slots=True)
class Loop:
    """Seconds in which the cursor crosses the charts, and for which it stays at their end."""

    seconds: float
    hold: float = 0.0


def svg(replay: Mapping[str, Any]) -> str:
    """Return the charts of a replay whose scene has signals."""
    body = charts(replay, top=TOP, bottom=HEIGHT, loop=Loop(seconds_of(replay)))
    return page_of(replay, body, HEIGHT)


def frames_of(replay: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the frames of a replay; raise NotDrawable if it has none."""
    frames: Sequence[Mapping[str, Any]] = replay.get("frames") or ()
    if not frames:
        raise NotDrawable("The replay has no frames.")
    return frames


def seconds_of(replay: Mapping[str, Any]) -> float:
    """Return in how many seconds a replay is shown: those of the task, within limits."""
    return min(LONGEST, max(SHORTEST, float(replay.get("dt") or 1.0) * (len(frames_of(replay)) - 1)))


def page_of(replay: Mapping[str, Any], body: Iterable[str], height: float) -> str:
    """Return a picture of a replay with its title and its outcome."""
    good = (replay.get("result") or {}).get("status") == "ok" and not replay.get("failed")
    return page(replay.get("title") or "task", replay.get("outcome") or "", good=good, body=body, height=height)


def rows_of(replay: Mapping[str, Any]) -> int:
    """Return the number of charts in the longer column."""
    scene = replay["scene"]
    return min(CHARTS, max(len(scene["observation"]), len(scene["action"]) + 1))


def height_of(rows: int) -> float:
    """Return the height of so many rows beneath a drawing."""
    return rows * (ROW + GAP) + 24


def charts(replay: Mapping[str, Any], *, top: float, bottom: float, loop: Loop, rows: int = 3) -> list[str]:
    """Return the charts of a replay between two heights of a picture, which have room for ``rows`` in a column."""
    frames, scene, dt = frames_of(replay), replay["scene"], float(replay.get("dt") or 1.0)
    observations = _signals(scene["observation"], frames, "observation")
    actions = _signals(scene["action"], frames, "action")
    rewards = [frame.get("reward") for frame in frames]
    if any(reward is not None for reward in rewards):
        actions.insert(0, ({"name": "reward", "unit": ""}, rewards))
    half = WIDTH / 2
    return [
        *_column("Actions and rewards", actions, (24, half - 36), (top, bottom), loop, rows),
        *_column("Observations", observations, (half + 12, half - 36), (top, bottom), loop, rows),
        f'<text x="28" y="{bottom - 8:.0f}" font-size="12" fill="{INK}" opacity=".6">{len(frames) - 1} steps,'
        f" {figure(dt * (len(frames) - 1))} s</text>",
    ]


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
    across: tuple[float, float],
    down: tuple[float, float],
    loop: Loop,
    rows: int,
) -> Iterable[str]:
    (left, width), (top, bottom) = across, down
    more = f", {CHARTS} of {len(signals)}" if len(signals) > CHARTS else ""
    yield f'<text x="{left + 4:.0f}" y="{top - 6:.0f}" font-size="13" fill="{INK}" opacity=".65">{heading}{more}</text>'
    shown = signals[:CHARTS]
    height = (bottom - top - 24) / max(len(shown), rows) - GAP
    for row, (description, values) in enumerate(shown):
        yield from _chart(description, values, left, top + row * (height + GAP), width, height)
    if shown and len(shown[0][1]) > 1:
        lowest = top + len(shown) * (height + GAP) - GAP
        start, end = left + LABEL, left + width
        duration, reach = loop.seconds + loop.hold, decimal(end - start)
        held = f' keyTimes="0;{decimal(loop.seconds / duration, 5)};1"' if loop.hold else ""
        stops = f"0 0;{reach} 0;{reach} 0" if loop.hold else f"0 0;{reach} 0"
        yield (
            f'<line x1="{start:.0f}" x2="{start:.0f}" y1="{top:.0f}" y2="{lowest:.0f}" stroke="{INK}" opacity=".5">'
            f'<animateTransform attributeName="transform" type="translate" dur="{decimal(duration, 2)}s"'
            f' repeatCount="indefinite"{held} values="{stops}"/></line>'
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
        f"{printable(description['name'], 23)}</text>"
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
