"""Scenarios from planning problems: the roads nearest to start and goal, and the shortest route between them."""

import heapq
from dataclasses import dataclass
from itertools import pairwise
from math import atan2, cos, hypot, sqrt
from typing import Any

from datasets.catalogue.car_street.map_scenarios import EDGES, MAX_TIME_LIMIT, MIN_SPEED_SHARE, RADIUS
from datasets.catalogue.car_street.street_network import StreetNetwork

Point = tuple[float, float]
#: Metres from a position to the middle of its lane at most, those beyond which it counts as moved, and metres of a
#: drive at least. Junctions have no lanes of their own.
FARTHEST, MOVED, SHORTEST = 40.0, 3.0, 10.0
#: m/s2 at which a vehicle may have to brake after its start.
BRAKING = 4.0
#: The most vehicles beside the ego.
VEHICLES = 64


class NoDrive(Exception):
    """A planning problem has no drive on the converted network; the text says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanningProblem:
    """A planning problem: orientation in rad, speed in m/s, the middle of the goal; None: it has no place."""

    id: str
    position: Point
    orientation: float
    speed: float
    goal: Point | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """The scenario of a planning problem, and what of the problem was changed."""

    scenario: dict[str, Any]
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LaneShape:
    """A lane for cars: edge, rank from the right, length in metres, and the middle line."""

    edge: str
    rank: int
    length: float
    shape: tuple[Point, ...]


def lane_shapes(network: StreetNetwork) -> list[LaneShape]:
    """Return the lanes of a network's edges for cars; the network has kept their attributes."""
    lanes = []
    for edge, drivable in network.drivable.items():
        for rank, lane in enumerate(drivable):
            points = tuple((float(x), float(y)) for x, y, *_ in (p.split(",") for p in lane["shape"].split()))
            lanes.append(LaneShape(edge, rank, float(lane["length"]), points))
    return lanes


def planned(
    name: str, network: StreetNetwork, lanes: list[LaneShape], problem: PlanningProblem, vehicles: int
) -> Planned:
    """Return the scenario of a planning problem. Raises NoDrive."""
    start, along, away = _nearest(lanes, problem.position, problem.orientation)
    end = _nearest(lanes, problem.goal, None)[0].edge if problem.goal is not None else None
    route = _route(network, start.edge, end)
    ahead = network.lengths[route[0]] - along
    length = ahead + sum(
        network.crossings.get((edge, onto), 0.0) + network.lengths[onto] for edge, onto in pairwise(route)
    )
    if length < SHORTEST:
        raise NoDrive(f"only {length:.0f} m of road lie ahead of the initial state")
    leading = network.leading(route[0], route[1]) if len(route) > 1 else list(range(network.lanes[route[0]]))
    lane = min(leading, key=lambda rank: (abs(rank - start.rank), rank))
    free = ahead / network.limits[route[0]] + sum(network.lengths[edge] / network.limits[edge] for edge in route[1:])
    roads = ahead + sum(network.lengths[edge] for edge in route[1:])
    limit = min(50.0, max(1.0, roads / max(free, 0.1)))
    # SUMO inserts no vehicle that could not stop before a junction.
    speed = min(max(0.0, problem.speed), network.limits[route[0]], sqrt(2.0 * BRAKING * max(1.0, ahead)))
    changes = []
    if away > MOVED:
        changes.append("starts that are not on a road, moved onto the nearest")
    if lane != start.rank:
        changes.append("starts on a lane that does not lead to the goal, moved onto the next that does")
    if speed < problem.speed:
        changes.append("starts above the speed limit, or too fast for the next junction, slowed down")
    scenario = {
        "name": name,
        "street": name,
        "density": "recorded",
        "vehicles": min(VEHICLES, vehicles),
        "event": "none",
        "mix": "mixed",
        "route": route,
        "start": {"lane": lane, "pos": round(along, 1), "speed": int(10 * speed) / 10},
        "trigger": 0.0,
        "limit": round(limit, 3),
        "time_limit": min(MAX_TIME_LIMIT, max(5.0, round(length / (MIN_SPEED_SHARE * limit), 1))),
        "radius": RADIUS,
    }
    return Planned(scenario=scenario, changes=tuple(changes))


def _nearest(lanes: list[LaneShape], place: Point, orientation: float | None) -> tuple[LaneShape, float, float]:
    """Return the lane nearest to a place, the metres along it, and those from it to the place.

    With an orientation, the lane leads that way.
    """
    best: tuple[float, int, float] | None = None
    for number, lane in enumerate(lanes):
        passed = 0.0
        whole = sum(hypot(bx - ax, by - ay) for (ax, ay), (bx, by) in pairwise(lane.shape)) or 1.0
        for (ax, ay), (bx, by) in pairwise(lane.shape):
            dx, dy = bx - ax, by - ay
            size = hypot(dx, dy)
            if size == 0.0:
                continue
            share = min(1.0, max(0.0, ((place[0] - ax) * dx + (place[1] - ay) * dy) / size**2))
            distance = hypot(ax + share * dx - place[0], ay + share * dy - place[1])
            facing = orientation is None or cos(orientation - atan2(dy, dx)) > 0.5
            if facing and (best is None or distance < best[0]):
                best = (distance, number, (passed + share * size) / whole * lane.length)
            passed += size
    if best is None or best[0] > FARTHEST:
        what = "the goal" if orientation is None else "the initial state"
        raise NoDrive(f"{what} is not on a road for cars of the converted network")
    return lanes[best[1]], best[2], best[0]


def _route(network: StreetNetwork, start: str, end: str | None) -> list[str]:
    """Return the shortest route; without an end, the road of the start and those that follow it, up to 300 m."""
    if end is None:
        route = [start]
        while len(route) < EDGES and sum(network.lengths[edge] for edge in route) < 300.0:
            onward = [edge for edge in network.onward(route[-1]) if edge not in route]
            if not onward:
                break
            route.append(onward[0])
        return route
    pending: list[tuple[float, list[str]]] = [(0.0, [start])]
    seen: set[str] = set()
    while pending:
        length, route = heapq.heappop(pending)
        if route[-1] == end:
            return route
        if route[-1] in seen or len(route) >= EDGES:
            continue
        seen.add(route[-1])
        for onto in network.onward(route[-1]):
            heapq.heappush(pending, (length + network.lengths[onto], [*route, onto]))
    raise NoDrive(f"no route of up to {EDGES} roads leads from the initial state to the goal")
