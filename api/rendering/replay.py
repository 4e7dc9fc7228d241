"""A replay as a picture: one self-contained SVG that moves by itself (SMIL, no scripts), or stands still."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import cos, hypot, radians, sin
from typing import Any

from api.rendering.svg_animation import Point, Reel, number, switch, transform, visible

WIDTH, HEIGHT = 960, 540
#: Pixels a metre.
SCALE = 8.0
#: Seconds the last picture stays before the loop begins again.
HOLD = 1.6
#: Metres from the ego beyond which nothing is drawn.
REACH = 95.0

GROUND, ASPHALT, JUNCTION, PAVEMENT, PAINT = "#e4e9df", "#50565e", "#565c65", "#c9cbc6", "#f4f4ef"
INK, PANEL, ALARM, GOOD = "#12181f", "#ffffff", "#e5383b", "#2a9d5c"
EGO_PAINT = "#00a6a6"
PAINTS = {
    "calm": "#dfe4ea",
    "normal": "#bcc6d2",
    "aggressive": "#f0a830",
    "truck": "#8796a8",
    "actor": "#ef6c3a",
}
LIGHTS = {"r": "#e5383b", "u": "#f08c2e", "y": "#f6c945", "g": "#38b26c"}
FONT = 'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif"'


def svg(replay: Mapping[str, Any], *, seconds: float = 5.0, speed: float = 1.0) -> str:
    """Return the last seconds of a replay as an animated picture that follows the ego and begins again."""
    frames, dt = _frames(replay), float(replay["dt"])
    if seconds <= 0 or speed <= 0:
        raise ValueError("seconds and speed must be more than zero")
    shown = frames[-(round(seconds / dt) + 1) :]
    played = (len(shown) - 1) * dt / speed
    duration = played + HOLD
    times = tuple(number(index * dt / speed / duration, 5) for index in range(len(shown)))
    return _picture(replay, Reel(shown, times, duration, _egos(shown, frames)))


def still(replay: Mapping[str, Any], at: float) -> str:
    """Return one instant of a replay, the nearest to ``at`` seconds."""
    frames = _frames(replay)
    index = bisect_left([float(frame["time"]) for frame in frames], at)
    index = min(index, len(frames) - 1)
    if index and at - float(frames[index - 1]["time"]) < float(frames[index]["time"]) - at:
        index -= 1
    shown = frames[index : index + 1]
    return _picture(replay, Reel(shown, ("0",), 0.0, _egos(shown, frames[: index + 1])))


def _frames(replay: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    scene = replay.get("scene")
    if not isinstance(scene, Mapping) or scene.get("kind") != "street":
        raise ValueError("There is nothing to draw: this simulator describes no street in its scene.")
    frames: Sequence[Mapping[str, Any]] = replay.get("frames") or ()
    if not frames:
        raise ValueError("There is nothing to draw: the replay has no frames.")
    return frames


def _egos(shown: Sequence[Mapping[str, Any]], known: Sequence[Mapping[str, Any]]) -> tuple[Point, ...]:
    """Return where the camera looks in each frame; where the ego has left the street, where it was last."""

    def found(frame: Mapping[str, Any]) -> Point | None:
        for car in frame["vehicles"]:
            if car["id"] == frame["ego"]:
                return _middle(car)
        return None

    last = next((place for frame in reversed(known) if (place := found(frame)) is not None), (0.0, 0.0))
    first = next((place for frame in shown if (place := found(frame)) is not None), last)
    places = []
    for frame in shown:
        first = found(frame) or first
        places.append(first)
    return tuple(places)


def _picture(replay: Mapping[str, Any], reel: Reel) -> str:
    title = escape(str(replay.get("title") or "replay"))
    camera = [f"{number(WIDTH / 2 - x * SCALE)} {number(HEIGHT / 2 + y * SCALE)}" for x, y in reel.ego]
    world = [
        *_roads(replay["scene"], reel),
        *_stops(replay["scene"], reel),
        *_cars(reel),
        *_people(reel),
        *_crash(reel),
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" {FONT}>',
        f"<title>{title}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{GROUND}"/>',
        f'<g transform="translate({camera[0]})">{transform(reel, "translate", camera)}',
        *world,
        "</g>",
        *_panel(replay, reel, title),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


# -- the street


def _screen(x: float, y: float) -> str:
    return f"{number(x * SCALE)},{number(-y * SCALE)}"


def _line(shape: Iterable[Sequence[float]]) -> str:
    return " ".join(_screen(x, y) for x, y in shape)


def _near(shape: Sequence[Sequence[float]], reel: Reel) -> bool:
    """Tell whether a shape's box comes within the camera's reach."""
    xs, ys = [point[0] for point in shape], [point[1] for point in shape]
    cameras = (reel.ego[0], reel.ego[len(reel.ego) // 2], reel.ego[-1])
    return any(min(xs) - REACH < x < max(xs) + REACH and min(ys) - REACH < y < max(ys) + REACH for x, y in cameras)


def _beside(shape: Sequence[Sequence[float]], offset: float) -> list[Point]:
    """Return a polyline moved sideways, to the left if positive."""
    moved = []
    for index, (x, y) in enumerate(shape):
        before, after = shape[max(0, index - 1)], shape[min(len(shape) - 1, index + 1)]
        dx, dy = after[0] - before[0], after[1] - before[1]
        length = hypot(dx, dy) or 1.0
        moved.append((x - dy / length * offset, y + dx / length * offset))
    return moved


def _roads(scene: Mapping[str, Any], reel: Reel) -> Iterable[str]:
    for strip in scene["pavements"]:
        if _near(strip["shape"], reel):
            yield _stroke(strip["shape"], PAVEMENT, strip["width"] + 0.6)
    for junction in scene["junctions"]:
        if _near(junction, reel):
            yield f'<polygon points="{_line(junction)}" fill="{JUNCTION}"/>'
    lanes = [lane for lane in scene["lanes"] if _near(lane["shape"], reel)]
    for lane in lanes:
        yield _stroke(lane["shape"], ASPHALT, lane["width"] + 0.1)
    for lane in lanes:
        half = lane["width"] / 2
        if lane["rank"] == 0:
            yield _stroke(_beside(lane["shape"], -half + 0.15), PAINT, 0.12)
        if lane["rank"] + 1 < lane["count"]:
            yield _stroke(_beside(lane["shape"], half), PAINT, 0.12, "3 4.5")
        else:
            yield _stroke(_beside(lane["shape"], half), PAINT, 0.14)
    for crossing in scene["crossings"]:
        if _near(crossing["shape"], reel):
            yield _stroke(crossing["shape"], PAINT, crossing["width"], "0.55 0.55")


def _stroke(shape: Sequence[Sequence[float]], paint: str, metres: float, dashes: str = "") -> str:
    dashed = " ".join(number(float(dash) * SCALE) for dash in dashes.split())
    dash = f' stroke-dasharray="{dashed}"' if dashed else ""
    wide = number(metres * SCALE)
    return f'<polyline points="{_line(shape)}" fill="none" stroke="{paint}" stroke-width="{wide}"{dash}/>'


def _stops(scene: Mapping[str, Any], reel: Reel) -> Iterable[str]:
    """Draw the stop lines; one that has a light wears its colour, with a lamp beside it."""
    for stop in scene["stops"]:
        (ax, ay), (x, y) = stop["at"]
        if not _near([(x, y)], reel):
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
        shades = [LIGHTS.get(frame["lights"].get(stop["lane"], ""), PAINT) for frame in reel.frames]
        yield _stroke(line, shades[0], 0.55).replace("/>", f">{switch(reel, 'stroke', shades)}</polyline>")


# -- who is on it


def _middle(car: Mapping[str, Any]) -> Point:
    """Return a vehicle's middle; SUMO's place is that of its front bumper."""
    heading, half = radians(car["angle"]), car["length"] / 2
    return car["x"] - sin(heading) * half, car["y"] - cos(heading) * half


def _tracks(reel: Reel, kind: str) -> dict[str, list[Mapping[str, Any] | None]]:
    """Return, by name, everybody who comes near, as they are in each frame or None."""
    tracks: dict[str, list[Mapping[str, Any] | None]] = {}
    close = set()
    for index, frame in enumerate(reel.frames):
        x, y = reel.ego[index]
        for one in frame[kind]:
            tracks.setdefault(one["id"], [None] * len(reel.frames))[index] = one
            if hypot(one["x"] - x, one["y"] - y) < REACH:
                close.add(one["id"])
    return {name: track for name, track in tracks.items() if name in close}


def _filled(track: Sequence[Mapping[str, Any] | None]) -> list[Mapping[str, Any]]:
    """Return a track without holes: before somebody comes and after they go, where they were nearest in time."""
    last = next(one for one in track if one is not None)
    filled = []
    for one in track:
        last = one if one is not None else last
        filled.append(last)
    return filled


def _headings(angles: Sequence[float]) -> list[float]:
    """Return compass angles without the jump at north, so that nobody spins."""
    turned = [angles[0]]
    for angle in angles[1:]:
        turned.append(turned[-1] + (angle - turned[-1] + 180.0) % 360.0 - 180.0)
    return turned


def _cars(reel: Reel) -> Iterable[str]:
    ego = reel.frames[0]["ego"]
    tracks = _tracks(reel, "vehicles")
    for name in sorted(tracks, key=lambda name: (name == ego, name)):
        yield _car(reel, tracks[name], name == ego)


def _car(reel: Reel, track: Sequence[Mapping[str, Any] | None], is_ego: bool) -> str:
    known = _filled(track)
    places = [_screen(car["x"], car["y"]).replace(",", " ") for car in known]
    turns = [number(heading) for heading in _headings([car["angle"] for car in known])]
    attribute, comes = visible(reel, [one is not None for one in track])
    brakes = ["1" if car["brake"] else "0" for car in known]
    car = known[0]
    length, width = car["length"] * SCALE, car["width"] * SCALE
    paint = EGO_PAINT if is_ego else PAINTS.get(car["kind"], PAINTS["normal"])
    corner = number(width * 0.28)
    body = [
        f'<rect x="{number(-width / 2)}" width="{number(width)}" height="{number(length)}" rx="{corner}"'
        f' fill="{paint}" stroke="{PANEL if is_ego else INK}" stroke-width="{"1.6" if is_ego else "0.7"}"/>',
        f'<rect x="{number(-width * 0.37)}" y="{number(min(length * 0.24, 12))}" width="{number(width * 0.74)}"'
        f' height="{number(min(length * 0.16, 8))}" rx="1.5" fill="{INK}" opacity=".72"/>',
        f'<g fill="{ALARM}" opacity="{brakes[0]}">{switch(reel, "opacity", brakes)}'
        f'<rect x="{number(-width / 2)}" y="{number(length - 3)}" width="5" height="4" rx="1"/>'
        f'<rect x="{number(width / 2 - 5)}" y="{number(length - 3)}" width="5" height="4" rx="1"/></g>',
    ]
    if is_ego:
        halo = (
            f'<circle cy="{number(length / 2)}" r="{number(length * 0.78)}" fill="{EGO_PAINT}" opacity=".16"/>'
            f'<circle cy="{number(length / 2)}" r="{number(length * 0.78)}" fill="none" stroke="{EGO_PAINT}"'
            f' stroke-width="1.4" opacity=".7"/>'
        )
        body.insert(0, halo)
    marked = ' class="ego"' if is_ego else ""
    return (
        f'<g{marked}{attribute} transform="translate({places[0]})">{comes}{transform(reel, "translate", places)}'
        f'<g transform="rotate({turns[0]})">{transform(reel, "rotate", turns)}{"".join(body)}</g></g>'
    )


def _people(reel: Reel) -> Iterable[str]:
    for name, track in sorted(_tracks(reel, "pedestrians").items()):
        known = _filled(track)
        places = [_screen(one["x"], one["y"]).replace(",", " ") for one in known]
        attribute, comes = visible(reel, [one is not None for one in track])
        late = name == "late"
        yield (
            f'<g class="person"{attribute} transform="translate({places[0]})">{comes}'
            f"{transform(reel, 'translate', places)}"
            f'<circle r="4.4" fill="{PAINTS["actor"] if late else "#6a4c93"}" stroke="{PANEL}" stroke-width="1.2"/></g>'
        )


def _crash(reel: Reel) -> Iterable[str]:
    """Mark the place of the collision, if the last frame holds one, once it has happened."""
    last = reel.frames[-1]
    if not last.get("collisions"):
        return
    other = last["collisions"][0]["with"]
    ex, ey = reel.ego[-1]
    place = next((_middle(car) for car in last["vehicles"] if car["id"] == other), None)
    place = place or next(((one["x"], one["y"]) for one in last["pedestrians"] if one["id"] == other), (ex, ey))
    at = _screen((ex + place[0]) / 2, (ey + place[1]) / 2).replace(",", " ")
    spikes = " ".join(
        f"{number(radius * cos(radians(22.5 * step)))},{number(radius * sin(radians(22.5 * step)))}"
        for step, radius in ((step, 20.0 if step % 2 == 0 else 9.0) for step in range(16))
    )
    shown, pulse = "", ""
    if reel.moves:
        shown = switch(reel, "visibility", ["hidden"] * (len(reel.frames) - 1) + ["visible"])
        pulse = '<animate attributeName="stroke-width" dur="0.5s" repeatCount="indefinite" values="2;6;2"/>'
    hidden = ' visibility="hidden"' if reel.moves else ""
    yield (
        f'<g class="collision" transform="translate({at})"{hidden}>{shown}'
        f'<polygon points="{spikes}" fill="{ALARM}" fill-opacity=".7" stroke="#ffd166" stroke-width="2">'
        f"{pulse}</polygon>"
        f"</g>"
    )


# -- the panel


def _panel(replay: Mapping[str, Any], reel: Reel, title: str) -> Iterable[str]:
    outcome = escape(str(replay.get("outcome") or ""))
    shade = GOOD if outcome == "arrived" else ALARM if outcome else INK
    top = HEIGHT - 96
    yield (
        f'<g><rect x="18" y="16" width="{22 + 9.4 * len(title):.0f}" height="32" rx="8" fill="{PANEL}" opacity=".9"/>'
        f'<text x="28" y="37" font-size="15" font-weight="600" fill="{INK}">{title}</text></g>'
    )
    if outcome:
        wide = 26 + 9.6 * len(outcome)
        yield (
            f'<g><rect x="{WIDTH - 18 - wide:.0f}" y="16" width="{wide:.0f}" height="32" rx="16" fill="{shade}"/>'
            f'<text x="{WIDTH - 18 - wide / 2:.0f}" y="37" font-size="15" font-weight="700" fill="{PANEL}"'
            f' text-anchor="middle">{outcome}</text></g>'
        )
    yield f'<rect x="18" y="{top}" width="262" height="78" rx="12" fill="{PANEL}" opacity=".92"/>'
    limits = [f"{round(frame.get('limit', 0.0) * 3.6)}" for frame in reel.frames]
    yield f'<circle cx="244" cy="{top + 39}" r="24" fill="{PANEL}" stroke="{ALARM}" stroke-width="5"/>'
    yield from _readings(reel, limits, f'x="244" y="{top + 45}" font-size="18" font-weight="700" text-anchor="middle"')
    yield f'<text x="118" y="{top + 34}" font-size="14" fill="{INK}" opacity=".65">km/h</text>'
    speeds = [f"{round(_ego_speed(frame) * 3.6)}" for frame in reel.frames]
    yield from _readings(reel, speeds, f'x="108" y="{top + 52}" font-size="46" font-weight="700" text-anchor="end"')
    clock = [f"{float(frame['time']):.1f} s" for frame in reel.frames]
    yield from _readings(reel, clock, f'x="118" y="{top + 53}" font-size="14"')
    bar = [
        number(min(1.0, _ego_speed(frame) / max(1.0, frame.get("limit", 1.0)) / 1.25) * 176) for frame in reel.frames
    ]
    yield f'<rect x="34" y="{top + 62}" width="176" height="6" rx="3" fill="{INK}" opacity=".12"/>'
    grows = ""
    if reel.moves:
        grows = (
            f'<animate attributeName="width" dur="{number(reel.duration, 2)}s" repeatCount="indefinite"'
            f' keyTimes="{";".join((*reel.times, "1"))}" values="{";".join((*bar, bar[-1]))}"/>'
        )
    yield f'<rect x="34" y="{top + 62}" width="{bar[0]}" height="6" rx="3" fill="{EGO_PAINT}">{grows}</rect>'


def _ego_speed(frame: Mapping[str, Any]) -> float:
    return next((float(car["speed"]) for car in frame["vehicles"] if car["id"] == frame["ego"]), 0.0)


def _readings(reel: Reel, words: Sequence[str], attributes: str) -> Iterable[str]:
    """Show each text while it holds: SMIL cannot change a text's words, so each has its own element."""
    for word in dict.fromkeys(words):
        attribute, comes = visible(reel, [here == word for here in words])
        yield f'<text {attributes} fill="{INK}"{attribute}>{comes}{word}</text>'
