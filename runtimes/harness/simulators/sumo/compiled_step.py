"""One step of a scenario in one call of compiled code, through ctypes; equal to the bit to `python_step.py`."""

import ctypes
from collections.abc import Iterable
from dataclasses import fields
from math import hypot
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..direct_exchange import Exchange, Pause
from .clock import DT
from .compiled_library import LOAD_PATH, check
from .conflicts import ConflictMap, JunctionTraversal
from .drive_metrics import Drive
from .engine import sumo
from .event import ACTOR
from .python_step import StepConstants
from .street import JunctionPath, Street

#: By the number that the compiled code returns.
OUTCOMES = (None, "arrived", "collision", "stranded", "timeout")
#: Numbers in an observation.
OBSERVATION = 32


#: Members of `Drive` that a state has under the same name.
_MEASUREMENTS = tuple(field.name for field in fields(Drive) if field.init and not field.name.startswith("_"))


def _light(code: int) -> str:
    return chr(code) if code else ""


class CompiledStreet:
    """A street's constants in the compiled code's memory, for the process's life; paths are sent on first use."""

    def __init__(self, compiled: ctypes.CDLL, conflict_map: ConflictMap) -> None:
        self.compiled = compiled
        self.conflict_map = conflict_map
        street = conflict_map.street
        self.lanes = list(street.lanes)
        self.paths: list[JunctionPath] = list(
            dict.fromkeys([*street.paths.values(), *(path for path, _ in street.inside.values())])
        )
        self._path_numbers = {path: number for number, path in enumerate(self.paths)}
        self._edges = {edge: number for number, edge in enumerate(street.edges)}
        self.address = compiled.street_new(self._text(street).encode())
        if not self.address:
            raise RuntimeError("the compiled step could not read the street's constants")
        self._error: Exception | None = None
        # ctypes does not keep a reference to a callback.
        self.load_path = LOAD_PATH(self._load_path)

    def route(self, edges: Iterable[str]) -> str:
        """Return a route as text: its length and its edges by number."""
        numbers = [self._edges.setdefault(edge, len(self._edges)) for edge in edges]
        return f"{len(numbers)} {' '.join(map(str, numbers))}"

    def _text(self, street: Street) -> str:
        edges, inside = self._edges, street.inside
        lines = [str(len(street.lanes))]
        for lane in street.lanes.values():
            path, before = inside.get(lane.id, (None, 0.0)) if lane.internal else (None, 0.0)
            edge = edges.setdefault(lane.edge, len(edges))
            number = -1 if path is None else self._path_numbers[path]
            place = (edge, lane.rank, lane.count, repr(lane.length), int(lane.internal), number, repr(before))
            lines.append(f"{lane.id} {' '.join(map(str, place))}")
        lines.append(f"{len(self.paths)} " + " ".join(str(int(path.light is not None)) for path in self.paths))
        numbers = {lane: number for number, lane in enumerate(self.lanes)}
        turns = []
        for edge_id, following in street.following.items():
            for onto in following:
                for lane_id in street.edges[edge_id]:
                    if (turn := street.path(lane_id, onto)) is not None:
                        turns.append(f"{numbers[lane_id]} {edges[onto]} {self._path_numbers[turn]}")
        return "\n".join([*lines, str(len(turns)), *turns, str(int(bool(street.lights)))]) + "\n"

    def _load_path(self, number: int) -> None:
        """Send the constants of a path; the compiled code calls this when the ego approaches it for the first time."""
        try:
            self.compiled.street_path(self.address, number, self._path_text(self.paths[number]).encode())
        except Exception as error:  # it cannot pass through compiled code; `check` raises it afterwards
            self._error = error

    def _path_text(self, path: JunctionPath) -> str:
        street = self.conflict_map.street
        traversal = JunctionTraversal(self.conflict_map, path, 0.0)
        areas = [encroachment.area for encroachment in traversal.encroachments]
        numbers = {id(area): number for number, area in enumerate(areas)}
        lines = [str(len(areas))]
        for area in areas:
            metres = map(repr, (area.entry, area.exit, area.other_entry, area.other_exit))
            other = area.other
            rest = (int(area.ego_yields), self._edges[other.onto], other.light or "-", other.light_index)
            lines.append(" ".join([*metres, *map(str, rest)]))
        lines.append(str(len(traversal.inner_lanes)))
        for lane, inner in traversal.inner_lanes.items():
            members = " ".join(f"{numbers[id(area)]} {before!r}" for area, before in inner)
            lines.append(f"{lane} {len(inner)} {members}")
        lines.append(str(len(traversal.approach_lanes)))
        for lane, by_edge in traversal.approach_lanes.items():
            members = " ".join(f"{self._edges[onto]} {numbers[id(area)]}" for onto, area in by_edge.items())
            lines.append(f"{lane} {street.lanes[lane].length!r} {len(by_edge)} {members}")
        lines.append(str(len(traversal.crosswalk_areas)))
        for crossing in traversal.crosswalk_areas:
            shape = crossing.crosswalk.shape
            (ax, ay), (bx, by) = shape[0], shape[-1]
            length = float(np.hypot(bx - ax, by - ay)) or 1.0
            constants = (crossing.entry, crossing.exit, crossing.across, ax, ay, bx - ax, by - ay, length)
            names = (crossing.crosswalk.id, *crossing.crosswalk.kerbs)
            numbers_text = " ".join(map(repr, (*constants, 1e-6 * hypot(bx - ax, by - ay))))
            lines.append(f"{crossing.crosswalk.id} {numbers_text} {len(names)} {' '.join(names)}")
        return "\n".join(lines) + "\n"

    def check(self, code: int) -> None:
        """Raise the exception of a call's result, or the one that a callback of it raised."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        check(code, self.compiled)


class CompiledStep:
    """The compiled form of `PythonStep`, with the same members."""

    def __init__(self, street: CompiledStreet, constants: StepConstants) -> None:
        self._street = street
        self._constants = constants
        self._buffer = np.zeros(OBSERVATION, dtype=np.float32)
        self._out = self._buffer.ctypes.data
        vehicles = [
            f"{name} {constants.min_gap[name]!r} {street.route(route)}" for name, route in constants.routes.items()
        ]
        text = "\n".join([street.route(constants.route), str(len(vehicles)), *vehicles]) + "\n"
        compiled = street.compiled
        self._episode = compiled.episode_new(
            street.address,
            text.encode(),
            constants.route_length,
            constants.time_limit,
            street.load_path,
            self._out,
        )
        if not self._episode:
            street.check(compiled.step_status())
        self._state: Any = compiled.episode_state(self._episode).contents
        self._state.pedestrians = constants.pedestrians
        self._call, self._drive = compiled.episode_step, compiled.episode_drive
        self.observation = self._buffer.copy()

    def __del__(self) -> None:
        if getattr(self, "_episode", None):
            self._street.compiled.episode_delete(self._episode)

    def step(self, accel_action: float, lane_action: float) -> NDArray[np.float32]:
        """Apply an action for 0.1 s; return the observation, which stays the last one if the scenario ends early."""
        code = self._call(self._episode, accel_action, lane_action, self._out)
        if code < 0 or self._street._error is not None:
            self._street.check(code)
        self.observation = observation = self._buffer.copy()
        return observation

    def run(self, exchange: Exchange, event: Any) -> Pause:
        """Drive with a model server's actions; ``event``: callback before each step, or an empty one."""
        code = self._drive(self._episode, ctypes.byref(exchange), event, self._out)
        if code < 0 or self._street._error is not None:
            self._street.check(code)
        return Pause(code)

    def gap(self) -> float:
        """Return the metres from the ego's front to the actor's rear along the route; infinity if it is not ahead."""
        route, lanes = self._constants.routes[ACTOR], self._street.conflict_map.street
        edge = route[sumo.vehicle.getRouteIndex(ACTOR)]
        gap: float = self._street.compiled.actor_gap(edge.encode(), lanes.lanes[lanes.edges[edge][0]].length)
        if gap != gap:  # NaN
            self._street.check(self._street.compiled.step_status())
        return gap

    @property
    def outcome(self) -> str | None:
        """None while the scenario goes on."""
        return OUTCOMES[self._state.outcome]

    @property
    def position(self) -> float:
        """Metres of the ego's front on its lane."""
        return float(self._state.position)

    @property
    def speed(self) -> float:
        """The ego's speed in m/s."""
        return float(self._state.speed)

    @property
    def limit(self) -> float:
        """Speed limit of the ego's lane in m/s."""
        return float(self._state.limit)

    @property
    def lane(self) -> str:
        """Id of the ego's lane."""
        return str(self._street.lanes[self._state.lane])

    @property
    def path(self) -> JunctionPath | None:
        """The path through the current or next junction."""
        number = self._state.path
        return None if number < 0 else self._street.paths[number]

    @property
    def driven(self) -> float:
        """Metres that the ego has driven."""
        return float(self._state.driven)

    @property
    def steps(self) -> int:
        """Steps since the scenario's start."""
        return int(self._state.moves)

    @property
    def now(self) -> float:
        """Seconds since the scenario's start."""
        return self.steps * DT

    @property
    def light(self) -> str:
        """State of the next junction's light, or ""."""
        path = self.path
        return _light(self._state.light) if path is not None and path.light is not None else ""

    @property
    def entered_on(self) -> str:
        """State of the light when the ego entered the junction that it is on, or ""."""
        return _light(self._state.entered_on)

    @property
    def changing(self) -> int:
        """Steps until the ego may change lanes again."""
        return int(self._state.changing)

    @property
    def actor_arrived(self) -> bool:
        """Whether the actor has left the simulation."""
        return bool(self._state.actor_arrived)

    @property
    def drive(self) -> Drive:
        """The measurements so far."""
        return Drive(**{name: getattr(self._state, name) for name in _MEASUREMENTS})
