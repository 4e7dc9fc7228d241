"""A typed client of a Windtunnel dataset, served by `python -m local_play.openenv_server`.

It needs `pip install openenv`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient


@dataclass(frozen=True)
class Observed:
    """An observation: its values in order, and by name; ``metrics`` of the scenario after its last step, else None."""

    values: Sequence[float]
    named: Mapping[str, float]
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def metrics(self) -> Mapping[str, Any] | None:
        """The metrics of the scenario, as a simulation on the platform reports them."""
        return self.metadata.get("metrics")


class DatasetClient(EnvClient[Sequence[float], Observed, dict[str, Any]]):
    """Actions are sequences of numbers, one per entry of the dataset's action space.

    env = DatasetClient(base_url="http://localhost:8000").sync()
    with env:
        result = env.reset(scenario=17)
        while not result.done:
            result = env.step([1.0, 0.0])
        print(result.observation.metrics)
    """

    def _step_payload(self, action: Sequence[float]) -> dict[str, Any]:
        return {"values": [float(value) for value in action]}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[Observed]:
        parts = payload["observation"]
        observed = Observed(parts["values"], parts["named"], payload.get("metadata") or {})
        return StepResult(observed, payload.get("reward"), payload.get("done", False), payload.get("metadata"))

    def _parse_state(self, payload: dict[str, Any]) -> dict[str, Any]:
        return payload
