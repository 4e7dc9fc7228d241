"""Whom the ego must let pass at the next junction or crossing, and how narrowly it and others missed each other."""

from collections.abc import Mapping
from math import cos, hypot, inf, radians, sin

from .engine import EGO, sumo
from .geometry import Meeting, Stripe, meetings, project, stripes
from .post_encroachment import Passage
from .street import Shape, Street, Way

#: Metres before a junction at which others are looked for, as the observation publishes.
SIGHT = 60.0
#: A conflict as observed: present, metres to it, the other's metres to it, the other's speed.
Conflict = tuple[float, float, float, float]
NONE: Conflict = (0.0, SIGHT, SIGHT, 0.0)
#: Somebody on the junction: the meeting, metres driven by front and rear on their path, speed.
Occupant = tuple[Meeting, float, float, float]
EGO_LENGTH = 4.5
#: Lights that let nobody through: red, and red with yellow.
RED = frozenset("rRuU")
#: Braking (m/s2) that is expected of those who must let us pass.
EXPECTED = 4.0


class Ways:
    """A street's meetings and stripes by path; worked out when first asked for, kept for the process."""

    def __init__(self, street: Street) -> None:
        self.street = street
        self._meetings: dict[Way, tuple[Meeting, ...]] = {}
        self._stripes: dict[Way, tuple[Stripe, ...]] = {}

    def meetings(self, path: Way) -> tuple[Meeting, ...]:
        """Return the paths that share ground with this one."""
        if path not in self._meetings:
            self._meetings[path] = meetings(self.street, path)
        return self._meetings[path]

    def stripes(self, path: Way) -> tuple[Stripe, ...]:
        """Return the zebra crossings on this path."""
        if path not in self._stripes:
            self._stripes[path] = stripes(self.street, path)
        return self._stripes[path]


class Crossing:
    """The junction the ego is at or has just left."""

    def __init__(self, ways: Ways, path: Way, origin: float) -> None:
        self.path = path
        #: The odometer where the path begins.
        self.origin = origin
        self.stripes = ways.stripes(path)
        self.passages = [Passage(meeting, EGO_LENGTH) for meeting in ways.meetings(path)]
        #: Before this nobody can have come too near.
        self.ground = min((passage.meeting.entry for passage in self.passages), default=inf)
        self.inner: dict[str, list[tuple[Meeting, float]]] = {}
        self.outer: dict[str, dict[str, Meeting]] = {}
        for meeting in ways.meetings(path):
            for lane, before in meeting.other.pieces:
                self.inner.setdefault(lane, []).append((meeting, before))
            if meeting.yields:
                self.outer.setdefault(meeting.other.lane, {})[meeting.other.onto] = meeting


class ConflictWatch:
    """Looks at the junctions of one scenario, step by step."""

    def __init__(self, ways: Ways, routes: Mapping[str, tuple[str, ...]]) -> None:
        self.ways = ways
        self.routes = routes
        self.min_pet = inf
        self._crossing: Crossing | None = None
        self._behind: list[Crossing] = []

    def look(self, path: Way | None, driven: float, odometer: float, light: str, now: float) -> Conflict:
        """Return the conflict to come; ``driven`` is metres along the path, negative before it.

        On green everyone else must wait, so only those who are in the way already are told of.
        """
        best = NONE
        if path is not None and driven >= -SIGHT:
            if self._crossing is None or self._crossing.path is not path:
                if self._crossing is not None:
                    self._behind.append(self._crossing)
                self._crossing = Crossing(self.ways, path, odometer - driven)
            self._crossing.origin = odometer - driven
            best = self._ahead(self._crossing, driven, light, now)
        for crossing in self._behind:
            self._note(crossing, odometer - crossing.origin, self._inside(crossing), now)
        if self._behind:
            self._behind = [c for c in self._behind if not all(passage.over(now) for passage in c.passages)]
        return best

    def _ahead(self, crossing: Crossing, driven: float, light: str, now: float) -> Conflict:
        best, soonest = NONE, inf
        occupants = self._inside(crossing) if driven > -30.0 else []
        self._note(crossing, driven, occupants, now)
        if light not in RED:
            coming = [
                (meeting, meeting.other_entry - front, speed)
                for meeting, front, rear, speed in occupants
                if driven < meeting.exit and in_the_way(meeting, front, rear, speed, light)
            ]
            if light != "G":
                coming += [near for near in self._coming(crossing) if driven < near[0].entry]
            for meeting, distance, speed in coming:
                arrival = distance / (speed + 1.0)
                if arrival < soonest:
                    soonest = arrival
                    best = (1.0, max(0.0, min(SIGHT, meeting.entry - driven)), max(0.0, min(SIGHT, distance)), speed)
        for stripe in crossing.stripes:
            if driven < stripe.exit:
                best = self._walkers(stripe, stripe.entry - driven, best)
        return best

    def _inside(self, crossing: Crossing) -> list[Occupant]:
        """Return those on the junction whose way meets ours."""
        found = []
        vehicle = sumo.vehicle
        for lane, ways in crossing.inner.items():
            for name in sumo.lane.getLastStepVehicleIDs(lane):
                if name == EGO:
                    continue
                position, length, speed = vehicle.getLanePosition(name), vehicle.getLength(name), vehicle.getSpeed(name)
                onto = self._onto(name)
                for meeting, before in ways:
                    if meeting.other.onto == onto:
                        found.append((meeting, before + position, before + position - length, speed))
        return found

    def _coming(self, crossing: Crossing) -> list[tuple[Meeting, float, float]]:
        """Return those before the junction to whom we must yield."""
        found = []
        vehicle, lights = sumo.vehicle, ""
        for lane, ways in crossing.outer.items():
            length = self.ways.street.lanes[lane].length
            for name in sumo.lane.getLastStepVehicleIDs(lane):
                meeting = ways.get(self._onto(name) or "")
                if meeting is None or name == EGO:
                    continue
                if meeting.other.light is not None:
                    lights = lights or sumo.trafficlight.getRedYellowGreenState(meeting.other.light)
                    if lights[meeting.other.light_index] in RED:
                        continue
                distance = length - vehicle.getLanePosition(name) + meeting.other_entry
                if distance <= SIGHT:
                    found.append((meeting, distance, vehicle.getSpeed(name)))
        return found

    def _onto(self, name: str) -> str | None:
        """Return the edge a vehicle drives to next: what its indicator tells everybody."""
        route = self.routes.get(name)
        if route is None:
            return None
        index = sumo.vehicle.getRouteIndex(name) + 1
        return route[index] if index < len(route) else None

    def _note(self, crossing: Crossing, driven: float, occupants: list[Occupant], now: float) -> None:
        if not occupants and driven < crossing.ground:
            return
        for passage in crossing.passages:
            others = [(front, rear) for meeting, front, rear, _ in occupants if meeting is passage.meeting]
            self.min_pet = min(self.min_pet, passage.note(driven, others, now))

    @staticmethod
    def _walkers(stripe: Stripe, ahead: float, best: Conflict) -> Conflict:
        """Return the nearest person on a crossing, or stepping onto it, who has not yet passed our lane."""
        if ahead > SIGHT:
            return best
        person, zebra = sumo.person, stripe.zebra
        for edge in (zebra.id, *zebra.kerbs):
            for name in sumo.edge.getLastStepPersonIDs(edge):
                along, speed = project(zebra.shape, *person.getPosition(name)), person.getSpeed(name)
                if edge == zebra.id:
                    forward = heads_forward(zebra.shape, person.getAngle(name))
                    # Half a car and half a metre beyond our lane's middle they are out of the way.
                    if (along - stripe.across if forward else stripe.across - along) > 1.5:
                        continue
                elif speed < 0.1 or person.getNextEdge(name) != zebra.id:
                    continue
                distance = abs(along - stripe.across)
                if not best[0] or ahead < best[1] or distance < best[2]:
                    best = (1.0, max(0.0, min(SIGHT, ahead)), min(SIGHT, distance), speed)
        return best


def in_the_way(meeting: Meeting, front: float, rear: float, speed: float, light: str) -> bool:
    """Tell whether somebody on the junction is, or will be, on the ground we share.

    Who must let us pass counts only if they stand there already or cannot stop before it any more.
    """
    if rear > meeting.other_exit:
        return False
    left = meeting.other_entry - front
    return left <= 0.0 or (meeting.yields and light != "G") or speed * speed > 2.0 * EXPECTED * left


def heads_forward(shape: Shape, angle: float) -> bool:
    """Tell whether a compass angle points from a crossing's start to its end."""
    (ax, ay), (bx, by) = shape[0], shape[-1]
    return (bx - ax) * sin(radians(angle)) + (by - ay) * cos(radians(angle)) > 1e-6 * hypot(bx - ax, by - ay)
