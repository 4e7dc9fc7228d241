"""Scripted event: base class. Events are triggered by distance, not by time, so that every model meets them."""

from dataclasses import dataclass
from typing import Protocol

from .conflicts import ConflictMap
from .traffic import Traffic

ACTOR = "actor"
#: SUMO's speed modes: all of its safety checks, or none.
ALL_CHECKS, NO_CHECKS = 31, 32
#: SUMO's lane change modes: only changes on command, and the default.
NO_LANE_CHANGES, DEFAULT_LANE_CHANGES = 0, 1621


class Ego(Protocol):
    """The ego's state as events see it."""

    @property
    def lane(self) -> str:
        """Id of the ego's lane."""

    @property
    def position(self) -> float:
        """Metres of the ego's front on its lane."""

    @property
    def speed(self) -> float:
        """The ego's speed in m/s."""

    @property
    def driven(self) -> float:
        """Metres that the ego has driven."""

    @property
    def now(self) -> float:
        """Seconds since the scenario's start."""

    @property
    def light(self) -> str:
        """State of the next junction's light, or ""."""

    def gap(self) -> float:
        """Return the metres from the ego's front to the actor's rear along the route; infinity if it is not ahead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EventPlan:
    """Parameters of an event: the ego's route and start, and the metres driven before the event may start."""

    route: tuple[str, ...]
    lane: str
    position: float
    speed: float
    trigger: float


class ScriptedEvent:
    """An event, and the scenario without one: this base class does nothing."""

    def __init__(self, traffic: Traffic, conflict_map: ConflictMap, plan: EventPlan) -> None:
        self.traffic = traffic
        self.conflict_map = conflict_map
        self.street = conflict_map.street
        self.plan = plan
        #: Whether the event has happened to the ego (the metric `event_met`).
        self.triggered = False
        #: Whether the actor has arrived at the end of its route, and so left the simulation.
        self.arrived = False

    def insert(self) -> None:
        """Insert the actors, before the first step."""

    def begin(self) -> None:
        """Take control of the actors, once SUMO has inserted them."""

    def step(self, ego: Ego) -> None:
        """Control the actors before SUMO's next step."""

    @property
    def over(self) -> bool:
        """Whether ``step`` does nothing any more. False is always right, and costs a call at each step."""
        return False

    def _insert_actor(self, kind: str, route: tuple[str, ...], lane: str, *, position: float, speed: float) -> None:
        lane_index = lane.rsplit("_", 1)[1]
        self.traffic.add_vehicle(ACTOR, kind, route, lane=lane_index, position=f"{position:g}", speed=f"{speed:g}")

    def _ahead(self, metres: float) -> tuple[int, float]:
        """Return the index of the route's edge, and the position on it, ``metres`` ahead of the ego's start."""
        return self.street.place(self.plan.route, self.plan.position + metres)
