"""Crossing events: an actor without right of way crosses the ego's path, timed to be there together with the ego."""

from itertools import pairwise
from math import sqrt

from .clock import DT
from .conflicts import ConflictMap
from .engine import sumo
from .event import ACTOR, ALL_CHECKS, DEFAULT_LANE_CHANGES, NO_CHECKS, NO_LANE_CHANGES, Ego, EventPlan, ScriptedEvent
from .geometry import ConflictArea, CrosswalkArea
from .street import JunctionPath
from .traffic import Traffic, sides


class CrossingVehicle(ScriptedEvent):
    """A vehicle crosses the ego's path without right of way, timed to be there together with the ego."""

    #: The actor's metres before the stop line, its speed while it waits, its top speed (m/s) and acceleration (m/s2).
    STOP_GAP, WAIT_SPEED, TOP_SPEED, ACCEL = 3.0, 0.0, 12.0, 3.5
    #: Whether the event needs a junction with traffic lights.
    NEEDS_LIGHTS = False
    #: Seconds by which the actor starts early, so that it crosses in front of an ego at constant speed, not behind it.
    MARGIN = 0.4

    def __init__(self, traffic: Traffic, conflict_map: ConflictMap, plan: EventPlan) -> None:
        super().__init__(traffic, conflict_map, plan)
        self.path, self.area = self._choose()
        self.crossed = False

    def _fits(self, area: ConflictArea) -> bool:
        """Return whether the event can happen at this conflict area: the actor must yield there, and not the ego."""
        return area.other_yields and not area.ego_yields

    def _choose(self) -> tuple[JunctionPath, ConflictArea]:
        """Return the route's first path with a suitable conflict area, preferring an actor that drives straight on."""
        route = self.plan.route
        for edge, onto in pairwise(route):
            leading = self.street.leading(edge, onto)
            lane = self.plan.lane if self.plan.lane in leading else leading[0]
            path = self.street.paths[(lane, onto)]
            if self.NEEDS_LIGHTS and path.light is None:
                continue
            fitting = [area for area in self.conflict_map.conflict_areas(path) if self._fits(area)]
            if fitting:
                return path, min(fitting, key=lambda area: (area.other.direction != "s", area.entry))
        raise ValueError("the route has no conflict area for this event")

    def insert(self) -> None:
        """Insert the actor on its lane, before the stop line."""
        other = self.area.other
        lane = self.street.lanes[other.lane]
        onward = [lane.edge, other.onto]
        while len(onward) < 6 and (following := self.street.following[onward[-1]]):
            onward.append(following[0])
        self._insert_actor(
            "actor", tuple(onward), other.lane, position=lane.length - self.STOP_GAP, speed=self.WAIT_SPEED
        )

    def begin(self) -> None:
        """Hold the actor on its lane."""
        sumo.vehicle.setSpeedMode(ACTOR, NO_CHECKS)
        sumo.vehicle.setLaneChangeMode(ACTOR, NO_LANE_CHANGES)
        sumo.vehicle.setSpeed(ACTOR, self.WAIT_SPEED)

    def _arrival(self) -> float:
        """Return the seconds the actor needs to the middle of the conflict area."""
        vehicle = sumo.vehicle
        other = self.area.other
        distance = self.street.lanes[other.lane].length - vehicle.getLanePosition(ACTOR)
        distance += (self.area.other_entry + self.area.other_exit) / 2
        return travel_time(distance, vehicle.getSpeed(ACTOR), self.ACCEL, self.TOP_SPEED)

    def step(self, ego: Ego) -> None:
        """Wait until the arrival times match, drive across, then return control to SUMO."""
        if self.crossed or self.arrived:
            return
        vehicle = sumo.vehicle
        lane = vehicle.getLaneID(ACTOR)
        if not self.triggered:
            if lane != self.area.other.lane:
                self._release()
            elif self.street.lanes[ego.lane].edge == self.street.lanes[self.path.lane].edge:
                ahead = self.street.lanes[ego.lane].length - ego.position + self.area.entry
                moving = ego.speed > 1.0 and (not self.NEEDS_LIGHTS or ego.light in ("G", "g"))
                if moving and ahead / max(3.0, ego.speed) <= self._arrival() + self.MARGIN:
                    self.triggered = True
            return
        speed = min(self.TOP_SPEED, vehicle.getSpeed(ACTOR) + self.ACCEL * DT)
        vehicle.setSpeed(ACTOR, speed)
        if lane.startswith(":") or lane == self.area.other.lane:
            return
        self._release()

    @property
    def over(self) -> bool:
        """Once the actor has crossed, or has arrived."""
        return self.crossed or self.arrived

    def _release(self) -> None:
        sumo.vehicle.setSpeed(ACTOR, -1)
        sumo.vehicle.setSpeedMode(ACTOR, ALL_CHECKS)
        sumo.vehicle.setLaneChangeMode(ACTOR, DEFAULT_LANE_CHANGES)
        self.crossed = True


class RedRunner(CrossingVehicle):
    """A vehicle runs a red light."""

    NEEDS_LIGHTS = True
    STOP_GAP = 1.0

    def _fits(self, area: ConflictArea) -> bool:
        return area.other.direction == "s" and self.street.lanes[area.other.lane].edge != self.plan.route[0]


class FailingToYield(CrossingVehicle):
    """A vehicle enters the roundabout in front of the ego."""

    STOP_GAP, TOP_SPEED, MARGIN = 1.0, 8.0, 0.2


class HurriedMajor(CrossingVehicle):
    """A vehicle on the main road approaches far above the speed limit."""

    STOP_GAP, WAIT_SPEED, TOP_SPEED, ACCEL, MARGIN = 100.0, 2.0, 18.8, 3.5, 0.0

    def _fits(self, area: ConflictArea) -> bool:
        return area.ego_yields and area.other.direction == "s"


class LatePedestrian(ScriptedEvent):
    """A pedestrian enters the crossing late, when the ego has almost reached it."""

    NAME, SPEED = "late", 2.0

    def __init__(self, traffic: Traffic, conflict_map: ConflictMap, plan: EventPlan) -> None:
        super().__init__(traffic, conflict_map, plan)
        self.path, self.crosswalk_area = self._choose()

    def _choose(self) -> tuple[JunctionPath, CrosswalkArea]:
        """Return the first pedestrian crossing after the trigger distance, and the path that it lies on."""
        route, driven = self.plan.route, -self.plan.position
        for edge, onto in pairwise(route):
            leading = self.street.leading(edge, onto)
            path = self.street.paths[(self.plan.lane if self.plan.lane in leading else leading[0], onto)]
            driven += self.street.lanes[path.lane].length
            crosswalk_areas = self.conflict_map.crosswalk_areas(path)
            if crosswalk_areas and driven >= self.plan.trigger:
                return path, crosswalk_areas[0]
            driven += path.length
        raise ValueError("the route has no pedestrian crossing after the trigger distance")

    def insert(self) -> None:
        """Insert the pedestrian on the pavement on the ego's side."""
        edges = sides(self.street, self.crosswalk_area.crosswalk)
        ego_edge = self.street.lanes[self.path.lane].edge
        near = ego_edge if ego_edge in edges else edges[0]
        far = next(edge for edge in edges if edge != near)
        self.traffic.add_pedestrian(self.NAME, near, far, distance=1.0, speed=self.SPEED)

    def begin(self) -> None:
        """Hold the pedestrian at the kerb."""
        sumo.person.setSpeed(self.NAME, 0.0)

    def step(self, ego: Ego) -> None:
        """Release the pedestrian when they and the ego would arrive at the ego's lane at the same time."""
        if self.triggered or self.street.lanes[ego.lane].edge != self.street.lanes[self.path.lane].edge:
            return
        x, y = sumo.person.getPosition(self.NAME)
        ahead = self.street.lanes[ego.lane].length - ego.position + self.crosswalk_area.entry
        shape = self.crosswalk_area.crosswalk.shape
        start = min(shape[0], shape[-1], key=lambda end: (end[0] - x) ** 2 + (end[1] - y) ** 2)
        along = self.crosswalk_area.across if start == shape[0] else self._width() - self.crosswalk_area.across
        distance = sqrt((start[0] - x) ** 2 + (start[1] - y) ** 2) + along
        if ego.speed > 1.0 and ahead / max(3.0, ego.speed) <= distance / self.SPEED:
            self.triggered = True
            sumo.person.setSpeed(self.NAME, self.SPEED)

    @property
    def over(self) -> bool:
        """Once the pedestrian has been released."""
        return self.triggered

    def _width(self) -> float:
        (ax, ay), (bx, by) = self.crosswalk_area.crosswalk.shape[0], self.crosswalk_area.crosswalk.shape[-1]
        return sqrt((ax - bx) ** 2 + (ay - by) ** 2)


def travel_time(distance: float, speed: float, accel: float, top_speed: float) -> float:
    """Return the seconds to drive a distance at constant acceleration up to the top speed."""
    acceleration_distance = max(0.0, (top_speed * top_speed - speed * speed) / (2 * accel))
    if distance <= acceleration_distance:
        return (sqrt(speed * speed + 2 * accel * distance) - speed) / accel
    return (top_speed - speed) / accel + (distance - acceleration_distance) / top_speed
