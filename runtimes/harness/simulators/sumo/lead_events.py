"""Events before the ego on its own way: cars that brake, stand, crawl or cut in."""

from math import inf

from .clock import DT
from .conflicts import Ways
from .engine import sumo
from .event import ACTOR, BLIND, CAREFUL, FREE, STAY, Ego, EventPlan, ScriptedEvent
from .traffic import Traffic


class LeadBrake(ScriptedEvent):
    """The car ahead brakes at 8 m/s2 to a stop, stands for two seconds and drives on."""

    DECEL, STAND, START, KEEP = 8.0, 2.0, 32.0, 34.0

    def __init__(self, traffic: Traffic, ways: Ways, plan: EventPlan) -> None:
        super().__init__(traffic, ways, plan)
        self.until = inf
        self.done = False

    def set(self) -> None:
        """Put the leader ahead on the ego's lane."""
        index, at = self._ahead(self.START)
        if index:
            raise ValueError("the ego's first edge is too short for a leader")
        self._put("actor", self.plan.route, self.plan.lane, at, self.plan.speed)

    def step(self, ego: Ego) -> None:
        """Wait for the ego within 10 to 40 m, brake, stand, go."""
        vehicle = sumo.vehicle
        if self.done or self.gone:
            return
        if not self.met:
            gap = self._gap()
            if ego.driven >= self.plan.trigger and 10.0 <= gap <= 40.0 and vehicle.getSpeed(ACTOR) > 2.0:
                self.met = True
                vehicle.setSpeedMode(ACTOR, BLIND)
            else:
                # It does not drive away from a slow ego, else only the fast ones would meet its brakes.
                vehicle.setSpeed(ACTOR, max(1.0, ego.speed) if gap > self.KEEP else -1)
                return
        if self.until == inf:
            speed = max(0.0, vehicle.getSpeed(ACTOR) - self.DECEL * DT)
            vehicle.setSpeed(ACTOR, speed)
            if speed == 0.0:
                self.until = ego.now + self.STAND
        elif ego.now >= self.until:
            vehicle.setSpeed(ACTOR, -1)
            vehicle.setSpeedMode(ACTOR, CAREFUL)
            self.done = True


class StandingCar(ScriptedEvent):
    """A car stands in the ego's lane, for good or until some seconds after the ego came near."""

    NEAR = 45.0
    #: Seconds; None is for good.
    PATIENCE: float | None = None

    def __init__(self, traffic: Traffic, ways: Ways, plan: EventPlan) -> None:
        super().__init__(traffic, ways, plan)
        self.until = inf

    def set(self) -> None:
        """Put it where the trigger says, in a lane that leads along the route."""
        index, at = self._ahead(self.plan.trigger)
        route = self.plan.route
        following = route[index + 1] if index + 1 < len(route) else None
        lanes = self.street.leading(route[index], following)
        lane = self.plan.lane if self.plan.lane in lanes else lanes[0]
        self._put("actor", route[index:], lane, at, 0.0)

    def begin(self) -> None:
        """Hold it."""
        sumo.vehicle.setSpeed(ACTOR, 0.0)

    def step(self, ego: Ego) -> None:
        """Note the ego's coming; let go when the time is up."""
        if not self.met and not self.gone and self._gap() <= self.NEAR:
            self.met = True
            self.until = ego.now + self.PATIENCE if self.PATIENCE is not None else inf
        if self.PATIENCE is not None and ego.now >= min(self.until, self.PATIENCE + 10.0) and not self.gone:
            sumo.vehicle.setSpeed(ACTOR, -1)
            self.until = inf


class Stalled(StandingCar):
    """A car has stalled for fifteen seconds."""

    PATIENCE = 15.0


class SlowTruck(ScriptedEvent):
    """A truck at 8 m/s drives ahead."""

    #: Seconds at the ego's speed, and metres: nearer, SUMO would not let it in before so fast a car.
    SECONDS, START = 2.5, 25.0

    def set(self) -> None:
        """Put the truck ahead on the ego's lane."""
        index, at = self._ahead(self.START + self.SECONDS * self.plan.speed)
        route = self.plan.route[index:]
        self._put("truck", route, self.plan.lane if index == 0 else self.street.edges[route[0]][0], at, 8.0)

    def step(self, ego: Ego) -> None:
        """Note that the ego has caught up."""
        if not self.met and not self.gone and self._gap() < 40.0:
            self.met = True


class CutIn(ScriptedEvent):
    """A car on the next lane keeps a little ahead, then moves over before the ego and slows."""

    AHEAD, EASE, SECONDS = 9.0, 2.0, 3.0

    def __init__(self, traffic: Traffic, ways: Ways, plan: EventPlan) -> None:
        super().__init__(traffic, ways, plan)
        self.until = inf
        self.done = False

    def set(self) -> None:
        """Put it beside the ego: on the lane to the left, or to the right of the leftmost."""
        lanes = self.street.edges[self.plan.route[0]]
        rank = lanes.index(self.plan.lane)
        beside = rank + 1 if rank + 1 < len(lanes) else rank - 1
        if beside < 0:
            raise ValueError("nobody can cut in on a road of one lane")
        self._put("actor", self.plan.route, lanes[beside], self.plan.at + 18.0, self.plan.speed)

    def begin(self) -> None:
        """Keep it on its lane until its moment."""
        sumo.vehicle.setLaneChangeMode(ACTOR, STAY)

    def step(self, ego: Ego) -> None:
        """Pace the ego, cut in, ease off, drive on."""
        vehicle = sumo.vehicle
        if self.done or self.gone:
            return
        if self.met:
            if ego.now >= self.until:
                vehicle.setSpeed(ACTOR, -1)
                vehicle.setSpeedMode(ACTOR, CAREFUL)
                vehicle.setLaneChangeMode(ACTOR, FREE)
                self.done = True
            return
        gap = self._gap()
        road, here = vehicle.getRoadID(ACTOR), self.street.lanes[ego.lane]
        vehicle.setSpeed(ACTOR, max(1.0, ego.speed + 0.5 * (self.AHEAD - gap)) if gap < 200.0 else -1)
        close = self.AHEAD - 3.0 <= gap <= self.AHEAD + 6.0
        if ego.driven >= self.plan.trigger and close and road == here.edge and ego.speed > 2.0:
            mine = self.street.lanes[vehicle.getLaneID(ACTOR)].rank
            if mine == here.rank:
                self.met = self.done = True
                vehicle.setSpeed(ACTOR, -1)
                return
            self.met = True
            self.until = ego.now + self.SECONDS
            vehicle.setSpeedMode(ACTOR, BLIND)
            vehicle.setSpeed(ACTOR, max(1.0, ego.speed - self.EASE))
            vehicle.changeLaneRelative(ACTOR, 1 if here.rank > mine else -1, DT)
