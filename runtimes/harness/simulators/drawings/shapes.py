"""Shapes of drawings: lines, circles and polygons in the world's units, x to the right and y up.

Static shapes are in the scene, with their coordinates. Moving shapes ("objects") are declared once in the scene, in
the order in which they are painted; a frame has the coordinates of those that are present, by id. ``role`` says what a
shape is; api/rendering/drawing.py has its colour.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Point = tuple[float, float]


class Drawing(Protocol):
    """Draws the current state of one environment. Called after its reset."""

    def scene(self) -> dict[str, Any]:
        """Return the result of `scene`: view, unit, static shapes, and the objects that frames may have."""

    def frame(self) -> dict[str, Any]:
        """Return the result of `frame`: where the objects are."""


def line(points: Sequence[Point], role: str, *, width: float = 0.0, dashes: Sequence[float] = ()) -> dict[str, Any]:
    """Return a static line. ``width`` 0: as thin as can be seen; ``dashes``: lengths of dash and gap."""
    shape: dict[str, Any] = {"shape": "line", "role": role, "points": flat(points), "width": width}
    return shape | ({"dashes": list(dashes)} if dashes else {})


def polygon(points: Sequence[Point], role: str) -> dict[str, Any]:
    """Return a static polygon."""
    return {"shape": "polygon", "role": role, "points": flat(points)}


def circle(centre: Point, radius: float, role: str) -> dict[str, Any]:
    """Return a static circle."""
    return {"shape": "circle", "role": role, "points": flat([centre]), "radius": radius}


def ground(every: float, *, height: float = 0.0) -> dict[str, Any]:
    """Return ground seen from the side: everything below ``height``, with a mark ``every`` so many units."""
    return {"shape": "ground", "role": "ground", "height": height, "every": every}


def floor(every: float, across: Point, along: Point) -> dict[str, Any]:
    """Return a floor seen from above: a grid without end. ``across``, ``along``: its unit vectors as they are drawn."""
    return {"shape": "floor", "role": "floor", "across": list(across), "along": list(along), "every": every}


def moving_line(id: str, role: str, width: float, *, flat_ends: bool = False) -> dict[str, Any]:
    """Declare a moving line; its ends are round unless ``flat_ends``."""
    return {"id": id, "shape": "line", "role": role, "width": round(width, 4), "flat": flat_ends}


def moving_polygon(id: str, role: str) -> dict[str, Any]:
    """Declare a moving polygon, with an equal number of points in every frame."""
    return {"id": id, "shape": "polygon", "role": role}


def moving_circle(id: str, role: str, radius: float) -> dict[str, Any]:
    """Declare a moving circle."""
    return {"id": id, "shape": "circle", "role": role, "radius": round(radius, 4)}


def scene(
    *,
    view: tuple[float, float, float, float],
    unit: str,
    shapes: Sequence[Any],
    objects: Sequence[Any],
    backdrop: str = "sky",
) -> dict[str, Any]:
    """Return a scene. ``view``: left, bottom, width and height of what is shown, in ``unit``."""
    return {"view": list(view), "unit": unit, "backdrop": backdrop, "shapes": list(shapes), "objects": list(objects)}


def frame(at: Mapping[str, Sequence[Point]], *, centre: Point | None = None) -> dict[str, Any]:
    """Return a frame: the points of each object that is present; ``centre``: of a view that moves."""
    placed: dict[str, Any] = {"at": {id: flat(points) for id, points in at.items()}}
    return placed | ({"centre": flat([centre])} if centre is not None else {})


def flat(points: Sequence[Point]) -> list[float]:
    """Return points as x, y, x, y, ..., rounded to millimetres if the unit is the metre."""
    return [round(float(value), 3) + 0.0 for point in points for value in point]
