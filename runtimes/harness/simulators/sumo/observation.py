"""Observation: 32 numbers in SI units, in the order that `dataset.json` publishes."""

from collections.abc import Mapping
from dataclasses import dataclass

from .conflicts import Conflict
from .engine import EGO, sumo
from .street import Lane, Street

#: Bounds of the observation space in metres and m/s, as `dataset.json` publishes them.
RANGE = 100.0
MAX_SPEED = 50.0
ROUTE_LANE_LEFT = 300.0
ROUTE_LEFT = 2000.0
STOP_LINE = 100.0


@dataclass(kw_only=True, slots=True)
class EgoState:
    """The ego's state as the simulator has already read or computed it in this step."""

    lane: Lane
    position: float
    speed: float
    accel: float
    limit: float
    route_left: float
    light: str
    stop_line: float
    conflict: Conflict


def bounded(value: float, low: float, high: float) -> float:
    """Clip a value to its published range."""
    return low if value < low else high if value > high else value


class EgoObserver:
    """Reads the ego's surroundings from SUMO and composes the observation."""

    def __init__(self, street: Street, min_gap: Mapping[str, float]) -> None:
        self.street = street
        self.min_gap = min_gap
        #: The leader at the last observation, unclipped: present, gap, relative speed.
        self.lead: tuple[bool, float, float] = (False, RANGE, 0.0)
        #: By lane: lane changes to the left that the route needs, and metres from the lane's start that the lane leads
        #: along the route. Both are constant for a lane and a route.
        self._route_lanes: dict[str, tuple[float, float]] = {}

    def observe(self, ego: EgoState) -> list[float]:
        """Return the observation."""
        lane, speed = ego.lane, ego.speed
        shift, left = self._route_lane(lane, ego.position)
        # Inside a junction there are no adjacent lanes.
        left_open = 1.0 if not lane.internal and lane.rank + 1 < lane.count else 0.0
        right_open = 1.0 if not lane.internal and lane.rank > 0 else 0.0
        values = [
            bounded(speed, 0.0, MAX_SPEED),
            bounded(ego.accel, -9.0, 3.0),
            bounded(ego.limit, 0.0, MAX_SPEED),
            bounded(sumo.vehicle.getLateralLanePosition(EGO), -2.0, 2.0),
            float(lane.rank),
            float(lane.count),
            shift,
            left,
            bounded(ego.route_left, 0.0, ROUTE_LEFT),
        ]
        values += self._leader(speed)
        values += self._follower(speed)
        values += self._beside(speed, 2, 0) if left_open else (RANGE, 0.0, RANGE, 0.0)
        values += self._beside(speed, 3, 1) if right_open else (RANGE, 0.0, RANGE, 0.0)
        values += (left_open, right_open)
        if ego.light and ego.stop_line <= STOP_LINE:
            light = ego.light.lower()
            values += (max(0.0, ego.stop_line), float(light in "ru"), float(light == "y"))
        else:
            values += (STOP_LINE, 0.0, 0.0)
        values += ego.conflict
        return values

    def _route_lane(self, lane: Lane, position: float) -> tuple[float, float]:
        """Return the lane changes to the left that the route needs, and the metres the lane still leads along it."""
        if lane.internal:
            return 0.0, ROUTE_LANE_LEFT
        if lane.id not in self._route_lanes:
            for best_lane in sumo.vehicle.getBestLanes(EGO):
                self._route_lanes[best_lane[0]] = (bounded(float(best_lane[3]), -2.0, 2.0), best_lane[1])
        shift, length = self._route_lanes[lane.id]
        return shift, bounded(length - position, 0.0, ROUTE_LANE_LEFT)

    def _leader(self, speed: float) -> tuple[float, float, float, float]:
        leader = sumo.vehicle.getLeader(EGO, RANGE)
        # Beyond the end of the lane, SUMO returns leaders at larger distances than requested.
        if not leader or not leader[0] or leader[1] > RANGE:
            self.lead = (False, RANGE, 0.0)
            return 0.0, RANGE, 0.0, 0.0
        name, gap = leader
        relative = sumo.vehicle.getSpeed(name) - speed
        self.lead = (True, max(0.0, gap), relative)
        return (
            1.0,
            bounded(gap, 0.0, RANGE),
            bounded(relative, -MAX_SPEED, MAX_SPEED),
            bounded(sumo.vehicle.getAcceleration(name), -9.0, 5.0),
        )

    def _follower(self, speed: float) -> tuple[float, float]:
        name, gap = sumo.vehicle.getFollower(EGO, RANGE)
        if not name:
            return RANGE, 0.0
        # SUMO's gap does not include the follower's minGap.
        gap += self.min_gap.get(name, 0.0)
        return bounded(gap, 0.0, RANGE), bounded(sumo.vehicle.getSpeed(name) - speed, -MAX_SPEED, MAX_SPEED)

    def _beside(self, speed: float, leaders: int, followers: int) -> tuple[float, float, float, float]:
        vehicle = sumo.vehicle
        ahead, behind = vehicle.getNeighbors(EGO, leaders), vehicle.getNeighbors(EGO, followers)
        lead_gap = lead_speed = rear_speed = 0.0
        rear_gap = RANGE
        if ahead:
            name, gap = ahead[0]
            lead_gap = bounded(gap, 0.0, RANGE)
            lead_speed = bounded(vehicle.getSpeed(name) - speed, -MAX_SPEED, MAX_SPEED)
        else:
            lead_gap = RANGE
        if behind:
            name, gap = behind[0]
            rear_gap = bounded(gap + self.min_gap.get(name, 0.0), 0.0, RANGE)
            rear_speed = bounded(vehicle.getSpeed(name) - speed, -MAX_SPEED, MAX_SPEED)
        return lead_gap, lead_speed, rear_gap, rear_speed
