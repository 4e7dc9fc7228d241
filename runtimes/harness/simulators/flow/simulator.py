"""Flow simulator: clock, observations and score of a flow, which ranks compute, or this process alone.

Ranks see scenario and actions of a world as numbers, and give forces and pressures back. Observations and rewards are
made of them here.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from ...dataset_definition import Definition
from ..base import Interface, Metric, Scenario, signals_frame, signals_scene
from ..rank_connection import RankConnection, RankPort, RanksFailed
from . import picture
from .channel import DIAMETER, SPEED
from .flow import FlowAnswer, FlowOrder, FlowPart, merge

#: Seconds within which ranks answer: a step, and a reset, for which a flow may have to develop. Times of a channel with
#: 10 cells per diameter; of others they grow with the cube.
STEP_PATIENCE, RESET_PATIENCE = 30.0, 120.0
FINEST_OF_THESE = 10
#: Weight of the lift in the reward.
LIFT = 0.2
#: Numbers of worlds of this process: ranks may have several at once, of models that answer for many.
_numbers = itertools.count()


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowParams:
    """Parameters of a scenario, with the defaults of the dataset; the evaluator itself delays actions."""

    reynolds: float = 100.0
    cells: int = 10
    steps: int = 80
    latency_steps: int = 0


def phase_of(seed: int, phase: float | None = None, **others: object) -> float:
    """Return the phase at which a scenario begins, 0 to 1: its own, or that of its seed."""
    return float(np.random.default_rng(seed).random() if phase is None else phase)


class OneProcess:
    """The only rank of a flow, in this process."""

    def __init__(self) -> None:
        self._part = FlowPart(0, 1)

    def ask(self, message: Mapping[str, object], seconds: float) -> Mapping[str, object]:
        """Execute a message; it takes as long as it takes."""
        order = FlowOrder(**message)  # type: ignore[arg-type]  # made of one below
        return asdict(merge(order, [self._part.execute(order)]))


class FlowSimulator:
    """A world on the ranks; the reward of a step is how much less drag it has than without control, less lift."""

    def __init__(self, definition: Definition, ranks: RankConnection | None) -> None:
        self.interface = Interface.of(definition.interface or {})
        self._ranks: RankPort = ranks if ranks is not None else OneProcess()
        self._seconds = float(definition.dt or 0.0)
        self._world = next(_numbers)
        self._params = FlowParams()
        self._begin(FlowAnswer())
        self.reward: float | None = None

    def _begin(self, answer: FlowAnswer) -> None:
        self._speed, self._angle, self._answer = 0.0, 0.0, answer
        self._action: NDArray[np.float32] | None = None
        self._drags: list[float] = []
        self._lifts: list[float] = []
        self._powers: list[float] = []
        self._return, self._clipped = 0.0, 0

    def reset(self, scenario: Scenario) -> NDArray[np.float32]:
        self._params = FlowParams(**scenario.params)
        phase = phase_of(scenario.seed, **scenario.spec)
        self._begin(self._ask("reset", RESET_PATIENCE, phase=phase, seconds=self._seconds))
        self._uncontrolled = self._finite("uncontrolled", self._answer.uncontrolled)
        self.reward = None
        return self._observation()

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float32], bool]:
        space = self.interface.action
        self._action = np.clip(action.reshape(-1), *(np.array(bound, space.dtype) for bound in (space.low, space.high)))
        self._clipped += bool((self._action != action.reshape(-1)).any())
        before, self._speed = self._speed, float(self._action[0]) / SPEED
        self._answer = self._ask("step", STEP_PATIENCE, seconds=self._seconds, before=before, after=self._speed)
        self._angle += 0.5 * (before + self._speed) * SPEED / (DIAMETER / 2) * self._seconds
        drag, lift = self._finite("drag", self._answer.drag), self._finite("lift", self._answer.lift)
        moment = self._finite("moment", self._answer.moment)
        self._drags.append(drag)
        self._lifts.append(lift)
        # The moment coefficient has the diameter as its arm, and the surface is half of it away.
        self._powers.append(abs(moment * 2.0 * self._speed))
        self.reward = self._uncontrolled - drag - LIFT * abs(lift)
        self._return += self.reward
        return self._observation(), len(self._drags) >= self._params.steps

    def _ask(self, kind: str, patience: float, **members: float) -> FlowAnswer:
        params = self._params
        order = FlowOrder(do=kind, world=self._world, cells=params.cells, reynolds=params.reynolds, **members)
        longest = patience * max(1.0, params.cells / FINEST_OF_THESE) ** 3
        return FlowAnswer(**self._ranks.ask(asdict(order), longest))  # type: ignore[arg-type]

    def _finite(self, name: str, value: float) -> float:
        """Return a number of the answer. Raise RanksFailed if it is none."""
        if not math.isfinite(value):
            raise RanksFailed(f"the flow's {name} is {value} after {len(self._drags)} steps: it is not stable")
        return value

    def _observation(self) -> NDArray[np.float32]:
        answer = self._answer
        values = [answer.drag, answer.lift, self._speed * SPEED, *answer.pressures]
        return np.array(values, self.interface.observation.dtype)

    def outcome(self, fault: str | None) -> dict[str, Metric]:
        steps = len(self._drags)
        drag = math.fsum(self._drags) / steps if steps else None
        return {
            "return": self._return,
            "drag": drag,
            "drag_reduction": None if drag is None else 1.0 - drag / self._uncontrolled,
            "lift_rms": math.sqrt(math.fsum(lift * lift for lift in self._lifts) / steps) if steps else None,
            "effort": math.fsum(self._powers) / steps if steps else None,
            "length": steps,
            "clipped_actions": self._clipped,
            "outcome": fault or "completed",
        }

    def scene(self) -> dict[str, object]:
        return signals_scene(self.interface) | {"kind": "drawing", "drawing": picture.scene()}

    def frame(self) -> dict[str, object]:
        vorticity = self._ask("field", STEP_PATIENCE).vorticity
        drawing = picture.frame(vorticity, self._angle)
        return signals_frame(self._observation(), self._action, self.reward) | {"drawing": drawing}

    def close(self) -> None:
        """Do nothing: the next scenario replaces the world, and with this process the ranks end."""
