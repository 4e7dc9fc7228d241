"""PettingZoo simulator: one agent of an environment is the model's, a fixed policy plays the others.

Every scenario has an environment of its own, so that nothing is left of the scenario before. The other agents' actions
are functions of the scenario's seed and the agent's name.
"""

import importlib
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ...dataset_definition import Definition
from ..base import Interface, Metric, Scenario, Simulator, Space, signals_frame, signals_scene
from ..drawings import drawing_of
from ..drawings.shapes import Drawing
from ..gymnasium_spaces import ActionApplier, joined, observed_array, space_of, structure_of_space
from ..structures import dictionary
from . import drawings

#: Environments that a dataset may name: importing a module runs its code.
MODULES: Mapping[str, str] = {
    "connect_four_v3": "pettingzoo.classic",
    "multiwalker_v9": "pettingzoo.sisl",
    "simple_spread_v3": "mpe2",
    "simple_tag_v3": "mpe2",
    "tictactoe_v3": "pettingzoo.classic",
}
#: Reward of an illegal action, which also ends the scenario; that of PettingZoo's TerminateIllegalWrapper.
ILLEGAL = -1.0
#: Simulators share nothing: many may work side by side in a process.
MANY_WORLDS = True

#: Chooses an action from a space, a mask of the legal ones (None: all are), and a random generator.
Policy = Callable[[Any, "NDArray[Any] | None", np.random.Generator], Any]


def preload(definition: Definition) -> None:
    """Import the dataset's environment."""
    _module(definition.env or "")


def create(dataset: Path, definition: Definition) -> Simulator:
    """Return a simulator for the dataset."""
    return PettingZooSimulator(definition)


def _module(env: str) -> Any:
    if env not in MODULES:
        raise ValueError(f"a dataset cannot use {env!r}; allowed environments: {', '.join(sorted(MODULES))}")
    return importlib.import_module(f"{MODULES[env]}.{env}")


def _random(space: Any, mask: "NDArray[Any] | None", random: np.random.Generator) -> Any:
    """Choose any legal action with equal probability."""
    if isinstance(space, spaces.Discrete):
        legal = np.arange(int(space.n)) if mask is None else np.flatnonzero(mask)
        return int(space.start) + int(legal[random.integers(len(legal))])
    return random.uniform(space.low, space.high).astype(space.dtype)


def _still(space: Any, mask: "NDArray[Any] | None", random: np.random.Generator) -> Any:
    """Choose zeros, or the first legal action."""
    if isinstance(space, spaces.Discrete):
        return int(space.start) + (0 if mask is None else int(np.flatnonzero(mask)[0]))
    return np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)


POLICIES: Mapping[str, Policy] = {"random": _random, "still": _still}


class Others:
    """The agents that the model does not play, in one scenario."""

    def __init__(self, policy: str, seed: int) -> None:
        self._policy = POLICIES[policy]
        self._seed = seed
        self._generators: dict[str, np.random.Generator] = {}

    def act(self, agent: str, space: Any, observation: Any) -> Any:
        """Return an agent's next action."""
        if agent not in self._generators:
            self._generators[agent] = np.random.default_rng([self._seed, zlib.crc32(agent.encode())])
        return self._policy(space, _mask(observation), self._generators[agent])


def _mask(observation: Any) -> "NDArray[Any] | None":
    return observation["action_mask"] if isinstance(observation, Mapping) else None


class ParallelWorld:
    """All agents act at once."""

    def __init__(self, environment: Any, agent: str, others: Others) -> None:
        self.environment, self._agent, self._others = environment, agent, others
        self._observations: Mapping[str, Any] = {}

    def reset(self, seed: int) -> Any:
        self._observations, _ = self.environment.reset(seed=seed)
        return self._observations[self._agent]

    def step(self, action: Any) -> tuple[Any, float, bool, bool]:
        actions = {
            agent: action
            if agent == self._agent
            else self._others.act(agent, self.environment.action_space(agent), self._observations[agent])
            for agent in self.environment.agents
        }
        self._observations, rewards, ended, cut_off, _ = self.environment.step(actions)
        agent = self._agent
        return self._observations[agent], float(rewards[agent]), bool(ended[agent]), bool(cut_off[agent])


class TurnWorld:
    """Agents act one after the other; the agent's step ends when it is its turn again, or its game is over."""

    def __init__(self, environment: Any, agent: str, others: Others) -> None:
        self.environment, self._agent, self._others = environment, agent, others

    def reset(self, seed: int) -> Any:
        self.environment.reset(seed=seed)
        return self._until_own_turn()[0]

    def step(self, action: Any) -> tuple[Any, float, bool, bool]:
        self.environment.step(action)
        return self._until_own_turn()

    def _until_own_turn(self) -> tuple[Any, float, bool, bool]:
        environment = self.environment
        while (turn := environment.agent_selection) != self._agent:
            observation, _, ended, cut_off, _ = environment.last()
            over = ended or cut_off
            environment.step(None if over else self._others.act(turn, environment.action_space(turn), observation))
        observation, reward, ended, cut_off, _ = environment.last()
        return observation, float(reward), bool(ended), bool(cut_off)


#: An environment as one agent sees it; ``environment`` is PettingZoo's. ``reset`` returns the agent's first
#: observation; ``step`` applies its action and those of the others, and returns observation, reward, terminated and
#: truncated.
World = ParallelWorld | TurnWorld


class PettingZooSimulator:
    """The view of one agent. A dataset's `game` has the outcomes win, loss and draw, by the sign of the return."""

    def __init__(self, definition: Definition) -> None:
        self._module = _module(definition.env or "")
        self._kwargs: Mapping[str, Any] = definition.kwargs
        self._agent, self._policy = definition.agent, definition.others
        self._outcomes: Mapping[str, str] = definition.outcomes
        self._game = definition.game
        environment = self._make(self._agent, Others(self._policy, 0)).environment
        actual = Interface(
            observation=_observed(environment.observation_space(self._agent)),
            action=space_of(environment.action_space(self._agent), "action"),
        )
        self.interface = joined(Interface.of(definition.interface or {}), actual)
        self._space = environment.action_space(self._agent)
        environment.close()
        self._applied = ActionApplier(self.interface, self._space)
        self._world: World | None = None
        self._drawing: Drawing | None = None
        self._own = self._agent
        self._clear()

    def _make(self, agent: str, others: Others) -> World:
        if hasattr(self._module, "parallel_env"):
            return ParallelWorld(self._module.parallel_env(**self._kwargs), agent, others)
        return TurnWorld(self._module.env(**self._kwargs), agent, others)

    def _clear(self) -> None:
        self._return, self._length, self._clipped, self._end = 0.0, 0, 0, "cut off"
        self._action: NDArray[Any] | None = None
        self.reward: float | None = None

    def reset(self, scenario: Scenario) -> NDArray[Any]:
        self._clear()
        self.close()
        self._own = scenario.spec.get("agent", self._agent)
        others = Others(scenario.spec.get("others", self._policy), scenario.seed)
        self._world = self._make(self._own, others)
        return self._observe(self._world.reset(scenario.seed % 2**32))  # Box2D's environments take 32 bits

    def step(self, action: NDArray[Any]) -> tuple[NDArray[Any], bool]:
        assert self._world is not None
        applied, self._action, was_clipped = self._applied(action)
        self._clipped += was_clipped
        self._length += 1
        if self._legal is not None and not self._legal[applied]:
            self.reward = ILLEGAL
            self._return += ILLEGAL
            self._end = "illegal_action"
            return self._observation, True
        observation, reward, terminated, truncated = self._world.step(applied)
        self.reward = reward
        self._return += reward
        if terminated or truncated:
            self._end = "terminated" if terminated else "truncated"
        return self._observe(observation), terminated or truncated

    def _observe(self, observation: Any) -> NDArray[Any]:
        self._legal = _mask(observation)
        self._observation: NDArray[Any] = observed_array(observation, self.interface.observation)
        return self._observation

    def outcome(self, fault: str | None) -> dict[str, Metric]:
        return {
            "return": self._return,
            "length": self._length,
            "clipped_actions": self._clipped,
            "outcome": fault or self._ended(),
        }

    def _ended(self) -> str:
        if self._game and self._end == "terminated":
            return "win" if self._return > 0 else "loss" if self._return < 0 else "draw"
        return self._outcomes.get(self._end, self._end)

    def scene(self) -> dict[str, Any]:
        assert self._world is not None
        signals = signals_scene(self.interface)
        self._drawing = drawing_of(drawings, self._world.environment.unwrapped, self._own)
        if self._drawing is None:
            return signals
        return signals | {"kind": "drawing", "drawing": self._drawing.scene()}

    def frame(self) -> dict[str, Any]:
        signals = signals_frame(self._observation, self._action, self.reward)
        return signals if self._drawing is None else signals | {"drawing": self._drawing.frame()}

    def close(self) -> None:
        if self._world is not None:
            self._world.environment.close()
            self._world = None


def _observed(space: Any) -> Space:
    """Convert an observation space; of a Dict, the flat `observation` and then the `action_mask`, as float32."""
    if not isinstance(space, spaces.Dict):
        return space_of(space, "observation")
    parts = {name: structure_of_space(space[name]) for name in ("observation", "action_mask")}  # not Gymnasium's order
    structure = dictionary(parts)
    count = structure.size
    return Space(
        dtype="float32",
        shape=(count,),
        names=tuple(f"observation_{index}" for index in range(count)),
        units=("",) * count,
        low=(0.0,) * count,
        high=(1.0,) * count,
        gymnasium=structure,
    )
