"""Fault attribution: whether the ego is at fault for a collision, by rules of right of way."""

from dataclasses import dataclass

#: m/s: a slower ego counts as standing, and is not at fault.
STANDING = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Crash:
    """Facts about the ego's first collision."""

    #: SUMO's type of the collision; a "collision" is one with the rear of a vehicle.
    kind: str
    #: SUMO's collider: the follower in a rear-end collision; arbitrary on a junction.
    ego_is_collider: bool
    ego_speed: float
    pedestrian: bool = False
    changing_lane: bool = False
    #: State of the traffic light when the ego crossed the stop line; "" without a light.
    entered_on: str = ""
    #: Whether the ego's link had to give way to the other vehicle's link.
    had_to_yield: bool = False
    #: On a junction: the ego's front hit the rear of a vehicle that was heading in the same direction.
    ran_into_rear: bool = False


def at_fault(crash: Crash) -> bool:
    """Return whether the ego is at fault."""
    if crash.ego_speed < STANDING:
        return False
    if crash.pedestrian:
        return True
    match crash.kind:
        case "collision":
            return crash.ego_is_collider or crash.changing_lane
        case "side":
            return crash.changing_lane
        case "junction":
            if crash.ran_into_rear or crash.entered_on in ("r", "R", "u", "U"):
                return True
            return crash.entered_on != "G" and crash.had_to_yield
        case _:
            return True
