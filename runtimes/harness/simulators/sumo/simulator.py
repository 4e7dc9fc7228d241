"""SUMO simulator: the model drives one car, the ego, in SUMO's traffic, in lock-step at 10 Hz."""

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...dataset_definition import Definition
from ..base import Interface, Metric, Scenario, SimulatorBroken, signals_frame, signals_scene
from ..direct_exchange import Exchange, Pause
from . import replay_frames
from .compiled_library import ENDED, EVENT, GOES_ON, STEP_FAILED, library
from .compiled_step import CompiledStep, CompiledStreet
from .conflicts import EGO_LENGTH, ConflictMap
from .drive_metrics import MIN_TTC_ANY, TTC_CAP, Drive, Ending, metrics
from .engine import EGO, load, options, sumo
from .event import ACTOR, EventPlan, ScriptedEvent
from .events import EVENTS
from .fault import Crash, at_fault
from .python_step import PythonStep, StepConstants
from .street import Street, read
from .traffic import Traffic, shift_lights

#: SUMO's lane change modes: execute every command, or refuse changes into unsafe gaps.
OBEY, GUARD = 0, 512
#: In place of the callback of an event.
NO_EVENT = EVENT()
#: SUMO's speed mode without safety checks; mode 0 would still yield inside junctions.
UNCHECKED = 32


def broken(error: Exception) -> SimulatorBroken:
    """Return the exception for a fatal SUMO error: its state is undefined, so the process must end."""
    return SimulatorBroken(f"SUMO failed: {error}")


class SumoSimulator:
    """Runs the scenarios of a SUMO dataset."""

    reward: float | None = None
    #: The last action; None before the first step of a scenario.
    _action: NDArray[Any] | None

    def __init__(self, dataset: Path, definition: Definition, *, compiled: bool = True) -> None:
        """``compiled``: use the compiled step where it is built; results do not depend on it."""
        self.interface = Interface.of(definition.interface or {})
        self._folder = dataset
        self._pedestrians = any(metric.name == MIN_TTC_ANY for metric in definition.metrics)
        self._compiled = library() if compiled else None
        self._streets: dict[str, tuple[ConflictMap, CompiledStreet | None]] = {}
        self._command_actors = EVENT(self._step_event)
        self._event_error: BaseException | None = None
        first = definition.streets
        if first:
            # Read one network and load SUMO now, before a launch waits for it.
            self._street(first[0])
            load(options(self._network(first[0]), dataset / "types.add.xml", 0))

    def _network(self, name: str) -> Path:
        return self._folder / "nets" / f"{name}.net.xml"

    def _street(self, name: str) -> tuple[ConflictMap, CompiledStreet | None]:
        if name not in self._streets:
            conflict_map = ConflictMap(read(self._network(name)))
            compiled = CompiledStreet(self._compiled, conflict_map) if self._compiled is not None else None
            self._streets[name] = (conflict_map, compiled)
        return self._streets[name]

    def reset(self, scenario: Scenario) -> NDArray[np.float32]:
        """Start a scenario; return the first observation. Raise SimulatorBroken if SUMO fails."""
        try:
            return self._reset(scenario)
        except sumo.FatalTraCIError as error:
            raise broken(error) from error

    def step(self, action: NDArray[Any]) -> tuple[NDArray[np.float32], bool]:
        """Apply an action for 0.1 s; return the observation and whether the scenario has ended."""
        self._action = action
        try:
            return self._advance(float(action[0]), float(action[1]))
        except sumo.FatalTraCIError as error:
            raise broken(error) from error

    def _reset(self, scenario: Scenario) -> NDArray[np.float32]:
        spec = scenario.spec
        self._action = None
        conflict_map, compiled_street = self._street(spec["street"])
        self.street: Street = conflict_map.street
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
        self._event = EVENTS[spec["event"]](traffic, conflict_map, plan)
        self._event.insert()
        traffic.add_vehicles(spec["vehicles"], spec["mix"])
        traffic.add_pedestrians(spec.get("pedestrians", 0))
        sumo.simulationStep()
        self._traffic = traffic
        self._street_limit = float(spec["limit"])
        self._take_control(bool(scenario.params.get("lane_guard", False)))
        constants = StepConstants(
            route=self._route,
            route_length=self._length,
            time_limit=float(spec["time_limit"]),
            routes=traffic.routes,
            min_gap=traffic.min_gap,
            pedestrians=self._pedestrians,
        )
        self._step: PythonStep | CompiledStep = (
            PythonStep(conflict_map, constants) if compiled_street is None else CompiledStep(compiled_street, constants)
        )
        return self._step.observation

    def _take_control(self, lane_guard: bool) -> None:
        """Take control of the ego, once SUMO has inserted it."""
        vehicle = sumo.vehicle
        present = vehicle.getIDList()
        for name in (EGO, ACTOR):
            if name not in present and name in (EGO, *self._traffic.routes):
                raise RuntimeError(f"SUMO could not insert the vehicle {name!r}: its position is occupied")
        vehicle.setSpeedMode(EGO, UNCHECKED)
        vehicle.setLaneChangeMode(EGO, GUARD if lane_guard else OBEY)
        self._event.begin()
        self._has_event = type(self._event) is not ScriptedEvent
        self._crash: Crash | None = None
        self._impact = 0.0
        self._collision_kind: str | None = None
        last = self._route[-1]
        self._length = vehicle.getDrivingDistance(EGO, last, self.street.lanes[self.street.edges[last][0]].length)

    def _advance(self, accel: float, lane: float) -> tuple[NDArray[np.float32], bool]:
        step = self._step
        if self._has_event:
            self._event.arrived = step.actor_arrived
            self._event.step(step)
        observation = step.step(accel, lane)
        outcome = step.outcome
        if outcome == "collision":
            self._record_crash()
        return observation, outcome is not None

    @property
    def drives_directly(self) -> bool:
        """Whether the compiled step is there."""
        return isinstance(self._step, CompiledStep)

    def drive_directly(self, exchange: Exchange) -> Pause:
        """Drive with a model server's actions until the scenario is over or the loop pauses."""
        assert isinstance(self._step, CompiledStep)
        try:
            pause = self._step.run(exchange, self._command_actors if self._has_event else NO_EVENT)
            if self._event_error is not None:
                error, self._event_error = self._event_error, None
                raise error
        except sumo.FatalTraCIError as error:
            raise broken(error) from error
        if pause is Pause.OVER and self._step.outcome == "collision":
            self._record_crash()
        return pause

    def _step_event(self) -> int:
        """Let the event command its actors; called by the compiled code, through which no exception can pass."""
        try:
            self._event.arrived = self._step.actor_arrived
            self._event.step(self._step)
            self._has_event = not self._event.over
        except BaseException as error:
            self._event_error = error
            return STEP_FAILED
        return GOES_ON if self._has_event else ENDED

    def _record_crash(self) -> None:
        """Record the ego's collision; SUMO reports a collision at every step until it is over."""
        for collision in sumo.simulation.getCollisions():
            if EGO in (collision.collider, collision.victim):
                self._crash = self._crash_facts(collision)
                self._collision_kind = collision.type
                return

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
            changing_lane=self._step.changing > 0,
            entered_on=self._step.entered_on,
            had_to_yield=not pedestrian and self._had_to_yield(other),
            ran_into_rear=ran_into_rear,
        )

    def _had_to_yield(self, other: str) -> bool:
        """Return whether the ego's link must give way to the other vehicle's link."""
        path_and_position = self.street.inside.get(sumo.vehicle.getLaneID(other))
        if path_and_position is None or self._step.path is None:
            return True
        path, _ = path_and_position
        return path.link in self.street.yields[path.junction].get(self._step.path.link, ())

    @property
    def drive(self) -> Drive:
        """The scenario's measurements so far."""
        return self._step.drive

    def outcome(self, fault: str | None) -> dict[str, Metric]:
        """Return the metrics; the status of a model's fault replaces the simulation's outcome."""
        outcome = fault or self._step.outcome or "unfinished"
        crash = self._crash
        measured = metrics(
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
        )
        if self._pedestrians:
            measured[MIN_TTC_ANY] = min(self.drive.min_ttc, self.drive.min_ttc_pedestrian, TTC_CAP)
        return measured | {"event_met": int(self._event.triggered)}

    def scene(self) -> dict[str, Any]:
        """Return the street's static shapes for a replay, and the names and units of observations and actions."""
        return signals_scene(self.interface) | replay_frames.scene(self._scenery)

    def frame(self) -> dict[str, Any]:
        """Return the current state for a replay."""
        return (
            signals_frame(self._step.observation, self._action)
            | replay_frames.frame(self._scenery, self._traffic.persons)
            | {
                "time": round(self._step.now, 1),
                "limit": round(self._step.limit, 2),
                "outcome": self._step.outcome,
                "red_lights": self._step.drive.red_lights,
            }
        )

    def close(self) -> None:
        """End the SUMO simulation."""
        if sumo.isLoaded():
            sumo.close()
