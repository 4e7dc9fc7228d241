"""Replays of streets as self-contained, animated SVG (SMIL, without scripts)."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import cos, hypot, radians, sin
from typing import Any

from api.rendering.signal_charts import frames_of
from api.rendering.svg_animation import (
    Animation,
    Point,
    animate_steps,
    animate_transform,
    animate_values,
    animate_visibility,
    decimal,
    without_gaps,
)
from api.rendering.svg_page import ACCENT, ALARM, FONT, GOOD, HEIGHT, INK, PANEL, WIDTH

#: Pixels per metre.
SCALE = 8.0
#: Seconds that the last frame is held at the end of a loop.
HOLD = 1.6
#: Metres from the ego up to which objects are drawn.
REACH = 95.0

GROUND, ASPHALT, JUNCTION, PAVEMENT, PAINT = "#e4e9df", "#50565e", "#565c65", "#c9cbc6", "#f4f4ef"
PERSON = "#c2187f"
PAINTS = {
    "calm": "#dfe4ea",
    "normal": "#bcc6d2",
    "aggressive": "#f0a830",
    "truck": "#8796a8",
    "actor": "#ef6c3a",
}
LIGHTS = {"r": "#e5383b", "u": "#f08c2e", "y": "#f6c945", "g": "#38b26c"}


def svg(replay: Mapping[str, Any], *, seconds: float = 5.0, speed: float = 1.0) -> str:
    """Return the last seconds of a replay as an animated SVG in a loop; the camera follows the ego."""
    frames, dt = frames_of(replay), float(replay["dt"])
    if seconds <= 0 or speed <= 0:
        raise ValueError("seconds and speed must be greater than zero")
    shown = frames[-(round(seconds / dt) + 1) :]
    played = (len(shown) - 1) * dt / speed
    duration = played + HOLD
    times = tuple(decimal(index * dt / speed / duration, 5) for index in range(len(shown)))
    return _picture(replay, Animation(shown, times, duration, _camera_path(shown, frames)))


def _camera_path(shown: Sequence[Mapping[str, Any]], known: Sequence[Mapping[str, Any]]) -> tuple[Point, ...]:
    """Return the camera's position in each frame: that of the ego, or its last one if it has left the street."""

    def ego_position(frame: Mapping[str, Any]) -> Point | None:
        for car in frame["vehicles"]:
            if car["id"] == frame["ego"]:
                return _centre(car)
        return None

    last = next((position for frame in reversed(known) if (position := ego_position(frame)) is not None), (0.0, 0.0))
    first = next((position for frame in shown if (position := ego_position(frame)) is not None), last)
    path = []
    for frame in shown:
        first = ego_position(frame) or first
        path.append(first)
    return tuple(path)


def _picture(replay: Mapping[str, Any], animation: Animation) -> str:
    title = escape(str(replay.get("title") or "replay"))
    camera = [f"{decimal(WIDTH / 2 - x * SCALE)} {decimal(HEIGHT / 2 + y * SCALE)}" for x, y in animation.camera]
    world = [
        *_roads(replay["scene"], animation),
        *_stops(replay["scene"], animation),
        *_cars(animation),
        *_people(animation),
        *_crash(animation),
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" {FONT}>',
        f"<title>{title}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{GROUND}"/>',
        f'<g transform="translate({camera[0]})">{animate_transform(animation, "translate", camera)}',
        *world,
        "</g>",
        *_panel(replay, animation, title),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


# -- street


def _screen(x: float, y: float) -> str:
    return f"{decimal(x * SCALE)},{decimal(-y * SCALE)}"


def _line(shape: Iterable[Sequence[float]]) -> str:
    return " ".join(_screen(x, y) for x, y in shape)


def _in_view(shape: Sequence[Sequence[float]], animation: Animation) -> bool:
    """Tell whether a shape's bounding box is within REACH of the camera."""
    xs, ys = [point[0] for point in shape], [point[1] for point in shape]
    cameras = (animation.camera[0], animation.camera[len(animation.camera) // 2], animation.camera[-1])
    return any(min(xs) - REACH < x < max(xs) + REACH and min(ys) - REACH < y < max(ys) + REACH for x, y in cameras)


def _offset_line(shape: Sequence[Sequence[float]], offset: float) -> list[Point]:
    """Return a polyline at a distance of ``offset`` metres, to the left if positive."""
    moved = []
    for index, (x, y) in enumerate(shape):
        before, after = shape[max(0, index - 1)], shape[min(len(shape) - 1, index + 1)]
        dx, dy = after[0] - before[0], after[1] - before[1]
        length = hypot(dx, dy) or 1.0
        moved.append((x - dy / length * offset, y + dx / length * offset))
    return moved


def _roads(scene: Mapping[str, Any], animation: Animation) -> Iterable[str]:
    for strip in scene["pavements"]:
        if _in_view(strip["shape"], animation):
            yield _stroke(strip["shape"], PAVEMENT, strip["width"] + 0.6)
    for junction in scene["junctions"]:
        if _in_view(junction, animation):
            yield f'<polygon points="{_line(junction)}" fill="{JUNCTION}"/>'
    lanes = [lane for lane in scene["lanes"] if _in_view(lane["shape"], animation)]
    for lane in lanes:
        yield _stroke(lane["shape"], ASPHALT, lane["width"] + 0.1)
    for lane in lanes:
        half = lane["width"] / 2
        if lane["rank"] == 0:
            yield _stroke(_offset_line(lane["shape"], -half + 0.15), PAINT, 0.12)
        if lane["rank"] + 1 < lane["count"]:
            yield _stroke(_offset_line(lane["shape"], half), PAINT, 0.12, "3 4.5")
        else:
            yield _stroke(_offset_line(lane["shape"], half), PAINT, 0.14)
    for crossing in scene["crossings"]:
        if _in_view(crossing["shape"], animation):
            yield _stroke(crossing["shape"], PAINT, crossing["width"], "0.55 0.55")


def _stroke(shape: Sequence[Sequence[float]], paint: str, metres: float, dashes: str = "") -> str:
    lengths = " ".join(decimal(float(dash) * SCALE) for dash in dashes.split())
    dash = f' stroke-dasharray="{lengths}"' if lengths else ""
    width = decimal(metres * SCALE)
    return f'<polyline points="{_line(shape)}" fill="none" stroke="{paint}" stroke-width="{width}"{dash}/>'


def _stops(scene: Mapping[str, Any], animation: Animation) -> Iterable[str]:
    """Draw the stop lines; a line with a traffic light has the colour of the light."""
    for stop in scene["stops"]:
        (ax, ay), (x, y) = stop["at"]
        if not _in_view([(x, y)], animation):
            continue
        length = hypot(x - ax, y - ay) or 1.0
        ux, uy = (x - ax) / length, (y - ay) / length
        half = stop["width"] / 2 - 0.2
        line = (
            (x - uy * half - ux * 0.4, y + ux * half - uy * 0.4),
            (x + uy * half - ux * 0.4, y - ux * half - uy * 0.4),
        )
        if stop["light"] is None:
            yield _stroke(line, PAINT, 0.35, "0.5 0.4")
            continue
        colours = [LIGHTS.get(frame["lights"].get(stop["lane"], ""), PAINT) for frame in animation.frames]
        yield _stroke(line, colours[0], 0.55).replace(
            "/>", f">{animate_steps(animation, 'stroke', colours)}</polyline>"
        )


# -- vehicles and pedestrians


def _centre(car: Mapping[str, Any]) -> Point:
    """Return the centre of a vehicle; SUMO's position is that of its front bumper."""
    heading, half = radians(car["angle"]), car["length"] / 2
    return car["x"] - sin(heading) * half, car["y"] - cos(heading) * half


def _tracks(animation: Animation, kind: str) -> dict[str, list[Mapping[str, Any] | None]]:
    """Return the vehicles or pedestrians that come within REACH of the ego, by id: a state or None for each frame."""
    tracks: dict[str, list[Mapping[str, Any] | None]] = {}
    near = set()
    for index, frame in enumerate(animation.frames):
        x, y = animation.camera[index]
        for actor in frame[kind]:
            tracks.setdefault(actor["id"], [None] * len(animation.frames))[index] = actor
            if hypot(actor["x"] - x, actor["y"] - y) < REACH:
                near.add(actor["id"])
    return {name: track for name, track in tracks.items() if name in near}


def _headings(angles: Sequence[float]) -> list[float]:
    """Return compass angles without the step from 360 to 0 degrees, which SMIL would animate as a full turn."""
    unwrapped = [angles[0]]
    for angle in angles[1:]:
        unwrapped.append(unwrapped[-1] + (angle - unwrapped[-1] + 180.0) % 360.0 - 180.0)
    return unwrapped


def _cars(animation: Animation) -> Iterable[str]:
    ego = animation.frames[0]["ego"]
    tracks = _tracks(animation, "vehicles")
    for name in sorted(tracks, key=lambda name: (name == ego, name)):
        yield _car(animation, tracks[name], name == ego)


def _car(animation: Animation, track: Sequence[Mapping[str, Any] | None], is_ego: bool) -> str:
    known = without_gaps(track)
    positions = [_screen(car["x"], car["y"]).replace(",", " ") for car in known]
    turns = [decimal(heading) for heading in _headings([car["angle"] for car in known])]
    attribute, visibility = animate_visibility(animation, [actor is not None for actor in track])
    brakes = ["1" if car["brake"] else "0" for car in known]
    car = known[0]
    length, width = car["length"] * SCALE, car["width"] * SCALE
    paint = ACCENT if is_ego else PAINTS.get(car["kind"], PAINTS["normal"])
    corner = decimal(width * 0.28)
    body = [
        f'<rect x="{decimal(-width / 2)}" width="{decimal(width)}" height="{decimal(length)}" rx="{corner}"'
        f' fill="{paint}" stroke="{PANEL if is_ego else INK}" stroke-width="{"1.6" if is_ego else "0.7"}"/>',
        f'<rect x="{decimal(-width * 0.37)}" y="{decimal(min(length * 0.24, 12))}" width="{decimal(width * 0.74)}"'
        f' height="{decimal(min(length * 0.16, 8))}" rx="1.5" fill="{INK}" opacity=".72"/>',
        f'<g fill="{ALARM}" opacity="{brakes[0]}">{animate_steps(animation, "opacity", brakes)}'
        f'<rect x="{decimal(-width / 2)}" y="{decimal(length - 3)}" width="5" height="4" rx="1"/>'
        f'<rect x="{decimal(width / 2 - 5)}" y="{decimal(length - 3)}" width="5" height="4" rx="1"/></g>',
    ]
    if is_ego:
        halo = (
            f'<circle cy="{decimal(length / 2)}" r="{decimal(length * 0.78)}" fill="{ACCENT}" opacity=".16"/>'
            f'<circle cy="{decimal(length / 2)}" r="{decimal(length * 0.78)}" fill="none" stroke="{ACCENT}"'
            f' stroke-width="1.4" opacity=".7"/>'
        )
        body.insert(0, halo)
    ego_class = ' class="ego"' if is_ego else ""
    return (
        f'<g{ego_class}{attribute} transform="translate({positions[0]})">{visibility}'
        f"{animate_transform(animation, 'translate', positions)}"
        f'<g transform="rotate({turns[0]})">{animate_transform(animation, "rotate", turns)}{"".join(body)}</g></g>'
    )


def _people(animation: Animation) -> Iterable[str]:
    for name, track in sorted(_tracks(animation, "pedestrians").items()):
        known = without_gaps(track)
        positions = [_screen(actor["x"], actor["y"]).replace(",", " ") for actor in known]
        attribute, visibility = animate_visibility(animation, [actor is not None for actor in track])
        # The pedestrian of the event `late_pedestrian` has a ring in the colour of the events' vehicles.
        ring = f'<circle r="10" fill="{PAINTS["actor"]}"/>' if name == "late" else ""
        yield (
            f'<g class="person"{attribute} transform="translate({positions[0]})">{visibility}'
            f"{animate_transform(animation, 'translate', positions)}"
            f'{ring}<circle r="7" fill="{PERSON}" stroke="{PANEL}" stroke-width="2"/></g>'
        )


def _crash(animation: Animation) -> Iterable[str]:
    """Mark the position of the collision of the last frame, if it has one, from that frame on."""
    last = animation.frames[-1]
    if not last.get("collisions"):
        return
    other = last["collisions"][0]["with"]
    ex, ey = animation.camera[-1]
    position = next((_centre(car) for car in last["vehicles"] if car["id"] == other), None)
    position = position or next(
        ((person["x"], person["y"]) for person in last["pedestrians"] if person["id"] == other), (ex, ey)
    )
    at = _screen((ex + position[0]) / 2, (ey + position[1]) / 2).replace(",", " ")
    spikes = " ".join(
        f"{decimal(radius * cos(radians(22.5 * step)))},{decimal(radius * sin(radians(22.5 * step)))}"
        for step, radius in ((step, 20.0 if step % 2 == 0 else 9.0) for step in range(16))
    )
    appearance, pulse = "", ""
    if animation.is_animated:
        appearance = animate_steps(animation, "visibility", ["hidden"] * (len(animation.frames) - 1) + ["visible"])
        pulse = '<animate attributeName="stroke-width" dur="0.5s" repeatCount="indefinite" values="2;6;2"/>'
    hidden = ' visibility="hidden"' if animation.is_animated else ""
    yield (
        f'<g class="collision" transform="translate({at})"{hidden}>{appearance}'
        f'<polygon points="{spikes}" fill="{ALARM}" fill-opacity=".7" stroke="#ffd166" stroke-width="2">'
        f"{pulse}</polygon>"
        f"</g>"
    )


# -- panel


def _panel(replay: Mapping[str, Any], animation: Animation, title: str) -> Iterable[str]:
    outcome = escape(str(replay.get("outcome") or ""))
    colour = GOOD if outcome == "arrived" else ALARM if outcome else INK
    top = HEIGHT - 96
    yield (
        f'<g><rect x="18" y="16" width="{22 + 9.4 * len(title):.0f}" height="32" rx="8" fill="{PANEL}" opacity=".9"/>'
        f'<text x="28" y="37" font-size="15" font-weight="600" fill="{INK}">{title}</text></g>'
    )
    if outcome:
        width = 26 + 9.6 * len(outcome)
        yield (
            f'<g><rect x="{WIDTH - 18 - width:.0f}" y="16" width="{width:.0f}" height="32" rx="16" fill="{colour}"/>'
            f'<text x="{WIDTH - 18 - width / 2:.0f}" y="37" font-size="15" font-weight="700" fill="{PANEL}"'
            f' text-anchor="middle">{outcome}</text></g>'
        )
    yield f'<rect x="18" y="{top}" width="262" height="78" rx="12" fill="{PANEL}" opacity=".92"/>'
    limits = [f"{round(frame.get('limit', 0.0) * 3.6)}" for frame in animation.frames]
    yield f'<circle cx="244" cy="{top + 39}" r="24" fill="{PANEL}" stroke="{ALARM}" stroke-width="5"/>'
    yield from _readings(
        animation, limits, f'x="244" y="{top + 45}" font-size="18" font-weight="700" text-anchor="middle"'
    )
    yield f'<text x="118" y="{top + 34}" font-size="14" fill="{INK}" opacity=".65">km/h</text>'
    speeds = [f"{round(_ego_speed(frame) * 3.6)}" for frame in animation.frames]
    yield from _readings(
        animation, speeds, f'x="108" y="{top + 52}" font-size="46" font-weight="700" text-anchor="end"'
    )
    clock = [f"{float(frame['time']):.1f} s" for frame in animation.frames]
    yield from _readings(animation, clock, f'x="118" y="{top + 53}" font-size="14"')
    bar = [
        decimal(min(1.0, _ego_speed(frame) / max(1.0, frame.get("limit", 1.0)) / 1.25) * 176)
        for frame in animation.frames
    ]
    yield f'<rect x="34" y="{top + 62}" width="176" height="6" rx="3" fill="{INK}" opacity=".12"/>'
    growth = animate_values(animation, "width", bar)
    yield f'<rect x="34" y="{top + 62}" width="{bar[0]}" height="6" rx="3" fill="{ACCENT}">{growth}</rect>'


def _ego_speed(frame: Mapping[str, Any]) -> float:
    return next((float(car["speed"]) for car in frame["vehicles"] if car["id"] == frame["ego"]), 0.0)


def _readings(animation: Animation, texts: Sequence[str], attributes: str) -> Iterable[str]:
    """Draw an element for each text, visible while it is current: SMIL cannot animate the text of an element."""
    for text in dict.fromkeys(texts):
        attribute, visibility = animate_visibility(animation, [current == text for current in texts])
        yield f'<text {attributes} fill="{INK}"{attribute}>{visibility}{text}</text>'
