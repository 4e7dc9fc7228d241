"""Time to collision with pedestrians on the carriageway: if the ego and a pedestrian go on as they do now.

Hayward (1972), "Near-miss determination through use of a scale of danger": the time until two road users collide if
both keep speed and direction. SUMO's SSM device computes it for vehicles only. The ego is a rectangle, a pedestrian a
square of the width of SUMO's, both in the ego's frame. Pedestrians on pavements do not count: a car that turns is for a
moment headed for each of them. The compiled step (compiled/episode.h) has the same order of operations.
"""

from math import cos, inf, radians, sin

from .conflicts import EGO_LENGTH
from .engine import EGO, sumo
from .street import Street

#: Half the ego's width and half that of a pedestrian in metres: types.add.xml.
HALF_WIDTH, HALF_PEDESTRIAN = 0.9, 0.25
#: m/s: a slower ego stands, and does not collide with anybody.
STANDING = 0.1


def time_to_contact(ahead: float, left: float, along: float, across: float) -> float:
    """Return the seconds until a pedestrian and the ego touch; infinity if they never do, 0 if they do.

    ``ahead`` and ``left``: metres from the middle of the ego's front to the pedestrian; ``along`` and ``across``: m/s
    of the pedestrian relative to the ego, in the same directions.
    """
    begin, end = _within(ahead, along, -EGO_LENGTH - HALF_PEDESTRIAN, HALF_PEDESTRIAN)
    begin_across, end_across = _within(left, across, -HALF_WIDTH - HALF_PEDESTRIAN, HALF_WIDTH + HALF_PEDESTRIAN)
    begin, end = max(begin, begin_across), min(end, end_across)
    return max(0.0, begin) if begin <= end and end >= 0.0 else inf


def _within(position: float, speed: float, low: float, high: float) -> tuple[float, float]:
    """Return when a position is between two others: from when, until when."""
    if speed == 0.0:
        return (-inf, inf) if low <= position <= high else (inf, -inf)
    one, other = (low - position) / speed, (high - position) / speed
    return (one, other) if one < other else (other, one)


def on_carriageway(lane: str, street: Street) -> bool:
    """Return whether a pedestrian's lane is one for cars, or a crossing, whose edge is named `:junction_c0`."""
    if lane in street.lanes:
        return True
    edge = lane.rpartition("_")[0]
    return lane.startswith(":") and edge.rpartition("_")[2].startswith("c")


def least_time_to_pedestrian(street: Street, speed: float) -> float:
    """Return the ego's least time to collision, at a speed in m/s, with a pedestrian; infinity if there is none."""
    least = inf
    if speed <= STANDING:
        return least
    vehicle, person = sumo.vehicle, sumo.person
    x, y = vehicle.getPosition(EGO)
    angle = radians(vehicle.getAngle(EGO))
    east, north = sin(angle), cos(angle)
    for name in person.getIDList():
        if not on_carriageway(person.getLaneID(name), street):
            continue
        person_x, person_y = person.getPosition(name)
        walking, direction = person.getSpeed(name), radians(person.getAngle(name))
        dx, dy = person_x - x, person_y - y
        vx, vy = walking * sin(direction), walking * cos(direction)
        time = time_to_contact(
            dx * east + dy * north, dy * east - dx * north, vx * east + vy * north - speed, vy * east - vx * north
        )
        least = min(least, time)
    return least
