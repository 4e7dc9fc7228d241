"""Lead events: a vehicle ahead of the ego on its route brakes, stands, drives slowly or cuts in."""

from math import inf

from .clock import DT
from .conflicts import ConflictMap
from .engine import sumo
from .event import ACTOR, ALL_CHECKS, DEFAULT_LANE_CHANGES, NO_CHECKS, NO_LANE_CHANGES, Ego, EventPlan, ScriptedEvent
from .traffic import Traffic


class LeadBrake(ScriptedEvent):
    """The leading car brakes at 8 m/s2 to a stop, stands for two seconds and drives on."""

    #: Deceleration in m/s2; seconds of standing; metres ahead of the ego at the start; the largest gap in metres.
    DECEL, STAND, START, MAX_GAP = 8.0, 2.0, 32.0, 34.0

    def __init__(self, traffic: Traffic, conflict_map: ConflictMap, plan: EventPlan) -> None:
        super().__init__(traffic, conflict_map, plan)
        self.until = inf
        self.done = False

    def insert(self) -> None:
        """Insert the leader ahead of the ego on its lane."""
        index, position = self._ahead(self.START)
        if index:
            raise ValueError("the ego's first edge is too short for a leader")
        self._insert_actor("actor", self.plan.route, self.plan.lane, position=position, speed=self.plan.speed)

    def step(self, ego: Ego) -> None:
        """Wait until the gap is 10 to 40 m, brake, stand, drive on."""
        vehicle = sumo.vehicle
        if self.done or self.arrived:
            return
        if not self.triggered:
            gap = ego.gap()
            if ego.driven >= self.plan.trigger and 10.0 <= gap <= 40.0 and vehicle.getSpeed(ACTOR) > 2.0:
                self.triggered = True
                vehicle.setSpeedMode(ACTOR, NO_CHECKS)
            else:
                # The leader does not drive away from a slow ego, or only fast models would meet the event.
                vehicle.setSpeed(ACTOR, max(1.0, ego.speed) if gap > self.MAX_GAP else -1)
                return
        if self.until == inf:
            speed = max(0.0, vehicle.getSpeed(ACTOR) - self.DECEL * DT)
            vehicle.setSpeed(ACTOR, speed)
            if speed == 0.0:
                self.until = ego.now + self.STAND
        elif ego.now >= self.until:
            vehicle.setSpeed(ACTOR, -1)
            vehicle.setSpeedMode(ACTOR, ALL_CHECKS)
            self.done = True

    @property
    def over(self) -> bool:
        """Once the leader drives on, or has arrived."""
        return self.done or self.arrived


class StandingCar(ScriptedEvent):
    """A car stands in the ego's lane, for the whole scenario or until some seconds after the ego has approached."""

    #: Metres between the ego and the car at which the event counts as triggered.
    MEETING_GAP = 45.0
    #: Seconds; None: for the whole scenario.
    STANDSTILL: float | None = None

    def __init__(self, traffic: Traffic, conflict_map: ConflictMap, plan: EventPlan) -> None:
        super().__init__(traffic, conflict_map, plan)
        self.until = inf

    def insert(self) -> None:
        """Insert the car at the trigger distance, on a lane that leads along the route."""
        index, position = self._ahead(self.plan.trigger)
        route = self.plan.route
        following = route[index + 1] if index + 1 < len(route) else None
        lanes = self.street.leading(route[index], following)
        lane = self.plan.lane if self.plan.lane in lanes else lanes[0]
        self._insert_actor("actor", route[index:], lane, position=position, speed=0.0)

    def begin(self) -> None:
        """Stop the car."""
        sumo.vehicle.setSpeed(ACTOR, 0.0)

    def step(self, ego: Ego) -> None:
        """Record that the ego approaches; release the car after its standstill."""
        if not self.triggered and not self.arrived and ego.gap() <= self.MEETING_GAP:
            self.triggered = True
            self.until = ego.now + self.STANDSTILL if self.STANDSTILL is not None else inf
        if self.STANDSTILL is not None and ego.now >= min(self.until, self.STANDSTILL + 10.0) and not self.arrived:
            sumo.vehicle.setSpeed(ACTOR, -1)
            self.until = inf

    @property
    def over(self) -> bool:
        """Once the event is triggered and the car stays, or it has arrived."""
        return self.arrived or (self.triggered and self.STANDSTILL is None)


class Stalled(StandingCar):
    """A car stands for fifteen seconds, then drives on."""

    STANDSTILL = 15.0


class SlowTruck(ScriptedEvent):
    """A truck drives ahead of the ego at 8 m/s."""

    #: Seconds at the ego's speed, and metres: closer to so fast a follower, SUMO would not insert the truck.
    SECONDS, START = 2.5, 25.0

    def insert(self) -> None:
        """Insert the truck ahead of the ego on its lane."""
        index, position = self._ahead(self.START + self.SECONDS * self.plan.speed)
        route = self.plan.route[index:]
        lane = self.plan.lane if index == 0 else self.street.edges[route[0]][0]
        self._insert_actor("truck", route, lane, position=position, speed=8.0)

    def step(self, ego: Ego) -> None:
        """Record that the ego has caught up with the truck."""
        if not self.triggered and not self.arrived and ego.gap() < 40.0:
            self.triggered = True

    @property
    def over(self) -> bool:
        """Once the ego has caught up, or the truck has arrived."""
        return self.triggered or self.arrived


class CutIn(ScriptedEvent):
    """A car on the adjacent lane keeps a gap ahead of the ego, then changes to the ego's lane and slows down."""

    #: Metres ahead of the ego; m/s slower than the ego after the lane change; seconds of that speed.
    AHEAD, SLOWDOWN, SECONDS = 9.0, 2.0, 3.0

    def __init__(self, traffic: Traffic, conflict_map: ConflictMap, plan: EventPlan) -> None:
        super().__init__(traffic, conflict_map, plan)
        self.until = inf
        self.done = False

    def insert(self) -> None:
        """Insert the car on the lane to the ego's left, or to its right if the ego is on the leftmost lane."""
        lanes = self.street.edges[self.plan.route[0]]
        rank = lanes.index(self.plan.lane)
        beside = rank + 1 if rank + 1 < len(lanes) else rank - 1
        if beside < 0:
            raise ValueError("a cut-in needs a road of at least two lanes")
        position = self.plan.position + 18.0
        self._insert_actor("actor", self.plan.route, lanes[beside], position=position, speed=self.plan.speed)

    def begin(self) -> None:
        """Keep the car on its lane until the cut-in."""
        sumo.vehicle.setLaneChangeMode(ACTOR, NO_LANE_CHANGES)

    def step(self, ego: Ego) -> None:
        """Hold the gap to the ego, cut in, slow down, drive on."""
        vehicle = sumo.vehicle
        if self.done or self.arrived:
            return
        if self.triggered:
            if ego.now >= self.until:
                vehicle.setSpeed(ACTOR, -1)
                vehicle.setSpeedMode(ACTOR, ALL_CHECKS)
                vehicle.setLaneChangeMode(ACTOR, DEFAULT_LANE_CHANGES)
                self.done = True
            return
        gap = ego.gap()
        road, ego_lane = vehicle.getRoadID(ACTOR), self.street.lanes[ego.lane]
        vehicle.setSpeed(ACTOR, max(1.0, ego.speed + 0.5 * (self.AHEAD - gap)) if gap < 200.0 else -1)
        close = self.AHEAD - 3.0 <= gap <= self.AHEAD + 6.0
        if ego.driven >= self.plan.trigger and close and road == ego_lane.edge and ego.speed > 2.0:
            rank = self.street.lanes[vehicle.getLaneID(ACTOR)].rank
            if rank == ego_lane.rank:
                self.triggered = self.done = True
                vehicle.setSpeed(ACTOR, -1)
                return
            self.triggered = True
            self.until = ego.now + self.SECONDS
            vehicle.setSpeedMode(ACTOR, NO_CHECKS)
            vehicle.setSpeed(ACTOR, max(1.0, ego.speed - self.SLOWDOWN))
            vehicle.changeLaneRelative(ACTOR, 1 if ego_lane.rank > rank else -1, DT)

    @property
    def over(self) -> bool:
        """Once the car drives on, or has arrived."""
        return self.done or self.arrived
