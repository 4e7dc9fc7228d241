"""The world `sumo`: one car of the model's among SUMO's, in lock-step at 10 Hz."""

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base import Interface, Metric, Scenario, WorldBroken
from . import replay_frames
from .clock import DT
from .conflicts import EGO_LENGTH, RED, ConflictWatch, Ways
from .drive_metrics import Drive, Ending, metrics
from .engine import EGO, load, options, sumo
from .event import ACTOR, Ego, EventPlan, ScriptedEvent
from .events import event
from .fault import Crash, at_fault
from .observation import Senses, Situation
from .street import Lane, Street, Way, read
from .traffic import Traffic, shift_lights

ACCEL_LOW, ACCEL_HIGH = -9.0, 3.0
#: Steps a lane change takes, in which further wishes are ignored.
CHANGE_STEPS = 30
#: SUMO's lane change modes: obey whatever is asked, or refuse unsafe gaps.
OBEY, GUARD = 0, 512
#: SUMO's speed mode without any of its own safety; 0 would still yield inside junctions.
UNCHECKED = 32
#: Speeds that differ more than this were not the model's doing.
SLIP = 1e-3


def broken(error: Exception) -> WorldBroken:
    """Say that SUMO's state is undefined: a fatal error must end the process, not only the scenario."""
    return WorldBroken(f"SUMO failed: {error}")


class World:
    """Plays the scenarios of a SUMO data set."""

    def __init__(self, dataset: Path, definition: Mapping[str, Any]) -> None:
        self.interface = Interface.of(definition["interface"])
        self._folder = dataset
        self._streets: dict[str, tuple[Street, Ways]] = {}
        first = definition.get("streets")
        if first:
            # Read one network now, while nobody waits for it.
            self._street(first[0])
            load(options(self._network(first[0]), dataset / "types.add.xml", 0))

    def _network(self, name: str) -> Path:
        return self._folder / "nets" / f"{name}.net.xml"

    def _street(self, name: str) -> tuple[Street, Ways]:
        if name not in self._streets:
            street = read(self._network(name))
            self._streets[name] = (street, Ways(street))
        return self._streets[name]

    def reset(self, scenario: Scenario) -> NDArray[np.float32]:
        """Begin a scenario."""
        try:
            return self._reset(scenario)
        except sumo.FatalTraCIError as error:
            raise broken(error) from error

    def step(self, action: NDArray[Any]) -> tuple[NDArray[np.float32], bool]:
        """Drive on for a tenth of a second."""
        try:
            return self._step(float(action[0]), float(action[1]))
        except sumo.FatalTraCIError as error:
            raise broken(error) from error

    def _reset(self, scenario: Scenario) -> NDArray[np.float32]:
        spec = scenario.spec
        self.street, ways = self._street(spec["street"])
        load(options(self._network(spec["street"]), self._folder / "types.add.xml", scenario.seed))
        rng = Random(scenario.seed)
        self._route: tuple[str, ...] = tuple(spec["route"])
        start = spec["start"]
        lane = self.street.edges[self._route[0]][start["lane"]]
        traffic = Traffic(self.street, rng)
        shift_lights(self.street, rng)
        traffic.ego(self._route, lane.rsplit("_", 1)[1], start["pos"], start["speed"])
        plan = EventPlan(self._route, lane, start["pos"], start["speed"], spec.get("trigger", 0.0))
        self._event = event(spec, traffic, ways, plan)
        self._event.set()
        traffic.fill(spec["vehicles"], spec["mix"])
        traffic.crowd(spec.get("pedestrians", 0))
        sumo.simulationStep()
        self._traffic = traffic
        self._time_limit = float(spec["time_limit"])
        self._street_limit = float(spec["limit"])
        self._senses = Senses(self.street, traffic.min_gap)
        self._watch = ConflictWatch(ways, traffic.routes)
        self._begin(bool(scenario.params.get("lane_guard", False)))
        return self._observe()

    def _begin(self, lane_guard: bool) -> None:
        """Take the ego's wheel, once SUMO has put it on the street."""
        vehicle = sumo.vehicle
        present = vehicle.getIDList()
        for name in (EGO, ACTOR):
            if name not in present and name in (EGO, *self._traffic.routes):
                raise RuntimeError(f"SUMO found no room for the {name}")
        vehicle.setSpeedMode(EGO, UNCHECKED)
        vehicle.setLaneChangeMode(EGO, GUARD if lane_guard else OBEY)
        self._event.begin()
        self._eventful = type(self._event) is not ScriptedEvent
        self._ego = Ego("", 0.0, 0.0, 0.0, 0.0)
        self.drive = Drive()
        self._crash: Crash | None = None
        self._impact = 0.0
        self._outcome: str | None = None
        self._kind: str | None = None
        self._steps = 0
        self._speed = vehicle.getSpeed(EGO)
        self._accel = 0.0
        self._changing = 0
        self._entered_on = ""
        self._light, self._stop_line = "", 0.0
        last = self._route[-1]
        self._length = vehicle.getDrivingDistance(EGO, last, self.street.lanes[self.street.edges[last][0]].length)
        self._odometer = vehicle.getDistance(EGO)
        self._look()

    def _look(self) -> None:
        """Ask where the ego is now."""
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
        """Return the light over the next stop line; the next light may stand farther on."""
        return self._light if self._path is not None and self._path.light is not None else ""

    def _way(self) -> tuple[Way | None, float]:
        """Return the path at the next junction, and the metres driven on it: negative before it."""
        if self._lane.internal:
            path, before = self.street.inside[self._lane.id]
            return path, before + self._position
        index = sumo.vehicle.getRouteIndex(EGO) + 1
        if index >= len(self._route):
            return None, 0.0
        return self.street.path(self._lane.id, self._route[index]), self._position - self._lane.length

    def _observe(self) -> NDArray[np.float32]:
        path, driven = self._way()
        self._path = path
        lit = self._entered_on if driven >= 0 else self._light_ahead()
        conflict = self._watch.look(path, driven, self.drive.driven, lit, self._steps * DT)
        seen = Situation(
            self._lane,
            self._position,
            self._speed,
            self._accel,
            self._limit,
            self._length - self.drive.driven,
            self._light,
            self._stop_line,
            conflict,
        )
        self._last = np.array(self._senses.observe(seen), dtype=np.float32)
        return self._last

    def _step(self, wanted: float, sideways: float) -> tuple[NDArray[np.float32], bool]:
        accel = min(ACCEL_HIGH, max(ACCEL_LOW, wanted))
        if accel != wanted or not -1.0 <= sideways <= 1.0:
            self.drive.clipped += 1
        speed = max(0.0, self._speed + accel * DT)
        sumo.vehicle.setSpeed(EGO, speed)
        self._steer(sideways)
        if self._eventful:
            self._prompt()
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
            present, gap, relative = self._senses.lead
            if present:
                self.drive.follow(self._speed, gap, relative)
            self.drive.min_pet = self._watch.min_pet
            if self._steps * DT >= self._time_limit - 1e-9:
                self._outcome = "timeout"
            return observation, self._outcome is not None
        return self._last, True

    def _prompt(self) -> None:
        """Let the event act on where the ego is."""
        if ACTOR in sumo.simulation.getArrivedIDList():
            self._event.gone = True
        ego = self._ego
        ego.lane, ego.position, ego.speed = self._lane.id, self._position, self._speed
        ego.driven, ego.now, ego.light = self.drive.driven, self._steps * DT, self._light_ahead()
        self._event.step(ego)

    def _steer(self, sideways: float) -> None:
        """Begin a lane change, unless one is under way or there is no lane."""
        if self._changing:
            self._changing -= 1
            return
        wish = 1 if sideways >= 0.5 else -1 if sideways <= -0.5 else 0
        lane = self._lane
        if wish and not lane.internal and 0 <= lane.rank + wish < lane.count:
            sumo.vehicle.changeLaneRelative(EGO, wish, DT)
            self._changing = CHANGE_STEPS

    def _collided(self) -> bool:
        """Take the first collision of the ego's; SUMO reports it again at every step."""
        for collision in sumo.simulation.getCollisions():
            if EGO in (collision.collider, collision.victim):
                self._crash = self._witness(collision)
                self._outcome = "collision"
                self._kind = collision.type
                return True
        return False

    def _witness(self, collision: Any) -> Crash:
        collider = collision.collider == EGO
        other = collision.victim if collider else collision.collider
        mine, theirs = (
            (collision.colliderSpeed, collision.victimSpeed)
            if collider
            else (collision.victimSpeed, collision.colliderSpeed)
        )
        pedestrian = other in self._traffic.persons
        domain = sumo.person if pedestrian else sumo.vehicle
        turn = np.radians(domain.getAngle(other) - sumo.vehicle.getAngle(EGO))
        # Along our heading: head on, the two speeds add; from the side, theirs counts for nothing.
        self._impact = abs(mine - theirs * float(np.cos(turn)))
        onto_us = False
        if not pedestrian:
            x, y = sumo.vehicle.getPosition(EGO)
            ox, oy = sumo.vehicle.getPosition(other)
            heading = np.radians(sumo.vehicle.getAngle(EGO))
            ahead = (ox - x) * float(np.sin(heading)) + (oy - y) * float(np.cos(heading))
            onto_us = abs(float(np.cos(turn))) > 0.87 and float(np.cos(turn)) > 0 and ahead > EGO_LENGTH / 2
        return Crash(
            kind=collision.type,
            ego_is_collider=collider,
            ego_speed=mine,
            pedestrian=pedestrian,
            changing_lane=self._changing > 0,
            entered_on=self._entered_on,
            had_to_yield=not pedestrian and self._had_to_yield(other),
            ran_into_rear=onto_us,
        )

    def _had_to_yield(self, other: str) -> bool:
        """Tell whether the ego's link gives way to the other's."""
        found = self.street.inside.get(sumo.vehicle.getLaneID(other))
        if found is None or self._path is None:
            return True
        path, _ = found
        return path.link in self.street.yields[path.junction].get(self._path.link, ())

    def _arrived(self, speed: float, before: float) -> bool:
        if EGO not in sumo.simulation.getArrivedIDList():
            return False
        self._outcome = "arrived"
        self._record(speed, before, 0.0)
        self.drive.driven = self._length
        return True

    def _advance(self, asked: float, before: float) -> None:
        """Take what the step did to the ego."""
        left, light = self._lane, self._light_ahead()
        self._look()
        if self._lane.edge == left.edge and self._lane.id != left.id:
            self.drive.lane_changes += 1
        if self._lane.internal and not left.internal:
            # Not "the next light has changed": a lane change alters that too.
            self._entered_on = light
            if light in RED:
                self.drive.red_lights += 1
        elif not self._lane.internal:
            self._entered_on = ""
        if not self._move(asked, before):
            # The end of a lane that does not lead along the route.
            self._outcome = "stranded"

    def _move(self, asked: float, before: float) -> bool:
        """Take the ego's motion; False if SUMO, not the model, has stopped the car."""
        vehicle = sumo.vehicle
        self._speed = vehicle.getSpeed(EGO)
        self.drive.driven = vehicle.getDistance(EGO) - self._odometer
        if abs(self._speed - asked) > SLIP:
            self.drive.halt()
            return False
        self._record(asked, before, vehicle.getCO2Emission(EGO))
        return True

    def _record(self, speed: float, before: float, co2: float) -> None:
        self._accel = (speed - before) / DT
        self.drive.move(speed, self._accel, self._limit, co2)

    def outcome(self, fault: str | None) -> dict[str, Metric]:
        """Return the metrics; a fault of the model's outweighs whatever the street would have said."""
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
                kind=self._kind,
            ),
        ) | {"event_met": int(self._event.met)}

    def scene(self) -> dict[str, Any]:
        """Return the street as a replay draws it."""
        return replay_frames.scene(self.street)

    def frame(self) -> dict[str, Any]:
        """Return who is where."""
        return replay_frames.frame(self.street, self._traffic.persons) | {
            "time": round(self._steps * DT, 1),
            "limit": round(self._limit, 2),
            "outcome": self._outcome,
        }

    def close(self) -> None:
        """End SUMO."""
        if sumo.isLoaded():
            sumo.close()
