"""Played scenario: a simulator, and the scenario that it plays step by step, with its seed, reward and metrics."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ..dataset_definition import Definition
from ..evaluator.episodes import ActionDelay
from ..evaluator.planned_tasks import delay_of
from ..evaluator.result_batch import plain
from ..evaluator.tasks import TaskPlan
from ..simulators.base import Metric, Scenario, Simulator
from .session_messages import cut_off

if TYPE_CHECKING:
    from ..models.base import Array


class SessionSetup(msgspec.Struct, kw_only=True):
    """Facts of the dataset that are not in its files.

    ``digest``: part of the scenarios' seeds. ``total``: number of scenarios.
    """

    digest: str
    total: int
    params: dict[str, object]


class PlayedScenario:
    """The scenario of a simulator. ``specs``: of all scenarios; empty if they differ in their seeds alone.

    ``seed``, ``name``: of the scenario. ``step``: applies a finite action, and returns the next observation and whether
    the scenario is over.
    """

    def __init__(
        self, simulator: Simulator, definition: Definition, specs: Sequence[Mapping[str, object]], setup: SessionSetup
    ) -> None:
        self._simulator, self._specs, self._setup = simulator, specs, setup
        self._score: str | None = score.metric if (score := definition.score) is not None else None
        self._outcomes = definition.outcomes
        self._plan: TaskPlan | None = None
        self._plan_seed = 0
        self._scored = 0.0
        self.interface = simulator.interface
        self.step: Callable[[Array], tuple[Array, bool]] = simulator.step
        self.seed = 0
        self.name: str | None = None

    def reset(self, scenario: int, repeat: int, seed: int) -> "Array":
        """Start a scenario as the task of a simulation with this seed; return the first observation."""
        if self._plan is None or seed != self._plan_seed:
            select = {"range": [0, self._setup.total]}
            self._plan = TaskPlan({"seed": seed, "dataset": self._setup.digest, "select": select})
            self._plan_seed = seed
        self.seed = self._plan.seed(scenario, repeat)
        spec: Mapping[str, object] = self._specs[scenario] if self._specs else {}
        self.name = str(spec["name"]) if "name" in spec else None
        started = Scenario(index=scenario, repeat=repeat, seed=self.seed, spec=spec, params=self._setup.params)
        if steps := delay_of(started):
            step, delay = self._simulator.step, ActionDelay(steps, np.zeros(self.interface.action.shape))
            self.step = lambda action: step(delay(action))
        observation = self._simulator.reset(started)
        self._scored = self._current_score()
        return observation

    def reward(self) -> float | None:
        """Return the reward of the last step: the world's, or the change of the metric that is the dataset's score.

        To be called once for each step.
        """
        reward = self._simulator.reward
        if reward is not None or self._score is None:
            return reward
        before, self._scored = self._scored, self._current_score()
        return self._scored - before

    def _current_score(self) -> float:
        if self._score is None:
            return 0.0
        return float(self._simulator.outcome(None)[self._score] or 0.0)

    def metrics(self) -> dict[str, Metric]:
        """Return the metrics of the scenario so far, whose numbers are Python's."""
        metrics = self._simulator.outcome(None)
        return {name: plain(value) if isinstance(value, np.generic) else value for name, value in metrics.items()}

    def cut_off(self, metrics: Mapping[str, object]) -> bool:
        """Return whether a limit of time, not the world, has ended the scenario with these metrics."""
        return cut_off(metrics, self._outcomes)
