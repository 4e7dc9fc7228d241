"""Who else is on the street: cars on random walks and people at the crossings, all drawn from one seed."""

from collections.abc import Mapping
from random import Random
from typing import Any

from .engine import EGO, sumo
from .street import Street, Zebra

#: Shares of calm, normal and aggressive drivers.
MIXES: Mapping[str, tuple[float, float, float]] = {"mixed": (0.25, 0.60, 0.15), "rough": (0.0, 0.5, 0.5)}
DRIVERS = ("calm", "normal", "aggressive")

#: Metres between bumpers that the types of `types.add.xml` keep at least, which SUMO leaves out of every gap.
MIN_GAP: Mapping[str, float] = {"calm": 2.5, "normal": 2.5, "aggressive": 1.2, "truck": 2.5, "actor": 2.0}

#: Long enough that nobody's walk ends within the minute; roads that end are turned on.
WALK = 25


class Traffic:
    """The vehicles and persons of one scenario, with what the world must remember of each."""

    def __init__(self, street: Street, rng: Random) -> None:
        self.street = street
        self.rng = rng
        self.routes: dict[str, tuple[str, ...]] = {}
        self.min_gap: dict[str, float] = {}
        self.persons: list[str] = []

    def vehicle(
        self,
        name: str,
        kind: str,
        route: tuple[str, ...],
        *,
        lane: str = "random",
        at: str = "random_free",
        speed: str = "max",
    ) -> None:
        """Put one vehicle in at t = 0."""
        sumo.route.add(name, route)
        sumo.vehicle.add(name, name, typeID=kind, departLane=lane, departPos=at, departSpeed=speed)
        self.routes[name] = route
        self.min_gap[name] = MIN_GAP.get(kind, 0.0)

    def ego(self, route: tuple[str, ...], lane: str, at: float, speed: float) -> None:
        """Put the model's car in; it comes first, so that nobody stands in its place."""
        sumo.route.add(EGO, route)
        sumo.vehicle.add(
            EGO, EGO, typeID="ego", departLane=lane, departPos=f"{at:g}", departSpeed=f"{speed:g}", arrivalPos="max"
        )

    def walk(self) -> tuple[str, ...]:
        """Return a random drive: a start on any edge that leads on, weighted by length, then turns at random."""
        street = self.street
        # Who starts on a street's last stretches is gone before the ego sees them.
        starts = [edge for edge in street.edges if any(street.following[onto] for onto in street.following[edge])]
        weights = [street.lanes[street.edges[edge][0]].length for edge in starts]
        route = self.rng.choices(starts, weights)
        while len(route) < WALK and (onward := street.following[route[-1]]):
            route.append(onward[int(self.rng.random() * len(onward))])
        return tuple(route)

    def fill(self, vehicles: int, mix: str) -> None:
        """Put the ordinary cars in."""
        for number in range(vehicles):
            kind = self.rng.choices(DRIVERS, MIXES[mix])[0]
            self.vehicle(f"v{number}", kind, self.walk())

    def crowd(self, pedestrians: int) -> None:
        """Put people on the pavements, each about to cross somewhere and to come back."""
        for number in range(pedestrians):
            zebra = self.rng.choice(self.street.zebras)
            near, far = self.rng.sample(sides(self.street, zebra), 2)
            self.person(f"p{number}", near, far, self.rng.uniform(2.0, 45.0), self.rng.uniform(1.0, 1.8))

    def person(self, name: str, near: str, far: str, distance: float, speed: float) -> None:
        """Let someone walk to the crossing, over it, on, and back; ``distance`` is the metres before its kerb."""
        # Both edges end or begin at the crossing; a person may walk an edge against its direction.
        length = self.street.lanes[self.street.edges[near][0]].length
        begin = length - distance if self.street.pavements[near][1][-1] == self._kerb_end(near, far) else distance
        sumo.person.add(name, near, max(1.0, min(length - 1.0, begin)), typeID="walker")
        sumo.person.appendWalkingStage(name, [near, far], length / 2)
        sumo.person.appendWalkingStage(name, [far, near], length / 2)
        sumo.person.setSpeed(name, speed)
        self.persons.append(name)

    def _kerb_end(self, near: str, far: str) -> tuple[float, float]:
        """Return the end of the near pavement that lies closer to the far one."""
        shape, other = self.street.pavements[near][1], self.street.pavements[far][1]
        ends = (shape[0], shape[-1])
        return min(ends, key=lambda end: min((end[0] - x) ** 2 + (end[1] - y) ** 2 for x, y in (other[0], other[-1])))


def sides(street: Street, zebra: Zebra) -> list[str]:
    """Return the two edges a zebra crosses, whose pavements it joins."""
    return [edge for edge in zebra.edges if edge in street.pavements]


def shift_lights(street: Street, rng: Random) -> None:
    """Begin each light somewhere in its cycle, so that nobody can learn the lights by the clock."""
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
    """Return a vehicle as a replay draws it."""
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
