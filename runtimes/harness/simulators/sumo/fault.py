"""Whose fault a collision was, by rules that a traffic court would know."""

from dataclasses import dataclass
from enum import StrEnum


class CollisionKind(StrEnum):
    """The collision types that SUMO tells apart; the last four are with people on foot."""

    REAR = "collision"
    FRONTAL = "frontal"
    SIDE = "side"
    JUNCTION = "junction"
    CROSSING = "crossing"
    SHARED_LANE = "sharedLane"
    WALKING_AREA = "walkingarea"
    JUNCTION_PEDESTRIAN = "junctionPedestrian"


#: Below this the ego stands, and who stands is not to blame.
STANDING = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Crash:
    """What was seen of the ego's first collision."""

    kind: str
    #: SUMO's collider: the follower in a rear-end collision; arbitrary on a junction.
    ego_is_collider: bool
    ego_speed: float
    pedestrian: bool = False
    changing_lane: bool = False
    #: The light over the stop line when the ego crossed it; "" where there is none.
    entered_on: str = ""
    #: The right of way of the ego's link against the other's.
    had_to_yield: bool = False
    #: On a junction: the other's rear was before the ego's front, both headed the same way.
    ran_into_rear: bool = False


def at_fault(crash: Crash) -> bool:
    """Decide whether the ego is to blame."""
    if crash.ego_speed < STANDING:
        return False
    if crash.pedestrian:
        return True
    match crash.kind:
        case CollisionKind.REAR:
            return crash.ego_is_collider or crash.changing_lane
        case CollisionKind.SIDE:
            return crash.changing_lane
        case CollisionKind.JUNCTION:
            if crash.ran_into_rear or crash.entered_on in ("r", "R", "u", "U"):
                return True
            return crash.entered_on != "G" and crash.had_to_yield
        case _:
            return True
