"""What happens to the ego on the way: scripted by distance, so that every model meets it, fast or slow."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import inf, sqrt
from typing import Any

from .clock import DT
from .conflicts import Ways
from .engine import EGO, sumo
from .geometry import Meeting, Stripe
from .street import Way
from .traffic import Traffic, sides

ACTOR = "actor"
#: Speed modes: SUMO's own checks, all of them or none.
CAREFUL, BLIND = 31, 32
#: Lane change modes: none but what is asked, and SUMO's default.
STAY, FREE = 0, 1621


@dataclass(slots=True)
class Ego:
    """What an event may know of the ego. One is kept and changed: ten a second would cost more than the events."""

    lane: str
    position: float
    speed: float
    driven: float
    now: float
    light: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Where an event is set: the ego's route and start, and the metres driven before it may begin."""

    route: tuple[str, ...]
    lane: str
    at: float
    speed: float
    trigger: float


class Event:
    """Nothing happens. The others say what does."""

    def __init__(self, traffic: Traffic, ways: Ways, plan: Plan) -> None:
        self.traffic = traffic
        self.ways = ways
        self.street = ways.street
        self.plan = plan
        #: Whether the ego has met it, and whether the actor has left the street.
        self.met = False
        self.gone = False

    def set(self) -> None:
        """Put who takes part in, before the first step."""

    def begin(self) -> None:
        """Take command of them, once they are on the street."""

    def step(self, ego: Ego) -> None:
        """Act before SUMO's next step."""

    def _put(self, kind: str, route: tuple[str, ...], lane: str, at: float, speed: float) -> None:
        self.traffic.vehicle(ACTOR, kind, route, lane=lane.rsplit("_", 1)[1], at=f"{at:g}", speed=f"{speed:g}")

    def _ahead(self, metres: float) -> tuple[int, float]:
        """Return the edge and the place on it, so far ahead of the ego's start."""
        return self.street.place(self.plan.route, self.plan.at + metres)

    def _gap(self) -> float:
        """Return the metres from the ego's bumper to the actor's rear along the route; infinity if it has gone."""
        vehicle = sumo.vehicle
        road = vehicle.getRoadID(ACTOR)
        edge = road if not road.startswith(":") else self.traffic.routes[ACTOR][vehicle.getRouteIndex(ACTOR)]
        at = vehicle.getLanePosition(ACTOR) if edge == road else self.street.lanes[self.street.edges[edge][0]].length
        distance = vehicle.getDrivingDistance(EGO, edge, at)
        return inf if distance < -1e6 else distance - vehicle.getLength(ACTOR)


class LeadBrake(Event):
    """The car ahead brakes at 8 m/s2 to a stop, stands for two seconds and drives on."""

    DECEL, STAND, START, KEEP = 8.0, 2.0, 32.0, 34.0

    def __init__(self, traffic: Traffic, ways: Ways, plan: Plan) -> None:
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


class Standing(Event):
    """A car stands in the ego's lane, for good or until some seconds after the ego came near."""

    NEAR = 45.0
    #: Seconds; None is for good.
    PATIENCE: float | None = None

    def __init__(self, traffic: Traffic, ways: Ways, plan: Plan) -> None:
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


class Stalled(Standing):
    """A car has stalled for fifteen seconds."""

    PATIENCE = 15.0


class SlowTruck(Event):
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


class CutIn(Event):
    """A car on the next lane keeps a little ahead, then moves over before the ego and slows."""

    AHEAD, EASE, SECONDS = 9.0, 2.0, 3.0

    def __init__(self, traffic: Traffic, ways: Ways, plan: Plan) -> None:
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


class Crosser(Event):
    """Someone crosses the ego's way without right, timed to be there when the ego is."""

    #: Metres before the stop line at which they wait, and how they wait and drive.
    BEFORE, CRAWL, SPEED, ACCEL = 3.0, 0.0, 12.0, 3.5
    LIGHTS = False
    #: Seconds they are late, so that they come out before a car that holds its speed, not behind it.
    EARLY = 0.4

    def __init__(self, traffic: Traffic, ways: Ways, plan: Plan) -> None:
        super().__init__(traffic, ways, plan)
        self.path, self.meeting = self._choose()
        self.clear = False

    def _fits(self, meeting: Meeting) -> bool:
        """Tell whether this is the meeting the event is about: theirs to yield."""
        return meeting.owed and not meeting.yields

    def _choose(self) -> tuple[Way, Meeting]:
        """Return the first place on the route where somebody can come across, straight on if possible."""
        route = self.plan.route
        for edge, onto in pairwise(route):
            leading = self.street.leading(edge, onto)
            lane = self.plan.lane if self.plan.lane in leading else leading[0]
            path = self.street.paths[(lane, onto)]
            if self.LIGHTS and path.light is None:
                continue
            fitting = [meeting for meeting in self.ways.meetings(path) if self._fits(meeting)]
            if fitting:
                return path, min(fitting, key=lambda meeting: (meeting.other.direction != "s", meeting.entry))
        raise ValueError("nobody can cross this route")

    def set(self) -> None:
        """Put them on their lane, before the stop line."""
        other = self.meeting.other
        lane = self.street.lanes[other.lane]
        onward = [lane.edge, other.onto]
        while len(onward) < 6 and (following := self.street.following[onward[-1]]):
            onward.append(following[0])
        self._put("actor", tuple(onward), other.lane, lane.length - self.BEFORE, self.CRAWL)

    def begin(self) -> None:
        """Hold them, on their lane."""
        sumo.vehicle.setSpeedMode(ACTOR, BLIND)
        sumo.vehicle.setLaneChangeMode(ACTOR, STAY)
        sumo.vehicle.setSpeed(ACTOR, self.CRAWL)

    def _arrival(self) -> float:
        """Return the seconds they would need from where they are to the middle of the shared ground."""
        vehicle = sumo.vehicle
        other = self.meeting.other
        left = self.street.lanes[other.lane].length - vehicle.getLanePosition(ACTOR)
        left += (self.meeting.other_entry + self.meeting.other_exit) / 2
        return seconds(left, vehicle.getSpeed(ACTOR), self.ACCEL, self.SPEED)

    def step(self, ego: Ego) -> None:
        """Wait for the moment, drive across, and become an ordinary driver."""
        if self.clear or self.gone:
            return
        vehicle = sumo.vehicle
        lane = vehicle.getLaneID(ACTOR)
        if not self.met:
            if lane != self.meeting.other.lane:
                self._leave()
            elif self.street.lanes[ego.lane].edge == self.street.lanes[self.path.lane].edge:
                ahead = self.street.lanes[ego.lane].length - ego.position + self.meeting.entry
                moving = ego.speed > 1.0 and (not self.LIGHTS or ego.light in ("G", "g"))
                if moving and ahead / max(3.0, ego.speed) <= self._arrival() + self.EARLY:
                    self.met = True
            return
        speed = min(self.SPEED, vehicle.getSpeed(ACTOR) + self.ACCEL * DT)
        vehicle.setSpeed(ACTOR, speed)
        if lane.startswith(":") or lane == self.meeting.other.lane:
            return
        self._leave()

    def _leave(self) -> None:
        sumo.vehicle.setSpeed(ACTOR, -1)
        sumo.vehicle.setSpeedMode(ACTOR, CAREFUL)
        sumo.vehicle.setLaneChangeMode(ACTOR, FREE)
        self.clear = True


class RedRunner(Crosser):
    """Someone drives over their red light."""

    LIGHTS = True
    BEFORE = 1.0

    def _fits(self, meeting: Meeting) -> bool:
        return meeting.other.direction == "s" and self.street.lanes[meeting.other.lane].edge != self.plan.route[0]


class FailingToYield(Crosser):
    """Someone enters the roundabout before the ego."""

    BEFORE, SPEED, EARLY = 1.0, 8.0, 0.2


class HurriedMajor(Crosser):
    """Someone on the main road comes far too fast."""

    BEFORE, CRAWL, SPEED, ACCEL, EARLY = 100.0, 2.0, 18.8, 3.5, 0.0

    def _fits(self, meeting: Meeting) -> bool:
        return meeting.yields and meeting.other.direction == "s"


class LatePedestrian(Event):
    """Someone steps onto the crossing late, when the ego is nearly there."""

    NAME, SPEED = "late", 2.0

    def __init__(self, traffic: Traffic, ways: Ways, plan: Plan) -> None:
        super().__init__(traffic, ways, plan)
        self.path, self.stripe = self._choose()

    def _choose(self) -> tuple[Way, Stripe]:
        """Return the first crossing that lies after the trigger."""
        route, driven = self.plan.route, -self.plan.at
        for edge, onto in pairwise(route):
            leading = self.street.leading(edge, onto)
            path = self.street.paths[(self.plan.lane if self.plan.lane in leading else leading[0], onto)]
            driven += self.street.lanes[path.lane].length
            passed = self.ways.stripes(path)
            if passed and driven >= self.plan.trigger:
                return path, passed[0]
            driven += path.length
        raise ValueError("no crossing on this route")

    def set(self) -> None:
        """Put them on the pavement on the ego's side."""
        edges = sides(self.street, self.stripe.zebra)
        mine = self.street.lanes[self.path.lane].edge
        near = mine if mine in edges else edges[0]
        far = next(edge for edge in edges if edge != near)
        self.traffic.person(self.NAME, near, far, 1.0, self.SPEED)

    def begin(self) -> None:
        """Hold them at the kerb."""
        sumo.person.setSpeed(self.NAME, 0.0)

    def step(self, ego: Ego) -> None:
        """Let them go when they will be before the ego's bumper."""
        if self.met or self.street.lanes[ego.lane].edge != self.street.lanes[self.path.lane].edge:
            return
        x, y = sumo.person.getPosition(self.NAME)
        ahead = self.street.lanes[ego.lane].length - ego.position + self.stripe.entry
        shape = self.stripe.zebra.shape
        start = min(shape[0], shape[-1], key=lambda end: (end[0] - x) ** 2 + (end[1] - y) ** 2)
        along = self.stripe.across if start == shape[0] else self._width() - self.stripe.across
        way = sqrt((start[0] - x) ** 2 + (start[1] - y) ** 2) + along
        if ego.speed > 1.0 and ahead / max(3.0, ego.speed) <= way / self.SPEED:
            self.met = True
            sumo.person.setSpeed(self.NAME, self.SPEED)

    def _width(self) -> float:
        (ax, ay), (bx, by) = self.stripe.zebra.shape[0], self.stripe.zebra.shape[-1]
        return sqrt((ax - bx) ** 2 + (ay - by) ** 2)


def seconds(distance: float, speed: float, accel: float, top: float) -> float:
    """Return how long it takes to drive a distance, gathering speed to the top."""
    gather = max(0.0, (top * top - speed * speed) / (2 * accel))
    if distance <= gather:
        return (sqrt(speed * speed + 2 * accel * distance) - speed) / accel
    return (top - speed) / accel + (distance - gather) / top


EVENTS: Mapping[str, Callable[[Traffic, Ways, Plan], Event]] = {
    "none": Event,
    "lead_brake": LeadBrake,
    "stopped_vehicle": Standing,
    "stalled": Stalled,
    "slow_truck": SlowTruck,
    "cut_in": CutIn,
    "red_runner": RedRunner,
    "failing_to_yield": FailingToYield,
    "hurried_major": HurriedMajor,
    "late_pedestrian": LatePedestrian,
}


def event(spec: Mapping[str, Any], traffic: Traffic, ways: Ways, plan: Plan) -> Event:
    """Return the event a scenario names."""
    return EVENTS[spec["event"]](traffic, ways, plan)
