"""Baseline for any dataset: answers zeros to every observation."""

from typing import Any

import numpy as np


class Model:
    """Answers zeros in the shape of the dataset's action space."""

    def reset(self, info: dict[str, Any]) -> None:
        action = info["action"]
        self._answer = np.zeros(action.shape, action.dtype)

    def act(self, observation: Any) -> Any:
        return self._answer

    def act_batch(self, observations: Any) -> Any:
        return np.zeros((len(observations), *self._answer.shape), self._answer.dtype)
