"""Replays of drawings as self-contained, animated SVG: moving shapes, with the charts of the signals below them.

The shapes are those of runtimes/harness/simulators/drawings/shapes.py; colours and the view's motion are chosen here.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, floor, log10
from typing import Any

import msgspec

from api.rendering import signal_charts
from api.rendering.signal_charts import Loop
from api.rendering.svg_animation import (
    Animation,
    Point,
    animate_transform,
    animate_values,
    animate_visibility,
    decimal,
    without_gaps,
)
from api.rendering.svg_page import ACCENT, ALARM, GOOD, INK, PANEL, WIDTH, figure, printable

#: Pixels from the left of the picture to the drawing, from its top, and between drawing and charts.
LEFT, TOP, GAP = 24, 60, 40
#: Limits of a drawing's height in pixels.
LOWEST, HIGHEST = 150.0, 430.0
#: Frames that are drawn; of longer replays every second, third, ... frame. Positions between frames are interpolated.
FRAMES = 400
#: Seconds that the last frame is held at the end of a loop.
HOLD = 1.2
#: The most lines of a floor or marks of the ground.
MARKS = 300
EARTH, GRID, ASPHALT = "#d9ddd2", "#d5dad3", "#50565e"
#: What is behind all shapes.
BACKDROPS: Mapping[str, str] = {"sky": "#f7f9f7", "grass": "#e4e9df"}
#: Colour of what a shape is: fill, or stroke of a line.
ROLES: Mapping[str, str] = {
    "ego": ACCENT,
    "halo": ACCENT,
    "body": "#3d5a80",
    "limb_1": "#e07a5f",
    "limb_2": "#00a6a6",
    "limb_3": "#f0a830",
    "limb_4": "#7b6cc4",
    "limb_5": "#81b29a",
    "joint": PANEL,
    "vehicle": "#bcc6d2",
    "glass": INK,
    "road": ASPHALT,
    "paint": "#f4f4ef",
    "track": "#8796a8",
    "mark": "#8796a8",
    "limit": ALARM,
    "alarm": ALARM,
    "goal": GOOD,
    "object": "#f0a830",
    "other": "#6a4c93",
    "ground": EARTH,
    "floor": GRID,
    "board": "#3d5a80",
    "hole": "#f7f9f7",
    "first": "#e5383b",
    "second": "#f6c945",
    "clockwise": "#2a78c2",
    "counterclockwise": "#d1495b",
}
UNKNOWN_ROLE = "#6c757d"
#: Opacity of what is not opaque; these shapes have no outline.
OPACITY: Mapping[str, str] = {"halo": ".18", "glass": ".72", "alarm": ".6", "clockwise": ".7", "counterclockwise": ".7"}


class Shape(msgspec.Struct):
    """A static shape, or the declaration of a moving one."""

    shape: str
    role: str
    id: str = ""
    points: list[float] = []
    width: float = 0.0
    radius: float = 0.0
    dashes: list[float] = []
    flat: bool = False
    height: float = 0.0
    every: float = 1.0
    across: tuple[float, float] = (1.0, 0.0)
    along: tuple[float, float] = (0.0, 1.0)


class Scene(msgspec.Struct):
    """The static part: what is in view, its unit, and all shapes."""

    view: tuple[float, float, float, float]
    unit: str
    shapes: list[Shape]
    objects: list[Shape]
    backdrop: str = "sky"


class Frame(msgspec.Struct):
    """Coordinates of the moving shapes that are present, and the centre of a view that moves."""

    at: dict[str, list[float]]
    centre: tuple[float, float] | None = None


def svg(replay: Mapping[str, Any]) -> str:
    """Return an animated picture of a replay. Raise NotDrawable if it has no frames."""
    all_frames = signal_charts.frames_of(replay)
    scene = msgspec.convert(replay["scene"]["drawing"], Scene)
    frames = [msgspec.convert(frame["drawing"], Frame) for frame in _sampled(all_frames)]
    picture = _Picture(scene, frames, signal_charts.seconds_of(replay))
    bottom = TOP + picture.height
    rows = signal_charts.rows_of(replay)
    total = bottom + GAP + signal_charts.height_of(rows)
    loop = Loop(picture.seconds, picture.hold)
    charts = signal_charts.charts(replay, top=bottom + GAP, bottom=total, loop=loop, rows=rows)
    return signal_charts.page_of(replay, [*picture.elements(), *charts], total)


def _sampled(frames: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return every n-th frame and the last one."""
    stride = ceil(len(frames) / FRAMES)
    return [*frames[:-1:stride], frames[-1]]


class _Picture:
    """The drawing of one replay in pixels; y grows downwards in the picture and upwards in the world."""

    def __init__(self, scene: Scene, frames: Sequence[Frame], seconds: float) -> None:
        left, bottom, width, height = scene.view
        if width <= 0 or height <= 0:
            raise ValueError("an empty view")
        self._scene = scene
        self._frames = frames
        self._width = WIDTH - 2 * LEFT
        self.height = min(HIGHEST, max(LOWEST, self._width * height / width))
        self._scale = min(self._width / width, self.height / height)
        self.seconds = seconds
        # The last frame is repeated: evenly spaced frames need no list of times at each element.
        held = ceil(HOLD / seconds * (len(frames) - 1)) if len(frames) > 1 else 0
        self.hold = seconds / max(1, len(frames) - 1) * held
        last = (left + width / 2, bottom + height / 2)
        camera = []
        for frame in (*frames, *[frames[-1]] * held):
            last = frame.centre or last
            camera.append(last)
        self._held = held
        self._animation = Animation([{}] * len(camera), (), self.seconds + self.hold, tuple(camera))

    def elements(self) -> Iterable[str]:
        """Yield the elements of the drawing."""
        middle = (LEFT + self._width / 2, TOP + self.height / 2)
        camera = [
            f"{decimal(middle[0] - x * self._scale)} {decimal(middle[1] + y * self._scale)}"
            for x, y in self._animation.camera
        ]
        frame = f'x="{LEFT}" y="{TOP}" width="{self._width}" height="{decimal(self.height)}" rx="10"'
        backdrop = BACKDROPS.get(self._scene.backdrop, BACKDROPS["sky"])
        yield f'<clipPath id="drawing"><rect {frame}/></clipPath>'
        yield f'<g clip-path="url(#drawing)"><rect {frame} fill="{backdrop}"/>'
        yield f'<g transform="translate({camera[0]})">{animate_transform(self._animation, "translate", camera)}'
        for shape in self._scene.shapes:
            yield from self._static(shape)
        for shape in self._scene.objects:
            yield self._moving(shape)
        yield "</g>"
        yield from self._scale_bar()
        yield "</g>"

    # -- coordinates

    def _visited(self) -> tuple[float, float, float, float]:
        """Return the left, bottom, right and top of all that comes into view, in the world's units."""
        across, up = self._width / self._scale / 2, self.height / self._scale / 2
        xs, ys = zip(*self._animation.camera, strict=True)
        return min(xs) - across, min(ys) - up, max(xs) + across, max(ys) + up

    def _points(self, values: Sequence[float]) -> str:
        return " ".join(
            f"{decimal(x * self._scale)},{decimal(-y * self._scale)}"
            for x, y in zip(values[::2], values[1::2], strict=True)
        )

    # -- static shapes

    def _static(self, shape: Shape) -> Iterable[str]:
        colour = ROLES.get(shape.role, UNKNOWN_ROLE)
        if shape.shape == "ground":
            yield from self._ground(shape)
        elif shape.shape == "floor":
            yield from self._floor(shape)
        elif shape.shape == "polygon":
            yield f'<polygon points="{self._points(shape.points)}" fill="{colour}"/>'
        elif shape.shape == "circle":
            x, y = self._points(shape.points).split(",")
            yield f'<circle cx="{x}" cy="{y}" r="{decimal(shape.radius * self._scale)}" fill="{colour}"/>'
        else:
            lengths = " ".join(decimal(length * self._scale) for length in shape.dashes)
            ends = f' stroke-dasharray="{lengths}"' if lengths else ' stroke-linecap="round"'
            yield (
                f'<polyline points="{self._points(self._clipped(shape.points))}" fill="none" stroke="{colour}"'
                f' stroke-width="{self._stroke(shape)}"{ends}/>'
            )

    def _stroke(self, shape: Shape) -> str:
        return decimal(max(1.2, shape.width * self._scale))

    def _clipped(self, points: list[float]) -> list[float]:
        """Return a horizontal line without what never comes into view: a road may be kilometres long."""
        if len(points) != 4 or points[1] != points[3]:
            return points
        left, _, right, _ = self._visited()
        ends = (max(left, min(right, x)) for x in (points[0], points[2]))
        return [next(ends), points[1], next(ends), points[3]]

    def _ground(self, shape: Shape) -> Iterable[str]:
        left, bottom, right, _ = self._visited()
        y = -shape.height * self._scale
        depth = max(0.0, (shape.height - bottom) * self._scale)
        yield (
            f'<rect x="{decimal(left * self._scale)}" y="{decimal(y)}" width="{decimal((right - left) * self._scale)}"'
            f' height="{decimal(depth)}" fill="{EARTH}"/>'
        )
        for value in _multiples(left, right, shape.every):
            x = decimal(value * self._scale)
            yield (
                f'<line x1="{x}" x2="{x}" y1="{decimal(y)}" y2="{decimal(y + 7)}" stroke="{INK}" opacity=".45"/>'
                f'<text x="{x}" y="{decimal(y + 20)}" font-size="11" text-anchor="middle" fill="{INK}"'
                f' opacity=".55">{figure(value)}</text>'
            )

    def _floor(self, shape: Shape) -> Iterable[str]:
        """Draw a grid: the lines of constant coordinates that come into view."""
        (ax, ay), (bx, by) = shape.across, shape.along
        determinant = ax * by - ay * bx
        left, bottom, right, top = self._visited()
        corners = [(x, y) for x in (left, right) for y in (bottom, top)]
        first = [(x * by - y * bx) / determinant for x, y in corners]
        second = [(y * ax - x * ay) / determinant for x, y in corners]
        for value in _multiples(min(first), max(first), shape.every):
            yield self._grid_line(
                (value * ax + min(second) * bx, value * ay + min(second) * by),
                (value * ax + max(second) * bx, value * ay + max(second) * by),
            )
        for value in _multiples(min(second), max(second), shape.every):
            yield self._grid_line(
                (value * bx + min(first) * ax, value * by + min(first) * ay),
                (value * bx + max(first) * ax, value * by + max(first) * ay),
            )

    def _grid_line(self, start: Point, end: Point) -> str:
        return f'<polyline points="{self._points([*start, *end])}" fill="none" stroke="{GRID}" stroke-width="1.2"/>'

    def _scale_bar(self) -> Iterable[str]:
        """Draw a bar whose length is a round number of units, if the world has a unit."""
        if not self._scene.unit:
            return
        length = _round_length(self._width / self._scale / 8)
        pixels = length * self._scale
        right, y = LEFT + self._width - 16, TOP + 18
        yield (
            f'<path d="M{decimal(right - pixels)} {y}v5h{decimal(pixels)}v-5" fill="none" stroke="{INK}"'
            f' stroke-width="1.5" opacity=".6"/>'
            f'<text x="{decimal(right - pixels / 2)}" y="{y - 2}" font-size="11" text-anchor="middle" fill="{INK}"'
            f' opacity=".7">{figure(length)} {printable(self._scene.unit, 12)}</text>'
        )

    # -- moving shapes

    def _moving(self, shape: Shape) -> str:
        track = [frame.at.get(shape.id) for frame in self._frames]
        if not any(track):
            return ""
        track += [track[-1]] * self._held
        places = [self._points(points) for points in without_gaps(track)]
        attribute, visibility = animate_visibility(self._animation, [points is not None for points in track])
        colour = ROLES.get(shape.role, UNKNOWN_ROLE)
        named = f'class="{printable(shape.role)}"{attribute}'
        if shape.shape == "circle":
            spots = [place.replace(",", " ") for place in places]
            return (
                f'<g {named} transform="translate({spots[0]})">{visibility}'
                f"{animate_transform(self._animation, 'translate', spots)}<circle"
                f' r="{decimal(shape.radius * self._scale, 2)}" fill="{colour}"{_finish(shape)}/></g>'
            )
        motion = animate_values(self._animation, "points", places)
        if shape.shape == "polygon":
            return (
                f'<polygon {named} points="{places[0]}" fill="{colour}" stroke-linejoin="round"{_finish(shape)}>'
                f"{visibility}{motion}</polygon>"
            )
        cap = "butt" if shape.flat else "round"
        return (
            f'<polyline {named} points="{places[0]}" fill="none" stroke="{colour}" stroke-linecap="{cap}"'
            f' stroke-width="{self._stroke(shape)}">{visibility}{motion}</polyline>'
        )


def _finish(shape: Shape) -> str:
    if shape.role in OPACITY:
        return f' opacity="{OPACITY[shape.role]}"'
    return f' stroke="{INK}" stroke-width=".7"'


def _multiples(low: float, high: float, every: float) -> Iterable[float]:
    """Yield the multiples of ``every`` in a range, or of 5, 25, ... times as much if they were too many."""
    if every <= 0:
        raise ValueError("marks without a distance")
    while (high - low) / every > MARKS:
        every *= 5
    return (number * every for number in range(ceil(low / every), floor(high / every) + 1))


def _round_length(value: float) -> float:
    """Return the largest of 1, 2, 5, 10, ... and 0.5, 0.2, ... that is not above a value."""
    power = 10.0 ** floor(log10(value))
    return max(step * power for step in (1, 2, 5) if step * power <= value * 1.0001)
