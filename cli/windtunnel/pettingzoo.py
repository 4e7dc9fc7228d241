"""PettingZoo environments of datasets: the agent that a model plays, for programs that speak PettingZoo's AEC.

    from windtunnel.pettingzoo import env

    game = env("pettingzoo_connect_four")

The platform plays all other agents, as it does in a simulation, so the environment has one agent. The policy trained is
the policy measured, as in `windtunnel.gym`. It needs `pip install 'windtunnel[pettingzoo]'`.
"""

from collections.abc import Mapping
from typing import Any

from pettingzoo import AECEnv

from windtunnel.gym import DatasetEnv

__all__ = ["AGENT", "DatasetAECEnv", "env"]

#: The agent that a model plays.
AGENT = "model"


def env(dataset: str, **options: Any) -> "DatasetAECEnv":
    """Return the environment of a dataset; ``options`` are those of `windtunnel.gym.DatasetEnv`."""
    return DatasetAECEnv(dataset, **options)


class DatasetAECEnv(AECEnv):  # type: ignore[misc]
    """The scenarios of a dataset as turns of one agent. A reset chooses the scenario, as in `windtunnel.gym`."""

    metadata: dict[str, Any] = {"name": "windtunnel", "is_parallelizable": False, "render_modes": []}  # noqa: RUF012

    def __init__(self, dataset: str | None = None, *, render_mode: str | None = None, **options: Any) -> None:
        super().__init__()
        self.render_mode = render_mode
        self._environment = DatasetEnv(dataset, render_mode=render_mode, **options)
        self.possible_agents = [AGENT]
        self.agents: list[str] = []
        self._observation: Any = None

    def observation_space(self, agent: str) -> Any:
        """Return the observation space; classic games have a Dict with the mask of the legal actions."""
        return self._environment.observation_space

    def action_space(self, agent: str) -> Any:
        """Return the action space."""
        return self._environment.action_space

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Start a scenario."""
        self._observation, about = self._environment.reset(seed=seed, options=options)
        self.agents = [AGENT]
        self.agent_selection = AGENT
        self.rewards, self._cumulative_rewards = {AGENT: 0.0}, {AGENT: 0.0}
        self.terminations, self.truncations = {AGENT: False}, {AGENT: False}
        self.infos = {AGENT: about}

    def observe(self, agent: str) -> Any:
        """Return the agent's last observation."""
        return self._observation

    def step(self, action: Any) -> None:
        """Apply the agent's action and those of the others; None after the scenario's end. `infos` has its metrics."""
        if self.terminations[AGENT] or self.truncations[AGENT]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[AGENT] = 0.0
        self._observation, reward, terminated, truncated, about = self._environment.step(action)
        self.rewards[AGENT] = reward
        self.terminations[AGENT], self.truncations[AGENT] = terminated, truncated
        self.infos[AGENT] = about
        self._accumulate_rewards()

    def close(self) -> None:
        """End the session, and the process or the connection with it."""
        self._environment.close()
