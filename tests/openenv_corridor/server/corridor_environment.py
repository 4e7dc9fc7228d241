"""The corridor. It keeps what an honest environment should not: a count of its episodes, and a global generator.

``fault`` at a reset names what goes wrong from the second step on, for the tests of faults.
"""

import os
import random
import sys
import time
from typing import Any
from uuid import uuid4

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import State

try:
    from ..models import CorridorAction, CorridorObservation, Door
except ImportError:
    from models import CorridorAction, CorridorObservation, Door

#: Episodes since this module was imported.
episodes = 0


class CorridorEnvironment(Environment):
    """A walker between two walls, and a door in one of 19 places."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        self._state = State(episode_id=str(uuid4()), step_count=0)
        self._position, self._door, self._fault = 0.0, 0.0, ""

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        door: float | None = None,
        fault: str = "",
        **kwargs: Any,
    ) -> CorridorObservation:
        global episodes
        episodes += 1
        self._state = State(episode_id=episode_id or str(uuid4()), step_count=0)
        self._position, self._fault = 0.0, fault
        self._door = float(random.randrange(-9, 10)) if door is None else door
        if fault == "reset":
            raise ValueError("the corridor is closed")
        return self._seen(0.0, done=False)

    def step(self, action: CorridorAction, timeout_s: float | None = None, **kwargs: Any) -> CorridorObservation:
        self._state.step_count += 1
        if self._fault and self._state.step_count > 1:
            self._fail()
        way = {"stay": 0.0, "left": -1.0, "right": 1.0}[action.move]
        self._position = max(-10.0, min(10.0, self._position + way * action.stride))
        found = abs(self._position - self._door) < 0.5
        return self._seen(1.0 if found else -0.1, done=found)

    def _fail(self) -> None:
        if self._fault == "crash":
            print("the floor gives way", file=sys.stderr, flush=True)
            os.abort()
        if self._fault == "exit":
            os._exit(3)
        if self._fault == "hang":
            time.sleep(1e6)
        if self._fault == "raise":
            raise RuntimeError("the light went out")
        if self._fault == "print":
            print("x" * 5_000_000, flush=True)

    def _seen(self, reward: float, *, done: bool) -> CorridorObservation:
        walls = [self._position + 10.0, 10.0 - self._position]
        if self._fault == "shape" and self._state.step_count > 1:
            walls = walls[:1]
        return CorridorObservation(
            position=float("nan") if self._fault == "nan" and self._state.step_count > 1 else self._position,
            door=Door(position=self._door, open=done),
            walls=walls,
            light="on" if self._state.step_count % 2 else "off",
            episodes=episodes,
            reward=reward,
            done=done,
            metadata={"text": "y" * 8_000_000} if self._fault == "long" and self._state.step_count > 1 else {},
        )

    @property
    def state(self) -> State:
        return self._state
