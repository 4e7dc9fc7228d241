"""Conflicts at junctions and pedestrian crossings: the next conflict for the observation, and the minimum PET."""

from collections.abc import Mapping
from functools import cache, partial
from math import cos, hypot, inf, radians, sin

from .engine import EGO, sumo
from .geometry import ConflictArea, CrosswalkArea, conflict_areas, crosswalk_areas, project
from .post_encroachment import PostEncroachment
from .street import JunctionPath, Shape, Street

#: Metres before a junction within which conflicts are detected; the bound of the observation's distances.
CONFLICT_RANGE = 60.0
#: A conflict in the observation: present, the ego's metres to it, the other's metres to it, the other's speed.
Conflict = tuple[float, float, float, float]
NO_CONFLICT: Conflict = (0.0, CONFLICT_RANGE, CONFLICT_RANGE, 0.0)
#: A vehicle inside the junction: the conflict area, metres of its front and rear along its path, speed.
Occupant = tuple[ConflictArea, float, float, float]
EGO_LENGTH = 4.5
#: SUMO's signal states that forbid passing: red, and red with yellow.
RED = frozenset("rRuU")
#: Deceleration (m/s2) that is expected of vehicles that must yield to the ego.
EXPECTED_DECELERATION = 4.0


class ConflictMap:
    """A street's conflict areas and crosswalk areas by path; computed on first use, kept for the process's life."""

    def __init__(self, street: Street) -> None:
        self.street = street
        #: Return the conflict areas of a path, and the pedestrian crossings on it.
        self.conflict_areas = cache(partial(conflict_areas, street))
        self.crosswalk_areas = cache(partial(crosswalk_areas, street))


class JunctionTraversal:
    """The ego's way through one junction: its path, the conflict areas on it, and their PETs."""

    def __init__(self, conflict_map: ConflictMap, path: JunctionPath, origin: float) -> None:
        self.path = path
        #: The ego's odometer at the start of the path.
        self.origin = origin
        self.crosswalk_areas = conflict_map.crosswalk_areas(path)
        self.encroachments = [PostEncroachment(area, EGO_LENGTH) for area in conflict_map.conflict_areas(path)]
        #: Metres on the path to the first conflict area.
        self.first_entry = min((encroachment.area.entry for encroachment in self.encroachments), default=inf)
        self.inner_lanes: dict[str, list[tuple[ConflictArea, float]]] = {}
        self.approach_lanes: dict[str, dict[str, ConflictArea]] = {}
        for area in conflict_map.conflict_areas(path):
            for lane, before in area.other.pieces:
                self.inner_lanes.setdefault(lane, []).append((area, before))
            if area.ego_yields:
                self.approach_lanes.setdefault(area.other.lane, {})[area.other.onto] = area


class ConflictDetector:
    """Detects conflicts at the junctions of one scenario, step by step; ``min_pet`` is the least PET so far."""

    def __init__(self, conflict_map: ConflictMap, routes: Mapping[str, tuple[str, ...]]) -> None:
        self.conflict_map = conflict_map
        self.routes = routes
        self.min_pet = inf
        self._traversal: JunctionTraversal | None = None
        self._finished: list[JunctionTraversal] = []

    def detect(self, path: JunctionPath | None, driven: float, odometer: float, light: str, now: float) -> Conflict:
        """Return the next conflict; ``driven`` is metres along the path, negative before it.

        On a protected green ("G") all others must wait, so only vehicles that already obstruct the path count.
        """
        best = NO_CONFLICT
        if path is not None and driven >= -CONFLICT_RANGE:
            if self._traversal is None or self._traversal.path is not path:
                if self._traversal is not None:
                    self._finished.append(self._traversal)
                self._traversal = JunctionTraversal(self.conflict_map, path, odometer - driven)
            self._traversal.origin = odometer - driven
            best = self._next_conflict(self._traversal, driven, light, now)
        for traversal in self._finished:
            self._update_pet(traversal, odometer - traversal.origin, self._vehicles_inside(traversal), now)
        if self._finished:
            self._finished = [
                traversal
                for traversal in self._finished
                if not all(encroachment.expired(now) for encroachment in traversal.encroachments)
            ]
        return best

    def _next_conflict(self, traversal: JunctionTraversal, driven: float, light: str, now: float) -> Conflict:
        best, least_arrival = NO_CONFLICT, inf
        occupants = self._vehicles_inside(traversal) if driven > -30.0 else []
        self._update_pet(traversal, driven, occupants, now)
        if light not in RED:
            approaching = [
                (area, area.other_entry - front, speed)
                for area, front, rear, speed in occupants
                if driven < area.exit and obstructs(area, front, rear, speed, light)
            ]
            if light != "G":
                approaching += [
                    vehicle for vehicle in self._vehicles_approaching(traversal) if driven < vehicle[0].entry
                ]
            for area, distance, speed in approaching:
                arrival = distance / (speed + 1.0)
                if arrival < least_arrival:
                    least_arrival = arrival
                    best = (
                        1.0,
                        max(0.0, min(CONFLICT_RANGE, area.entry - driven)),
                        max(0.0, min(CONFLICT_RANGE, distance)),
                        speed,
                    )
        for crosswalk_area in traversal.crosswalk_areas:
            if driven < crosswalk_area.exit:
                best = self._nearest_pedestrian(crosswalk_area, crosswalk_area.entry - driven, best)
        return best

    def _vehicles_inside(self, traversal: JunctionTraversal) -> list[Occupant]:
        """Return the vehicles inside the junction whose paths overlap with the ego's."""
        occupants = []
        vehicle = sumo.vehicle
        for lane, areas in traversal.inner_lanes.items():
            for name in sumo.lane.getLastStepVehicleIDs(lane):
                if name == EGO:
                    continue
                position, length, speed = vehicle.getLanePosition(name), vehicle.getLength(name), vehicle.getSpeed(name)
                next_edge = self._next_edge(name)
                for area, before in areas:
                    if area.other.onto == next_edge:
                        occupants.append((area, before + position, before + position - length, speed))
        return occupants

    def _vehicles_approaching(self, traversal: JunctionTraversal) -> list[tuple[ConflictArea, float, float]]:
        """Return the vehicles before the junction to which the ego must yield: conflict area, metres to it, speed."""
        vehicles = []
        vehicle, lights = sumo.vehicle, ""
        for lane, areas in traversal.approach_lanes.items():
            length = self.conflict_map.street.lanes[lane].length
            for name in sumo.lane.getLastStepVehicleIDs(lane):
                area = areas.get(self._next_edge(name) or "")
                if area is None or name == EGO:
                    continue
                if area.other.light is not None:
                    lights = lights or sumo.trafficlight.getRedYellowGreenState(area.other.light)
                    if lights[area.other.light_index] in RED:
                        continue
                distance = length - vehicle.getLanePosition(name) + area.other_entry
                if distance <= CONFLICT_RANGE:
                    vehicles.append((area, distance, vehicle.getSpeed(name)))
        return vehicles

    def _next_edge(self, name: str) -> str | None:
        """Return the edge a vehicle turns onto next, which other drivers know from its indicator."""
        route = self.routes.get(name)
        if route is None:
            return None
        index = sumo.vehicle.getRouteIndex(name) + 1
        return route[index] if index < len(route) else None

    def _update_pet(self, traversal: JunctionTraversal, driven: float, occupants: list[Occupant], now: float) -> None:
        if not occupants and driven < traversal.first_entry:
            return
        for encroachment in traversal.encroachments:
            others = [(front, rear) for area, front, rear, _ in occupants if area is encroachment.area]
            self.min_pet = min(self.min_pet, encroachment.update(driven, others, now))

    @staticmethod
    def _nearest_pedestrian(crosswalk_area: CrosswalkArea, ahead: float, best: Conflict) -> Conflict:
        """Return the conflict with the nearest pedestrian on the crossing, or entering it, not yet past the ego's lane.

        ``ahead`` is the ego's metres to the crossing; ``best`` is returned if no pedestrian is nearer.
        """
        if ahead > CONFLICT_RANGE:
            return best
        person, crosswalk = sumo.person, crosswalk_area.crosswalk
        for edge in (crosswalk.id, *crosswalk.kerbs):
            for name in sumo.edge.getLastStepPersonIDs(edge):
                along, speed = project(crosswalk.shape, *person.getPosition(name)), person.getSpeed(name)
                if edge == crosswalk.id:
                    forward = heads_forward(crosswalk.shape, person.getAngle(name))
                    # Half a car's width and half a metre beyond the middle of the ego's lane, they are out of the way.
                    if (along - crosswalk_area.across if forward else crosswalk_area.across - along) > 1.5:
                        continue
                elif speed < 0.1 or person.getNextEdge(name) != crosswalk.id:
                    continue
                distance = abs(along - crosswalk_area.across)
                if not best[0] or ahead < best[1] or distance < best[2]:
                    best = (1.0, max(0.0, min(CONFLICT_RANGE, ahead)), min(CONFLICT_RANGE, distance), speed)
        return best


def obstructs(area: ConflictArea, front: float, rear: float, speed: float, light: str) -> bool:
    """Return whether a vehicle inside the junction is in the conflict area, or will enter it before the ego.

    A vehicle that must yield to the ego counts only if it is in the area already or can no longer stop before it.
    """
    if rear > area.other_exit:
        return False
    gap = area.other_entry - front
    return gap <= 0.0 or (area.ego_yields and light != "G") or speed * speed > 2.0 * EXPECTED_DECELERATION * gap


def heads_forward(shape: Shape, angle: float) -> bool:
    """Return whether a compass angle points from a crossing's start to its end."""
    (ax, ay), (bx, by) = shape[0], shape[-1]
    return (bx - ax) * sin(radians(angle)) + (by - ay) * cos(radians(angle)) > 1e-6 * hypot(bx - ax, by - ay)
