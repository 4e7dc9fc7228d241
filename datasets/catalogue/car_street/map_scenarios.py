"""Scenarios on maps of users: routes, starts, traffic and events, drawn from the map's network, its name and a seed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from math import sqrt
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datasets.catalogue.car_street.street_network import StreetNetwork

DENSITIES = ("sparse", "medium", "dense")
MIXES = ("mixed", "rough")
#: The longest time limit in seconds, and the mean speed, as a share of the speed limit, that a time limit allows for.
MAX_TIME_LIMIT, MIN_SPEED_SHARE = 60.0, 0.35
#: Seconds of a traffic light's cycle: short, so that a route over three lights can be driven in a minute.
CYCLE = 40
#: The shortest route in metres that is worth a scenario, and the most edges of a route.
SHORTEST, EDGES = 100.0, 20
#: A route takes so many seconds at the limit of its first edge, within these metres.
SECONDS, LENGTHS = 30.0, (120.0, 900.0)
#: Metres around a route where traffic starts; vehicles per kilometre of lane there, by density, and their bounds.
RADIUS, PER_KILOMETRE, VEHICLES = 250.0, (2.0, 4.0, 7.0), (3, 60)
#: Limits in m/s and lanes of an edge that a route may use: those of the observation.
LIMITS, LANES = (2.0, 50.0), 5
#: Attempts at a route, and at a route that allows for an event.
ATTEMPTS, FOR_EVENT = 400, 30

Route = tuple[str, ...]


class NoRoute(Exception):
    """The map has no route of a useful length."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """Start of a scenario: lane from the right, metres on the first edge, m/s."""

    lane: int
    position: float
    speed: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Drive:
    """A route with its start, and the metres from the start to the end of each of its edges."""

    route: Route
    start: Start
    ends: tuple[float, ...]


@dataclass(frozen=True)
class _Map:
    network: StreetNetwork

    @cached_property
    def usable(self) -> list[str]:
        """Edges that routes may use, sorted."""
        network = self.network
        return [
            edge
            for edge in sorted(network.lengths)
            if LIMITS[0] <= network.limits[edge] <= LIMITS[1] and network.lanes[edge] <= LANES
        ]

    @cached_property
    def onward(self) -> Mapping[str, list[str]]:
        """Usable edge -> the usable edges that follow."""
        allowed = set(self.usable)
        return {edge: [onto for onto in self.network.onward(edge) if onto in allowed] for edge in self.usable}

    @cached_property
    def weights(self) -> list[float]:
        """Cumulative lengths of the usable edges; a road that leads nowhere is rarely a start."""
        metres = (self.network.lengths[edge] * (1.0 if self.onward[edge] else 0.1) for edge in self.usable)
        return list(accumulate(metres))

    def drive(self, rng: Random) -> Drive | None:
        """Draw a route and a start; None if the walk ended too early."""
        network = self.network
        first = rng.choices(self.usable, cum_weights=self.weights)[0]
        low, high = LENGTHS
        wanted = rng.uniform(0.75, 1.0) * min(high, max(low, SECONDS * network.limits[first]))
        # From a long edge, the route begins near its end, so that it meets a junction.
        share = wanted * rng.uniform(0.4, 0.6) if self.onward[first] else wanted
        position = max(min(rng.uniform(5.0, 30.0), 0.5 * network.lengths[first]), network.lengths[first] - share)
        route, junctions, length = [first], {network.ends[first]}, network.lengths[first] - position
        while length < wanted and len(route) < EDGES:
            choices = [onto for onto in self.onward[route[-1]] if network.ends[onto] not in junctions]
            if not choices:
                break
            onto = choices[int(rng.random() * len(choices))]
            length += network.lengths[onto] + network.crossings.get((route[-1], onto), 0.0)
            junctions.add(network.ends[onto])
            route.append(onto)
        if length < SHORTEST or length > 2.5 * high:
            return None
        lanes = network.leading(first, route[1]) if len(route) > 1 else list(range(network.lanes[first]))
        ends = [network.lengths[first] - position]
        for edge, onto in pairwise(route):
            ends.append(ends[-1] + network.crossings.get((edge, onto), 0.0) + network.lengths[onto])
        # Slow enough to stop within the first edge at 2 m/s2.
        speed = min(0.58 * network.limits[first], sqrt(2.0 * 2.0 * ends[0]))
        start = Start(lane=rng.choice(lanes), position=round(position, 1), speed=round(speed, 1))
        return Drive(route=tuple(route), start=start, ends=tuple(ends))

    def place(self, drive: Drive, ahead: float) -> tuple[int, float] | None:
        """Return the edge of a route and the position on it, some metres ahead of the start; None: too near an end."""
        for index, (edge, end) in enumerate(zip(drive.route, drive.ends, strict=True)):
            length = self.network.lengths[edge]
            if ahead <= end:
                position = length - (end - ahead)
                return (index, position) if 15.0 <= position <= length - 15.0 else None
        return None

    def lane_kilometres(self, route: Route) -> float:
        """Return the kilometres of lanes around a route."""
        own = np.array([self.network.boxes[edge] for edge in route])
        (west, south), (east, north) = own[:, :2].min(axis=0) - RADIUS, own[:, 2:].max(axis=0) + RADIUS
        boxes, lanes = self._lanes
        near = (boxes[:, 0] <= east) & (boxes[:, 2] >= west) & (boxes[:, 1] <= north) & (boxes[:, 3] >= south)
        return float(lanes[near].sum()) / 1000.0

    @cached_property
    def _lanes(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The boxes of all edges, and the metres of their lanes."""
        network = self.network
        metres = [network.lengths[edge] * network.lanes[edge] for edge in network.boxes]
        return np.array(list(network.boxes.values())), np.array(metres)


def _lead_brake(map: _Map, drive: Drive, rng: Random) -> float | None:
    return round(rng.uniform(30.0, 90.0), 1) if drive.ends[0] > 45.0 and drive.ends[-1] > 150.0 else None


def _stopped_vehicle(map: _Map, drive: Drive, rng: Random) -> float | None:
    ahead = round(rng.uniform(0.35, 0.6) * drive.ends[-1], 1)
    place = map.place(drive, ahead)
    if place is None or map.network.lanes[drive.route[place[0]]] < 2 or ahead < 45.0:
        return None
    return ahead


def _stalled(map: _Map, drive: Drive, rng: Random) -> float | None:
    ahead = round(rng.uniform(60.0, 80.0), 1)
    return ahead if map.place(drive, ahead) is not None else None


def _cut_in(map: _Map, drive: Drive, rng: Random) -> float | None:
    lane, route, network = drive.start.lane, drive.route, map.network
    lanes = network.leading(route[0], route[1]) if len(route) > 1 else list(range(network.lanes[route[0]]))
    beside = lane + 1 if lane + 1 < network.lanes[route[0]] else lane - 1
    return round(rng.uniform(30.0, 60.0), 1) if beside in lanes and drive.ends[0] > 110.0 else None


def _slow_truck(map: _Map, drive: Drive, rng: Random) -> float | None:
    ahead = 25.0 + 2.5 * drive.start.speed
    fast = map.network.limits[drive.route[0]] >= 15.0
    return 0.0 if fast and drive.ends[0] > ahead + 20.0 else None


#: Events, each with the function that returns its trigger in metres, or None if the route does not allow for it.
EVENTS: Mapping[str, Callable[[_Map, Drive, Random], float | None]] = {
    "none": lambda map, drive, rng: 0.0,
    "lead_brake": _lead_brake,
    "stopped_vehicle": _stopped_vehicle,
    "cut_in": _cut_in,
    "stalled": _stalled,
    "slow_truck": _slow_truck,
}


def generate(name: str, network: StreetNetwork, count: int, seed: int) -> list[dict[str, Any]]:
    """Return ``count`` scenarios on the map ``name``. Raises NoRoute if it has no route of a useful length."""
    map = _Map(network)
    # The events that some route of this map allows for, so that each has its share of the scenarios.
    drawn = ((event, _drive(map, event, Random(f"{name}:{seed}:{event}"))) for event in EVENTS)
    examples = {event: example for event, example in drawn if example is not None}
    if not examples:
        raise NoRoute
    return [_scenario(map, name, index, examples, seed) for index in range(count)]


def _scenario(
    map: _Map, name: str, index: int, examples: Mapping[str, tuple[Drive, float]], seed: int
) -> dict[str, Any]:
    density, mix = index % 3, MIXES[index // 3 % 2]
    event = list(examples)[index // 6 % len(examples)]
    rng = Random(f"{name}:{seed}:{index}")
    drive, trigger = _drive(map, event, rng) or examples[event]
    network, length = map.network, drive.ends[-1]
    free = drive.ends[0] / network.limits[drive.route[0]]
    free += sum(network.lengths[edge] / network.limits[edge] for edge in drive.route[1:])
    limit = sum([drive.ends[0], *(network.lengths[edge] for edge in drive.route[1:])]) / free
    lights = sum(network.ends[edge] in network.signalled for edge in drive.route[:-1])
    vehicles = round(PER_KILOMETRE[density] * map.lane_kilometres(drive.route))
    return {
        "index": index,
        "name": f"{name}-{index:04}-{DENSITIES[density]}-{event}-{mix}",
        "street": name,
        "density": DENSITIES[density],
        "vehicles": min(VEHICLES[1], max(VEHICLES[0], vehicles)),
        "event": event,
        "mix": mix,
        "seed": seed,
        "route": list(drive.route),
        "start": {"lane": drive.start.lane, "pos": drive.start.position, "speed": drive.start.speed},
        "trigger": trigger,
        "limit": round(max(1.0, limit), 3),
        "time_limit": min(MAX_TIME_LIMIT, round(length / (MIN_SPEED_SHARE * limit) + (CYCLE if lights else 0.0), 1)),
        "radius": RADIUS,
    }


def _drive(map: _Map, event: str, rng: Random) -> tuple[Drive, float] | None:
    """Draw a route that allows for an event; None if there is none among those drawn."""
    fitting = 0
    for _ in range(ATTEMPTS if map.usable else 0):
        drive = map.drive(rng)
        if drive is None:
            continue
        if (trigger := EVENTS[event](map, drive, rng)) is not None:
            return drive, trigger
        fitting += 1
        if fitting >= FOR_EVENT:
            return None
    return None
