"""What an event is: something scripted by distance, so that every model meets it, fast or slow."""

from dataclasses import dataclass
from math import inf

from .conflicts import Ways
from .engine import EGO, sumo
from .traffic import Traffic

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
class EventPlan:
    """Where an event is set: the ego's route and start, and the metres driven before it may begin."""

    route: tuple[str, ...]
    lane: str
    at: float
    speed: float
    trigger: float


class ScriptedEvent:
    """Nothing happens. The others say what does."""

    def __init__(self, traffic: Traffic, ways: Ways, plan: EventPlan) -> None:
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
