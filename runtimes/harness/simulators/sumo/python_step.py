"""One step of a scenario in plain Python: the reference for the compiled step, used where that is not built."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from .clock import DT
from .conflicts import RED, ConflictDetector, ConflictMap
from .drive_metrics import Drive
from .engine import EGO, sumo
from .event import ACTOR
from .observation import EgoObserver, EgoState
from .street import JunctionPath, Lane
from .time_to_collision import least_time_to_pedestrian

#: Bounds of the action's acceleration in m/s2.
ACCEL_LOW, ACCEL_HIGH = -9.0, 3.0
#: Steps of a lane change, during which further lane actions are ignored.
CHANGE_STEPS = 30
#: m/s: a larger difference between commanded and actual speed means that SUMO stopped the ego.
SPEED_TOLERANCE = 1e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class StepConstants:
    """Constants of a scenario: the ego's route with its length in metres, the time limit in seconds.

    ``routes`` and ``min_gap`` (metres) of the other vehicles by name. ``pedestrians``: their times to collision are
    measured.
    """

    route: tuple[str, ...]
    route_length: float
    time_limit: float
    routes: Mapping[str, tuple[str, ...]]
    min_gap: Mapping[str, float]
    pedestrians: bool = False


class PythonStep:
    """The ego's state, measurements and observation, from the scenario's start on; ``step`` advances all of them.

    ``outcome``: None while the scenario goes on. ``changing``: steps until the ego may change lanes again.
    ``entered_on``: state of the light when the ego entered the junction that it is on. ``steps``: so far.
    """

    def __init__(self, conflict_map: ConflictMap, constants: StepConstants) -> None:
        vehicle = sumo.vehicle
        self.street = conflict_map.street
        self._constants = constants
        self._observer = EgoObserver(self.street, constants.min_gap)
        self._conflict_detector = ConflictDetector(conflict_map, constants.routes)
        self.drive = Drive()
        self.outcome: str | None = None
        self.steps = 0
        self.changing = 0
        self.entered_on = ""
        self.actor_arrived = False
        self.path: JunctionPath | None = None
        self.speed: float = vehicle.getSpeed(EGO)
        self._accel = 0.0
        self._light, self._stop_line = "", 0.0
        self._odometer = vehicle.getDistance(EGO)
        self._read_ego()
        self.observation = self._observe()

    @property
    def lane(self) -> str:
        """Id of the ego's lane."""
        return self._lane.id

    @property
    def driven(self) -> float:
        """Metres that the ego has driven."""
        return self.drive.driven

    @property
    def now(self) -> float:
        """Seconds since the scenario's start."""
        return self.steps * DT

    @property
    def light(self) -> str:
        """State of the next junction's light, or ""; the next light in SUMO's list may be farther away."""
        return self._light if self.path is not None and self.path.light is not None else ""

    def gap(self) -> float:
        """Return the metres from the ego's front to the actor's rear along the route; infinity if it is not ahead."""
        vehicle = sumo.vehicle
        road = vehicle.getRoadID(ACTOR)
        edge = road if not road.startswith(":") else self._constants.routes[ACTOR][vehicle.getRouteIndex(ACTOR)]
        position = (
            vehicle.getLanePosition(ACTOR) if edge == road else self.street.lanes[self.street.edges[edge][0]].length
        )
        distance = vehicle.getDrivingDistance(EGO, edge, position)
        return inf if distance < -1e6 else distance - vehicle.getLength(ACTOR)

    def step(self, accel_action: float, lane_action: float) -> NDArray[np.float32]:
        """Apply an action for 0.1 s; return the observation, which stays the last one if the scenario ends early."""
        accel = min(ACCEL_HIGH, max(ACCEL_LOW, accel_action))
        if accel != accel_action or not -1.0 <= lane_action <= 1.0:
            self.drive.clipped += 1
        speed = max(0.0, self.speed + accel * DT)
        sumo.vehicle.setSpeed(EGO, speed)
        self._change_lane(lane_action)
        sumo.simulationStep()
        self.steps += 1
        before = self.speed
        arrived = sumo.simulation.getArrivedIDList()
        if ACTOR in arrived:
            self.actor_arrived = True
        if EGO in arrived:
            self.outcome = "arrived"
            self._record(speed, before, 0.0)
            self.drive.driven = self._constants.route_length
        elif any(EGO in (collision.collider, collision.victim) for collision in sumo.simulation.getCollisions()):
            self.outcome = "collision"
            self._move(speed, before)
        else:
            self._advance(speed, before)
        if self.outcome is None:
            self.observation = self._observe()
            present, gap, relative = self._observer.lead
            if present:
                self.drive.follow(self.speed, gap, relative)
            self.drive.min_pet = self._conflict_detector.min_pet
            if self._constants.pedestrians:
                least = least_time_to_pedestrian(self.street, self.speed)
                self.drive.min_ttc_pedestrian = min(self.drive.min_ttc_pedestrian, least)
            if self.steps * DT >= self._constants.time_limit - 1e-9:
                self.outcome = "timeout"
        return self.observation

    def _read_ego(self) -> None:
        """Read the ego's lane, position, speed limit and next light from SUMO."""
        vehicle = sumo.vehicle
        self._lane: Lane = self.street.lanes[vehicle.getLaneID(EGO)]
        self.position: float = vehicle.getLanePosition(EGO)
        self.limit: float = vehicle.getAllowedSpeed(EGO)
        self._light = ""
        if self.street.lights:
            lights = vehicle.getNextTLS(EGO)
            if lights:
                _, _, self._stop_line, self._light = lights[0]

    def _junction_path(self) -> tuple[JunctionPath | None, float]:
        """Return the path through the current or next junction, and the metres driven on it: negative before it."""
        if self._lane.internal:
            path, before = self.street.inside[self._lane.id]
            return path, before + self.position
        route = self._constants.route
        index = sumo.vehicle.getRouteIndex(EGO) + 1
        if index >= len(route):
            return None, 0.0
        return self.street.path(self._lane.id, route[index]), self.position - self._lane.length

    def _observe(self) -> NDArray[np.float32]:
        self.path, driven = self._junction_path()
        light = self.entered_on if driven >= 0 else self.light
        conflict = self._conflict_detector.detect(self.path, driven, self.drive.driven, light, self.now)
        ego = EgoState(
            lane=self._lane,
            position=self.position,
            speed=self.speed,
            accel=self._accel,
            limit=self.limit,
            route_left=self._constants.route_length - self.drive.driven,
            light=self._light,
            stop_line=self._stop_line,
            conflict=conflict,
        )
        return np.array(self._observer.observe(ego), dtype=np.float32)

    def _change_lane(self, lane_action: float) -> None:
        """Start a lane change if the action asks for it, no lane change is under way and the lane exists."""
        if self.changing:
            self.changing -= 1
            return
        direction = 1 if lane_action >= 0.5 else -1 if lane_action <= -0.5 else 0
        lane = self._lane
        if direction and not lane.internal and 0 <= lane.rank + direction < lane.count:
            sumo.vehicle.changeLaneRelative(EGO, direction, DT)
            self.changing = CHANGE_STEPS

    def _advance(self, commanded: float, before: float) -> None:
        """Record the step's motion, lane changes and red lights; ``commanded`` and ``before`` are speeds in m/s."""
        previous_lane, light = self._lane, self.light
        self._read_ego()
        if self._lane.edge == previous_lane.edge and self._lane.id != previous_lane.id:
            self.drive.lane_changes += 1
        if self._lane.internal and not previous_lane.internal:
            # A change of SUMO's next light would not do: a lane change causes it too.
            self.entered_on = light
            if light in RED:
                self.drive.red_lights += 1
        elif not self._lane.internal:
            self.entered_on = ""
        if not self._move(commanded, before):
            # The ego has reached the end of a lane that does not lead along the route.
            self.outcome = "stranded"

    def _move(self, commanded: float, before: float) -> bool:
        """Record the ego's motion; return False if SUMO, not the model, has stopped the car."""
        vehicle = sumo.vehicle
        self.speed = vehicle.getSpeed(EGO)
        self.drive.driven = vehicle.getDistance(EGO) - self._odometer
        if abs(self.speed - commanded) > SPEED_TOLERANCE:
            self.drive.halt()
            return False
        self._record(commanded, before, vehicle.getCO2Emission(EGO))
        return True

    def _record(self, speed: float, before: float, co2: float) -> None:
        self._accel = (speed - before) / DT
        self.drive.move(speed, self._accel, self.limit, co2)
