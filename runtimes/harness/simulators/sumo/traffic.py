"""Surrounding traffic: vehicles on random routes and pedestrians at the crossings, drawn from one seed."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from random import Random
from typing import Any

from .engine import EGO, sumo
from .street import Crosswalk, Street

#: Proportions of calm, normal and aggressive drivers.
MIXES: Mapping[str, tuple[float, float, float]] = {"mixed": (0.25, 0.60, 0.15), "rough": (0.0, 0.5, 0.5)}
DRIVERS = ("calm", "normal", "aggressive")

#: minGap in metres of the vehicle types in `types.add.xml`; SUMO subtracts it from the gaps that it reports.
MIN_GAP: Mapping[str, float] = {"calm": 2.5, "normal": 2.5, "aggressive": 1.2, "truck": 2.5, "actor": 2.0}

#: Edges of a random route: enough that no vehicle reaches its end within a minute. At dead ends, vehicles turn around.
ROUTE_EDGES = 25


class Traffic:
    """The vehicles and pedestrians of one scenario, with their routes, their minGaps and the pedestrians' ids."""

    def __init__(self, street: Street, rng: Random, near: Sequence[str] | None = None) -> None:
        """Vehicles start on the edges ``near``; None: anywhere."""
        self.street = street
        self.rng = rng
        self._near = near
        self.routes: dict[str, tuple[str, ...]] = {}
        self.min_gap: dict[str, float] = {}
        self.persons: list[str] = []

    def add_vehicle(
        self,
        name: str,
        kind: str,
        route: tuple[str, ...],
        *,
        lane: str = "random",
        position: str = "random_free",
        speed: str = "max",
    ) -> None:
        """Add a vehicle at t = 0."""
        sumo.route.add(name, route)
        sumo.vehicle.add(name, name, typeID=kind, departLane=lane, departPos=position, departSpeed=speed)
        self.routes[name] = route
        self.min_gap[name] = MIN_GAP.get(kind, 0.0)

    def add_ego(self, route: tuple[str, ...], lane: str, position: float, speed: float) -> None:
        """Add the model's car; it is added first, so that its position is free."""
        sumo.route.add(EGO, route)
        sumo.vehicle.add(
            EGO,
            EGO,
            typeID="ego",
            departLane=lane,
            departPos=f"{position:g}",
            departSpeed=f"{speed:g}",
            arrivalPos="max",
        )

    def random_route(self) -> tuple[str, ...]:
        """Return a random route: a start edge, weighted by length, then a random choice at each junction."""
        street = self.street
        route = self.rng.choices(*self._starts)
        while len(route) < ROUTE_EDGES and (onward := street.following[route[-1]]):
            route.append(onward[int(self.rng.random() * len(onward))])
        return tuple(route)

    @cached_property
    def _starts(self) -> tuple[list[str], list[float]]:
        """Edges where vehicles start, with their lengths."""
        street = self.street
        edges = street.edges if self._near is None else self._near
        # A vehicle that started on one of the last edges would leave the street before the ego meets it.
        starts = [edge for edge in edges if any(street.following[onto] for onto in street.following[edge])]
        if self._near is not None:
            starts = starts or list(edges)  # a map of one road has only last edges
        return starts, [street.lanes[street.edges[edge][0]].length for edge in starts]

    def add_vehicles(self, vehicles: int, mix: str) -> None:
        """Add the surrounding vehicles."""
        for number in range(vehicles):
            kind = self.rng.choices(DRIVERS, MIXES[mix])[0]
            self.add_vehicle(f"v{number}", kind, self.random_route())

    def add_pedestrians(self, pedestrians: int) -> None:
        """Add pedestrians, each of whom walks over a random crossing and back."""
        for number in range(pedestrians):
            crosswalk = self.rng.choice(self.street.crosswalks)
            near, far = self.rng.sample(sides(self.street, crosswalk), 2)
            distance, speed = self.rng.uniform(2.0, 45.0), self.rng.uniform(1.0, 1.8)
            self.add_pedestrian(f"p{number}", near, far, distance=distance, speed=speed)

    def add_pedestrian(self, name: str, near: str, far: str, *, distance: float, speed: float) -> None:
        """Add a pedestrian who walks to the crossing, over it, on, and back, from ``distance`` metres before its kerb.

        ``near`` and ``far`` are the edges on either side of the crossing.
        """
        # Both edges end or begin at the crossing; a pedestrian may walk along an edge against its direction.
        length = self.street.lanes[self.street.edges[near][0]].length
        begin = length - distance if self.street.pavements[near][1][-1] == self._kerb_end(near, far) else distance
        sumo.person.add(name, near, max(1.0, min(length - 1.0, begin)), typeID="walker")
        sumo.person.appendWalkingStage(name, [near, far], length / 2)
        sumo.person.appendWalkingStage(name, [far, near], length / 2)
        sumo.person.setSpeed(name, speed)
        self.persons.append(name)

    def _kerb_end(self, near: str, far: str) -> tuple[float, float]:
        """Return the end of the near edge's pavement that is closer to the far edge's pavement."""
        shape, other = self.street.pavements[near][1], self.street.pavements[far][1]
        ends = (shape[0], shape[-1])
        return min(ends, key=lambda end: min((end[0] - x) ** 2 + (end[1] - y) ** 2 for x, y in (other[0], other[-1])))


def sides(street: Street, crosswalk: Crosswalk) -> list[str]:
    """Return the edges whose pavements a crossing connects."""
    return [edge for edge in crosswalk.edges if edge in street.pavements]


def shift_lights(street: Street, rng: Random) -> None:
    """Start each traffic light at a random point of its cycle, so that a model cannot learn the lights by time."""
    for light in street.lights:
        phases = sumo.trafficlight.getAllProgramLogics(light)[0].phases
        offset = rng.random() * sum(phase.duration for phase in phases)
        for index, phase in enumerate(phases):
            if offset < phase.duration:
                sumo.trafficlight.setPhase(light, index)
                sumo.trafficlight.setPhaseDuration(light, phase.duration - offset)
                break
            offset -= phase.duration


def describe(name: str) -> dict[str, Any]:
    """Return a vehicle's state for a replay frame."""
    vehicle = sumo.vehicle
    x, y = vehicle.getPosition(name)
    return {
        "id": name,
        "kind": vehicle.getTypeID(name),
        "x": round(x, 2),
        "y": round(y, 2),
        "angle": round(vehicle.getAngle(name), 1),
        "length": round(vehicle.getLength(name), 2),
        "width": round(vehicle.getWidth(name), 2),
        "speed": round(vehicle.getSpeed(name), 2),
        "brake": bool(vehicle.getSignals(name) & 8),
    }
