"""Conflict areas: where two paths through a junction overlap, found by sampling their centre lines every half metre."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .street import Crosswalk, JunctionPath, Shape, Street

#: Metres: two paths overlap where their centre lines are closer than the width of a car.
CAR_WIDTH = 2.0
#: Metres between two samples of a centre line.
SPACING = 0.5


@dataclass(frozen=True, slots=True)
class ConflictArea:
    """The area where the ego's path and another path overlap, in metres from the start of each path.

    ``ego_yields``: the ego's link must give way to the other link; ``other_yields``: the other one to the ego's.
    """

    other: JunctionPath
    entry: float
    exit: float
    other_entry: float
    other_exit: float
    ego_yields: bool
    other_yields: bool


@dataclass(frozen=True, slots=True)
class CrosswalkArea:
    """Where a path passes a pedestrian crossing: metres along the path, and metres from the crossing's start."""

    crosswalk: Crosswalk
    entry: float
    exit: float
    across: float


def sample(shape: Shape) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return points along a polyline, and their distances from its start."""
    corners = np.asarray(shape, dtype=np.float64)
    lengths = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(corners, axis=0).T))])
    along = np.linspace(0.0, lengths[-1], max(2, int(lengths[-1] / SPACING) + 2))
    return np.stack([np.interp(along, lengths, corners[:, axis]) for axis in (0, 1)], axis=1), along


def overlap(first: Shape, second: Shape, distance: float) -> tuple[float, float, float, float] | None:
    """Return the start and end, on each polyline, of the part within ``distance`` metres of the other; None if none."""
    first_points, first_along = sample(first)
    second_points, second_along = sample(second)
    close = np.hypot(*(first_points[:, None, :] - second_points[None, :, :]).transpose(2, 0, 1)) < distance
    if not close.any():
        return None
    on_first, on_second = first_along[close.any(axis=1)], second_along[close.any(axis=0)]
    return float(on_first[0]), float(on_first[-1]), float(on_second[0]), float(on_second[-1])


def conflict_areas(street: Street, path: JunctionPath) -> tuple[ConflictArea, ...]:
    """Return the conflict areas of a path with the other paths through its junction.

    SUMO's ``getJunctionFoes`` omits about half of the crossing paths, so they are computed here.
    """
    areas = []
    rows = street.yields.get(path.junction, {})
    for other in street.paths.values():
        if other.junction != path.junction or other.link not in street.foes[path.junction].get(path.link, ()):
            continue
        bounds = overlap(path.shape, other.shape, CAR_WIDTH)
        if bounds is not None:
            ego_yields, other_yields = other.link in rows.get(path.link, ()), path.link in rows.get(other.link, ())
            areas.append(ConflictArea(other, *bounds, ego_yields, other_yields))
    return tuple(areas)


def crosswalk_areas(street: Street, path: JunctionPath) -> tuple[CrosswalkArea, ...]:
    """Return where a path passes pedestrian crossings."""
    areas = []
    for crosswalk in street.crosswalks:
        if crosswalk.junction == path.junction:
            bounds = overlap(path.shape, crosswalk.shape, 1.0)
            if bounds is not None:
                across = (bounds[2] + bounds[3]) / 2
                entry, exit = max(0.0, bounds[0] - crosswalk.width / 2), bounds[1] + crosswalk.width / 2
                areas.append(CrosswalkArea(crosswalk, entry, exit, across))
    return tuple(areas)


def project(shape: Shape, x: float, y: float) -> float:
    """Return the distance of a point along a straight crossing, in metres from its start."""
    (ax, ay), (bx, by) = shape[0], shape[-1]
    length = float(np.hypot(bx - ax, by - ay)) or 1.0
    return ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / length
