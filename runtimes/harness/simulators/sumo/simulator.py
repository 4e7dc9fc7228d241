"""SUMO simulator: the model drives one car, the ego, in SUMO's traffic, in lock-step at 10 Hz."""

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base import Interface, Metric, Scenario, SimulatorBroken
from . import replay_frames
from .clock import DT
from .conflicts import EGO_LENGTH, RED, ConflictDetector, ConflictMap
from .drive_metrics import Drive, Ending, metrics
from .engine import EGO, load, options, sumo
from .event import ACTOR, Ego, EventPlan, ScriptedEvent
from .events import event
from .fault import Crash, at_fault
from .observation import EgoObserver, EgoState
from .street import JunctionPath, Lane, Street, read
from .traffic import Traffic, shift_lights

#: Bounds of the action's acceleration in m/s2.
ACCEL_LOW, ACCEL_HIGH = -9.0, 3.0
#: Steps of a lane change, during which further lane actions are ignored.
CHANGE_STEPS = 30
#: SUMO's lane change modes: execute every command, or refuse changes into unsafe gaps.
OBEY, GUARD = 0, 512
#: SUMO's speed mode without safety checks; mode 0 would still yield inside junctions.
UNCHECKED = 32
#: m/s: a larger difference between commanded and actual speed means that SUMO stopped the ego.
SPEED_TOLERANCE = 1e-3


def broken(error: Exception) -> SimulatorBroken:
    """Return the exception for a fatal SUMO error: its state is undefined, so the process must end."""
    return SimulatorBroken(f"SUMO failed: {error}")


class SumoSimulator:
    """Runs the scenarios of a SUMO dataset."""

    reward: float | None = None

    def __init__(self, dataset: Path, definition: Mapping[str, Any]) -> None:
        self.interface = Interface.of(definition["interface"])
        self._folder = dataset
        self._streets: dict[str, tuple[Street, ConflictMap]] = {}
        first = definition.get("streets")
        if first:
            # Read one network and load SUMO now, before a launch waits for it.
            self._street(first[0])
            load(options(self._network(first[0]), dataset / "types.add.xml", 0))

    def _network(self, name: str) -> Path:
        return self._folder / "nets" / f"{name}.net.xml"

    def _street(self, name: str) -> tuple[Street, ConflictMap]:
        if name not in self._streets:
            street = read(self._network(name))
            self._streets[name] = (street, ConflictMap(street))
        return self._streets[name]

    def reset(self, scenario: Scenario) -> NDArray[np.float32]:
        """Start a scenario; return the first observation. Raise SimulatorBroken if SUMO fails."""
        try:
            return self._reset(scenario)
        except sumo.FatalTraCIError as error:
            raise broken(error) from error

    def step(self, action: NDArray[Any]) -> tuple[NDArray[np.float32], bool]:
        """Apply an action for 0.1 s; return the observation and whether the scenario has ended."""
        try:
            return self._step(float(action[0]), float(action[1]))
        except sumo.FatalTraCIError as error:
            raise broken(error) from error

    def _reset(self, scenario: Scenario) -> NDArray[np.float32]:
        spec = scenario.spec
        self.street, conflict_map = self._street(spec["street"])
        load(options(self._network(spec["street"]), self._folder / "types.add.xml", scenario.seed))
        rng = Random(scenario.seed)
        self._route: tuple[str, ...] = tuple(spec["route"])
        start = spec["start"]
        lane = self.street.edges[self._route[0]][start["lane"]]
        # Of a town, only the surroundings of the route have traffic, or the ego would rarely meet a vehicle.
        radius = spec.get("radius")
        around = self.street.around(self._route, radius) if radius is not None else None
        self._scenery = around.street if around is not None else self.street
        traffic = Traffic(self.street, rng, around.edges if around is not None else None)
        shift_lights(self.street, rng)
        traffic.add_ego(self._route, lane.rsplit("_", 1)[1], start["pos"], start["speed"])
        plan = EventPlan(
            route=self._route,
            lane=lane,
            position=start["pos"],
            speed=start["speed"],
            trigger=spec.get("trigger", 0.0),
        )
        self._event = event(spec, traffic, conflict_map, plan)
        self._event.insert()
        traffic.add_vehicles(spec["vehicles"], spec["mix"])
        traffic.add_pedestrians(spec.get("pedestrians", 0))
        sumo.simulationStep()
        self._traffic = traffic
        self._time_limit = float(spec["time_limit"])
        self._street_limit = float(spec["limit"])
        self._observer = EgoObserver(self.street, traffic.min_gap)
        self._conflict_detector = ConflictDetector(conflict_map, traffic.routes)
        self._take_control(bool(scenario.params.get("lane_guard", False)))
        return self._observe()

    def _take_control(self, lane_guard: bool) -> None:
        """Take control of the ego, once SUMO has inserted it, and clear the measurements."""
        vehicle = sumo.vehicle
        present = vehicle.getIDList()
        for name in (EGO, ACTOR):
            if name not in present and name in (EGO, *self._traffic.routes):
                raise RuntimeError(f"SUMO could not insert the vehicle {name!r}: its position is occupied")
        vehicle.setSpeedMode(EGO, UNCHECKED)
        vehicle.setLaneChangeMode(EGO, GUARD if lane_guard else OBEY)
        self._event.begin()
        self._has_event = type(self._event) is not ScriptedEvent
        self._ego = Ego(lane="", position=0.0, speed=0.0, driven=0.0, now=0.0)
        self.drive = Drive()
        self._crash: Crash | None = None
        self._impact = 0.0
        self._outcome: str | None = None
        self._collision_kind: str | None = None
        self._steps = 0
        self._speed = vehicle.getSpeed(EGO)
        self._accel = 0.0
        self._changing = 0
        self._entered_on = ""
        self._light, self._stop_line = "", 0.0
        last = self._route[-1]
        self._length = vehicle.getDrivingDistance(EGO, last, self.street.lanes[self.street.edges[last][0]].length)
        self._odometer = vehicle.getDistance(EGO)
        self._read_ego()

    def _read_ego(self) -> None:
        """Read the ego's lane, position, speed limit and next light from SUMO."""
        vehicle = sumo.vehicle
        self._lane: Lane = self.street.lanes[vehicle.getLaneID(EGO)]
        self._position = vehicle.getLanePosition(EGO)
        self._limit = vehicle.getAllowedSpeed(EGO)
        self._light = ""
        if self.street.lights:
            lights = vehicle.getNextTLS(EGO)
            if lights:
                _, _, self._stop_line, self._light = lights[0]

    def _light_ahead(self) -> str:
        """Return the state of the next junction's light, or ""; the next light in SUMO's list may be farther away."""
        return self._light if self._path is not None and self._path.light is not None else ""

    def _junction_path(self) -> tuple[JunctionPath | None, float]:
        """Return the path through the current or next junction, and the metres driven on it: negative before it."""
        if self._lane.internal:
            path, before = self.street.inside[self._lane.id]
            return path, before + self._position
        index = sumo.vehicle.getRouteIndex(EGO) + 1
        if index >= len(self._route):
            return None, 0.0
        return self.street.path(self._lane.id, self._route[index]), self._position - self._lane.length

    def _observe(self) -> NDArray[np.float32]:
        path, driven = self._junction_path()
        self._path = path
        light = self._entered_on if driven >= 0 else self._light_ahead()
        conflict = self._conflict_detector.detect(path, driven, self.drive.driven, light, self._steps * DT)
        ego = EgoState(
            lane=self._lane,
            position=self._position,
            speed=self._speed,
            accel=self._accel,
            limit=self._limit,
            route_left=self._length - self.drive.driven,
            light=self._light,
            stop_line=self._stop_line,
            conflict=conflict,
        )
        self._last = np.array(self._observer.observe(ego), dtype=np.float32)
        return self._last

    def _step(self, accel_action: float, lane_action: float) -> tuple[NDArray[np.float32], bool]:
        accel = min(ACCEL_HIGH, max(ACCEL_LOW, accel_action))
        if accel != accel_action or not -1.0 <= lane_action <= 1.0:
            self.drive.clipped += 1
        speed = max(0.0, self._speed + accel * DT)
        sumo.vehicle.setSpeed(EGO, speed)
        self._change_lane(lane_action)
        if self._has_event:
            self._step_event()
        sumo.simulationStep()
        self._steps += 1
        before = self._speed
        if self._arrived(speed, before):
            return self._last, True
        if self._collided():
            self._move(speed, before)
            return self._last, True
        self._advance(speed, before)
        if self._outcome is None:
            observation = self._observe()
            present, gap, relative = self._observer.lead
            if present:
                self.drive.follow(self._speed, gap, relative)
            self.drive.min_pet = self._conflict_detector.min_pet
            if self._steps * DT >= self._time_limit - 1e-9:
                self._outcome = "timeout"
            return observation, self._outcome is not None
        return self._last, True

    def _step_event(self) -> None:
        """Pass the ego's state to the event, which controls its actor."""
        if ACTOR in sumo.simulation.getArrivedIDList():
            self._event.arrived = True
        ego = self._ego
        ego.lane, ego.position, ego.speed = self._lane.id, self._position, self._speed
        ego.driven, ego.now, ego.light = self.drive.driven, self._steps * DT, self._light_ahead()
        self._event.step(ego)

    def _change_lane(self, lane_action: float) -> None:
        """Start a lane change if the action asks for it, no lane change is under way and the lane exists."""
        if self._changing:
            self._changing -= 1
            return
        direction = 1 if lane_action >= 0.5 else -1 if lane_action <= -0.5 else 0
        lane = self._lane
        if direction and not lane.internal and 0 <= lane.rank + direction < lane.count:
            sumo.vehicle.changeLaneRelative(EGO, direction, DT)
            self._changing = CHANGE_STEPS

    def _collided(self) -> bool:
        """Record the ego's first collision, if there is one; SUMO reports a collision at every step."""
        for collision in sumo.simulation.getCollisions():
            if EGO in (collision.collider, collision.victim):
                self._crash = self._crash_facts(collision)
                self._outcome = "collision"
                self._collision_kind = collision.type
                return True
        return False

    def _crash_facts(self, collision: Any) -> Crash:
        collider = collision.collider == EGO
        other = collision.victim if collider else collision.collider
        ego_speed, other_speed = (
            (collision.colliderSpeed, collision.victimSpeed)
            if collider
            else (collision.victimSpeed, collision.colliderSpeed)
        )
        pedestrian = other in self._traffic.persons
        domain = sumo.person if pedestrian else sumo.vehicle
        turn = np.radians(domain.getAngle(other) - sumo.vehicle.getAngle(EGO))
        # Along the ego's heading: head-on, the speeds add up; from the side, the other's speed does not count.
        self._impact = abs(ego_speed - other_speed * float(np.cos(turn)))
        ran_into_rear = False
        if not pedestrian:
            x, y = sumo.vehicle.getPosition(EGO)
            other_x, other_y = sumo.vehicle.getPosition(other)
            heading = np.radians(sumo.vehicle.getAngle(EGO))
            ahead = (other_x - x) * float(np.sin(heading)) + (other_y - y) * float(np.cos(heading))
            ran_into_rear = abs(float(np.cos(turn))) > 0.87 and float(np.cos(turn)) > 0 and ahead > EGO_LENGTH / 2
        return Crash(
            kind=collision.type,
            ego_is_collider=collider,
            ego_speed=ego_speed,
            pedestrian=pedestrian,
            changing_lane=self._changing > 0,
            entered_on=self._entered_on,
            had_to_yield=not pedestrian and self._had_to_yield(other),
            ran_into_rear=ran_into_rear,
        )

    def _had_to_yield(self, other: str) -> bool:
        """Return whether the ego's link must give way to the other vehicle's link."""
        path_and_position = self.street.inside.get(sumo.vehicle.getLaneID(other))
        if path_and_position is None or self._path is None:
            return True
        path, _ = path_and_position
        return path.link in self.street.yields[path.junction].get(self._path.link, ())

    def _arrived(self, speed: float, before: float) -> bool:
        if EGO not in sumo.simulation.getArrivedIDList():
            return False
        self._outcome = "arrived"
        self._record(speed, before, 0.0)
        self.drive.driven = self._length
        return True

    def _advance(self, commanded: float, before: float) -> None:
        """Record the step's motion, lane changes and red lights; ``commanded`` and ``before`` are speeds in m/s."""
        previous_lane, light = self._lane, self._light_ahead()
        self._read_ego()
        if self._lane.edge == previous_lane.edge and self._lane.id != previous_lane.id:
            self.drive.lane_changes += 1
        if self._lane.internal and not previous_lane.internal:
            # A change of SUMO's next light would not do: a lane change causes it too.
            self._entered_on = light
            if light in RED:
                self.drive.red_lights += 1
        elif not self._lane.internal:
            self._entered_on = ""
        if not self._move(commanded, before):
            # The ego has reached the end of a lane that does not lead along the route.
            self._outcome = "stranded"

    def _move(self, commanded: float, before: float) -> bool:
        """Record the ego's motion; return False if SUMO, not the model, has stopped the car."""
        vehicle = sumo.vehicle
        self._speed = vehicle.getSpeed(EGO)
        self.drive.driven = vehicle.getDistance(EGO) - self._odometer
        if abs(self._speed - commanded) > SPEED_TOLERANCE:
            self.drive.halt()
            return False
        self._record(commanded, before, vehicle.getCO2Emission(EGO))
        return True

    def _record(self, speed: float, before: float, co2: float) -> None:
        self._accel = (speed - before) / DT
        self.drive.move(speed, self._accel, self._limit, co2)

    def outcome(self, fault: str | None) -> dict[str, Metric]:
        """Return the metrics; the status of a model's fault replaces the simulation's outcome."""
        outcome = fault or self._outcome or "unfinished"
        crash = self._crash
        return metrics(
            self.drive,
            Ending(
                outcome=outcome,
                route=self._length,
                limit=self._street_limit,
                collision=crash is not None,
                at_fault=crash is not None and at_fault(crash),
                pedestrian=crash is not None and crash.pedestrian,
                impact_speed=self._impact,
                kind=self._collision_kind,
            ),
        ) | {"event_met": int(self._event.triggered)}

    def scene(self) -> dict[str, Any]:
        """Return the street's static shapes for a replay."""
        return replay_frames.scene(self._scenery)

    def frame(self) -> dict[str, Any]:
        """Return the current state for a replay."""
        return replay_frames.frame(self._scenery, self._traffic.persons) | {
            "time": round(self._steps * DT, 1),
            "limit": round(self._limit, 2),
            "outcome": self._outcome,
        }

    def close(self) -> None:
        """End the SUMO simulation."""
        if sumo.isLoaded():
            sumo.close()
