"""Where two ways meet: lengths along polylines, found by sampling them every half metre."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .street import Shape, Street, Way, Zebra

#: Two car paths share ground where their centre lines come closer than a car is wide.
NEAR = 2.0
SPACING = 0.5


@dataclass(frozen=True, slots=True)
class Meeting:
    """The ground two paths share, in metres from the start of each; ``yields``: ours must let the other pass."""

    other: Way
    entry: float
    exit: float
    other_entry: float
    other_exit: float
    yields: bool
    #: The other one must let us pass.
    owed: bool


@dataclass(frozen=True, slots=True)
class Stripe:
    """Where a path passes a zebra crossing: metres on the path, and metres from the crossing's start."""

    zebra: Zebra
    entry: float
    exit: float
    across: float


def sample(shape: Shape) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return points along a polyline and their distance from its start."""
    corners = np.asarray(shape, dtype=np.float64)
    lengths = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(corners, axis=0).T))])
    along = np.linspace(0.0, lengths[-1], max(2, int(lengths[-1] / SPACING) + 2))
    return np.stack([np.interp(along, lengths, corners[:, axis]) for axis in (0, 1)], axis=1), along


def shared(ours: Shape, theirs: Shape, near: float) -> tuple[float, float, float, float] | None:
    """Return from where to where two polylines run within ``near`` metres, on the first and on the second."""
    here, here_along = sample(ours)
    there, there_along = sample(theirs)
    close = np.hypot(*(here[:, None, :] - there[None, :, :]).transpose(2, 0, 1)) < near
    if not close.any():
        return None
    mine, other = here_along[close.any(axis=1)], there_along[close.any(axis=0)]
    return float(mine[0]), float(mine[-1]), float(other[0]), float(other[-1])


def meetings(street: Street, path: Way) -> tuple[Meeting, ...]:
    """Return every other path through the junction that shares ground with this one.

    SUMO's own ``getJunctionFoes`` leaves out about half of the crossing ones, so the world looks for itself.
    """
    found = []
    rows = street.yields.get(path.junction, {})
    for other in street.paths.values():
        if other.junction != path.junction or other.link not in street.meets[path.junction].get(path.link, ()):
            continue
        ground = shared(path.shape, other.shape, NEAR)
        if ground is not None:
            owed = path.link in rows.get(other.link, ())
            found.append(Meeting(other, *ground, other.link in rows.get(path.link, ()), owed))
    return tuple(found)


def stripes(street: Street, path: Way) -> tuple[Stripe, ...]:
    """Return the zebra crossings a path passes."""
    found = []
    for zebra in street.zebras:
        if zebra.junction == path.junction:
            ground = shared(path.shape, zebra.shape, 1.0)
            if ground is not None:
                across = (ground[2] + ground[3]) / 2
                found.append(Stripe(zebra, max(0.0, ground[0] - zebra.width / 2), ground[1] + zebra.width / 2, across))
    return tuple(found)


def project(shape: Shape, x: float, y: float) -> float:
    """Return how far along a straight crossing a point lies."""
    (ax, ay), (bx, by) = shape[0], shape[-1]
    length = float(np.hypot(bx - ax, by - ay)) or 1.0
    return ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / length
