"""Map of a scenario as self-contained SVG: the street around the route, crossings, and the car at its start."""

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from api.rendering.svg_animation import decimal
from api.rendering.svg_page import ACCENT, FONT, GOOD, INK, PANEL, PAPER, WIDTH, printable
from datasets.catalogue.car_street.street_outline import Shape, StreetOutline, Strip

#: Metres around the route that are drawn, and pixels of the least and greatest height.
MARGIN, LOWEST, HIGHEST = 40.0, 240.0, 620.0
#: Pixels of the text above the map, and the least length of the car.
HEAD, LEAST_CAR = 64.0, 22.0
#: Metres: length and width of the car.
CAR = (4.8, 1.9)
ASPHALT, PAINT, PAVEMENT, GROUND = "#50565e", "#f4f4ef", "#c5c9c2", "#dde4d6"

Box = tuple[float, float, float, float]


def svg(scenario: Mapping[str, Any], outline: StreetOutline) -> str:
    """Return the map of a scenario whose route is on the street."""
    route = route_of(scenario, outline)
    west, south, east, north = box_of(route, MARGIN)
    scale = min(WIDTH / (east - west), HIGHEST / (north - south))
    height = max(LOWEST, scale * (north - south))
    # The middle of the route is the middle of the picture, whatever its shape.
    left = (west + east) / 2 - WIDTH / scale / 2
    top = (south + north) / 2 + height / scale / 2
    box = (left, top - height / scale, left + WIDTH / scale, top)
    title = printable(scenario.get("name") or f"scenario {scenario['index']}")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEAD + height:.0f}" role="img" {FONT}>',
            f"<title>Map of {title}</title>",
            f'<rect width="{WIDTH}" height="{HEAD + height:.0f}" fill="{PAPER}"/>',
            f'<text x="20" y="28" font-size="18" font-weight="600" fill="{INK}">{title}</text>',
            f'<text x="20" y="50" font-size="14" fill="{INK}">{printable(described(scenario), 120)}</text>',
            f'<svg y="{HEAD:.0f}" width="{WIDTH}" height="{height:.0f}" overflow="hidden">',
            f'<rect width="{WIDTH}" height="{height:.0f}" fill="{GROUND}"/>',
            f'<g transform="scale({scale:.4f} {-scale:.4f}) translate({-left:.2f} {-top:.2f})" fill="none">',
            *_ground(outline, box),
            *_route(scenario, route, scale),
            "</g>",
            "</svg>",
            "</svg>",
            "",
        ]
    )


def described(scenario: Mapping[str, Any]) -> str:
    """Return a line on what a scenario has besides its route."""
    parts = [f"street {scenario['street']}"]
    for name in ("vehicles", "pedestrians", "event", "density"):
        if scenario.get(name) is not None:
            parts.append(f"{name} {scenario[name]}")
    return ", ".join(parts)


def route_of(scenario: Mapping[str, Any], outline: StreetOutline) -> Shape:
    """Return the way along the route's edges, on the lane of the start where there is such a lane."""
    lane = int((scenario.get("start") or {}).get("lane") or 0)
    strips = [outline.lanes[edge] for edge in scenario["route"]]
    return tuple(point for lanes in strips for point in lanes[min(max(lane, 0), len(lanes) - 1)].shape)


def box_of(shape: Shape, margin: float) -> Box:
    """Return the bounds of a shape: west, south, east, north."""
    xs, ys = [x for x, _ in shape], [y for _, y in shape]
    return min(xs) - margin, min(ys) - margin, max(xs) + margin, max(ys) + margin


def place(shape: Shape, distance: float) -> tuple[float, float, float]:
    """Return the point of a line after a distance, and its direction in radians from the east."""
    heading = 0.0
    for (x, y), (to_x, to_y) in pairwise(shape):
        length = math.hypot(to_x - x, to_y - y)
        if length == 0:
            continue
        heading = math.atan2(to_y - y, to_x - x)
        if distance <= length:
            return x + (to_x - x) * distance / length, y + (to_y - y) * distance / length, heading
        distance -= length
    return *shape[-1], heading


def _ground(outline: StreetOutline, box: Box) -> Iterator[str]:
    lanes = [strip for strips in outline.lanes.values() for strip in strips]
    yield from _strips(outline.pavements, box, PAVEMENT)
    yield from (f'<path d="{_path(shape)}Z" fill="{ASPHALT}"/>' for shape in outline.junctions if _meets(shape, box))
    yield from _strips(lanes, box, PAINT, wider=0.3)
    yield from _strips(lanes, box, ASPHALT)
    for strip in outline.crossings:
        if _meets(strip.shape, box):
            yield (
                f'<path class="crossing" d="{_path(strip.shape)}" stroke="{PAINT}" stroke-dasharray="0.5 0.5"'
                f' stroke-width="{decimal(strip.width)}"/>'
            )


def _strips(strips: Iterable[Strip], box: Box, paint: str, *, wider: float = 0.0) -> Iterator[str]:
    for strip in strips:
        if _meets(strip.shape, box):
            width = decimal(strip.width + wider, 2)
            yield f'<path d="{_path(strip.shape)}" stroke="{paint}" stroke-width="{width}"/>'


def _route(scenario: Mapping[str, Any], route: Shape, scale: float) -> Iterator[str]:
    x, y, heading = place(route, float((scenario.get("start") or {}).get("pos") or 0.0))
    to_x, to_y = route[-1]
    long = max(CAR[0], LEAST_CAR / scale)
    wide = long * CAR[1] / CAR[0]
    yield (
        f'<path class="route" d="{_path(route)}" stroke="{ACCENT}" stroke-opacity=".65" stroke-linejoin="round"'
        f' stroke-width="{max(1.2, 4 / scale):.2f}"/>'
    )
    yield (
        f'<circle class="end" cx="{decimal(to_x)}" cy="{decimal(to_y)}" r="{max(2.0, 8 / scale):.2f}"'
        f' fill="{GOOD}" stroke="{PANEL}" stroke-width="{2 / scale:.2f}"/>'
    )
    yield (
        f'<path class="start" transform="translate({decimal(x)} {decimal(y)}) rotate({math.degrees(heading):.1f})"'
        f' d="M0 0L{-long:.2f} {wide / 2:.2f}L{-long * 0.75:.2f} 0L{-long:.2f} {-wide / 2:.2f}Z" fill="{ACCENT}"'
        f' stroke="{PANEL}" stroke-width="{2 / scale:.2f}"/>'
    )


def _path(shape: Shape) -> str:
    return "M" + "L".join(f"{decimal(x)} {decimal(y)}" for x, y in shape)


def _meets(shape: Shape, box: Box) -> bool:
    west, south, east, north = box_of(shape, 0.0)
    return west <= box[2] and east >= box[0] and south <= box[3] and north >= box[1]
