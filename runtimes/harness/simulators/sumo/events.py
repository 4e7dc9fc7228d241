"""Table of scripted events by name."""

from collections.abc import Callable, Mapping

from .conflicts import ConflictMap
from .crossing_events import FailingToYield, HurriedMajor, LatePedestrian, RedRunner
from .event import EventPlan, ScriptedEvent
from .lead_events import CutIn, LeadBrake, SlowTruck, Stalled, StandingCar
from .traffic import Traffic

EVENTS: Mapping[str, Callable[[Traffic, ConflictMap, EventPlan], ScriptedEvent]] = {
    "none": ScriptedEvent,
    "lead_brake": LeadBrake,
    "stopped_vehicle": StandingCar,
    "stalled": Stalled,
    "slow_truck": SlowTruck,
    "cut_in": CutIn,
    "red_runner": RedRunner,
    "failing_to_yield": FailingToYield,
    "hurried_major": HurriedMajor,
    "late_pedestrian": LatePedestrian,
}
