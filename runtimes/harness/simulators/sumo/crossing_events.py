"""Events across the ego's way: those who come without right, timed to be there when the ego is."""

from itertools import pairwise
from math import sqrt

from .clock import DT
from .conflicts import Ways
from .engine import sumo
from .event import ACTOR, BLIND, CAREFUL, FREE, STAY, Ego, EventPlan, ScriptedEvent
from .geometry import Meeting, Stripe
from .street import Way
from .traffic import Traffic, sides


class Crosser(ScriptedEvent):
    """Someone crosses the ego's way without right, timed to be there when the ego is."""

    #: Metres before the stop line at which they wait, and how they wait and drive.
    BEFORE, CRAWL, SPEED, ACCEL = 3.0, 0.0, 12.0, 3.5
    LIGHTS = False
    #: Seconds they are late, so that they come out before a car that holds its speed, not behind it.
    EARLY = 0.4

    def __init__(self, traffic: Traffic, ways: Ways, plan: EventPlan) -> None:
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


class LatePedestrian(ScriptedEvent):
    """Someone steps onto the crossing late, when the ego is nearly there."""

    NAME, SPEED = "late", 2.0

    def __init__(self, traffic: Traffic, ways: Ways, plan: EventPlan) -> None:
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
