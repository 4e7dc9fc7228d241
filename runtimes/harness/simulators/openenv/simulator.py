"""OpenEnv simulator: plays episodes of a dataset's environment, which runs in a process of its own per scenario."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...dataset_definition import Definition
from ..aggregations import AGGREGATIONS
from ..base import SEED, Metric, Scenario, signals_frame, signals_scene
from ..declared_interface import declared_interface
from .json_mapping import ABSENT, ActionMapping, DoesNotFit, ObservationMapping, path_steps, value_at
from .openenv_protocol import BadAnswer, Closed, HttpTransport, TooLate, Transport, WebSocketTransport
from .process_client import EnvironmentFault, EnvironmentProcesses

#: Folders of a dataset as the evaluator sees it: the environment, in a folder with its name, and its packages.
ENVIRONMENT, PACKAGES = "environment", "packages"
#: Seeds of environments: many of them take 32 bits, some of these as a signed number.
SEEDS = 2**31
#: The most characters of an outcome that an environment names.
OUTCOME = 40


def order_of(dataset: Path, declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the order for an environment's processes."""
    return {
        "folder": str(dataset / ENVIRONMENT / declared["package"]),
        "site": str(dataset / PACKAGES),
        "app": declared["app"],
        "environ": dict(declared.get("environ") or {}),
    }


def connect(processes: EnvironmentProcesses, seed: int, transport: str, seconds: float) -> tuple[Any, Transport]:
    """Return the socket and the transport of a new scenario's process. Raises EnvironmentFault or BadAnswer."""
    connected = processes.scenario()
    connected.settimeout(seconds)
    try:
        connected.sendall(SEED.pack(seed))
        made: Transport = HttpTransport(connected) if transport == "http" else WebSocketTransport(connected, seconds)
        return connected, made
    except OSError:
        connected.close()
        raise processes.fault(processes.explained_end()) from None
    except Closed:
        reason = processes.explained_end()
        connected.close()
        raise processes.fault(reason) from None
    except BadAnswer:
        connected.close()
        raise


class OpenEnvSimulator:
    """An environment's episodes. ``openenv`` in the definition: how its JSON maps to the arrays of the interface."""

    def __init__(self, dataset: Path, definition: Definition, processes: EnvironmentProcesses) -> None:
        declared = definition.openenv or {}
        self.interface = declared_interface(definition)
        self._processes = processes
        self._seconds = float(declared["timeout"])
        self._steps = int(declared["steps"])
        self._transport_name = declared["transport"]
        self._observed = ObservationMapping(declared["observation"])
        self._applied = ActionMapping(declared["action"])
        if (self._observed.size,) != self.interface.observation.shape:
            raise ValueError("the interface of the dataset does not fit its fields")
        self._low, self._high = np.array(self.interface.action.low), np.array(self.interface.action.high)
        self._outcomes: Mapping[str, str] = declared.get("outcomes") or {}
        self._outcome_path = path_steps(declared["outcome"]) if declared.get("outcome") else ()
        self._metrics = [(entry, path_steps(entry["path"])) for entry in declared.get("metrics") or ()]
        self._socket: Any = None
        self._transport: Transport | None = None
        self._clear()
        processes.start(order_of(dataset, declared))

    def _clear(self) -> None:
        self._return, self._length, self._clipped, self._end = 0.0, 0, 0, "cut off"
        self.reward: float | None = None
        self._answer: Mapping[str, Any] = {}
        self._observation: NDArray[Any] = np.zeros(self.interface.observation.shape, np.float32)
        self._action: NDArray[Any] | None = None
        self._values: dict[str, list[float]] = {entry["name"]: [] for entry, _ in self._metrics}

    def reset(self, scenario: Scenario) -> NDArray[Any]:
        self._clear()
        self._disconnect()
        seed = scenario.seed % SEEDS
        parameters = {"seed": seed, **scenario.spec.get("reset", {})}
        try:
            self._socket, self._transport = connect(self._processes, seed, self._transport_name, self._seconds)
            answer = self._transport.reset(parameters, self._seconds)
            return self._observe(answer)
        except (BadAnswer, DoesNotFit) as error:
            raise self._fault(error) from None

    def step(self, action: NDArray[Any]) -> tuple[NDArray[Any], bool]:
        assert self._transport is not None
        flat = action.reshape(-1).astype(np.float64)
        clipped = np.clip(flat, self._low, self._high)
        self._clipped += bool((clipped != flat).any())
        self._action = clipped
        try:
            answer = self._transport.step(self._applied.action(clipped.tolist()), self._seconds)
            observation = self._observe(answer)
        except (BadAnswer, DoesNotFit) as error:
            raise self._fault(error) from None
        self._length += 1
        self.reward = reward = float(answer["reward"])
        self._return += reward
        for entry, steps in self._metrics:
            value = value_at(answer["observation"], steps)
            if isinstance(value, int | float):
                self._values[entry["name"]].append(float(value))
        if answer["done"]:
            self._end = "done"
        elif self._length >= self._steps:
            self._end = "steps"
        return observation, self._end != "cut off"

    def _observe(self, answer: Mapping[str, Any]) -> NDArray[Any]:
        self._answer = answer
        self._observation = self._observed.array(answer["observation"])
        return self._observation

    def _fault(self, error: Exception) -> EnvironmentFault:
        """Return the fault for an error; the scenario's process is ended."""
        reason = self._processes.explained_end() if isinstance(error, Closed) else str(error)
        fault = self._processes.fault(reason, printed=isinstance(error, Closed | TooLate))
        self._disconnect()
        return fault

    def outcome(self, fault: str | None) -> dict[str, Metric]:
        metrics: dict[str, Metric] = {
            "return": self._return,
            "length": self._length,
            "last_reward": self.reward or 0.0,
            "clipped_actions": self._clipped,
            "outcome": fault or self._ended(),
        }
        for entry, _ in self._metrics:
            values = self._values[entry["name"]]
            metrics[entry["name"]] = AGGREGATIONS[entry["aggregation"]](values) if values else None
        self._disconnect()
        return metrics

    def _ended(self) -> str:
        """Return how the episode ended: in the environment's own words if the dataset names where they are."""
        if self._end == "done" and self._outcome_path:
            value = value_at(self._answer["observation"], self._outcome_path)
            if isinstance(value, str | bool | int) and value is not ABSENT:
                text = str(value).lower() if isinstance(value, bool) else str(value)
                return self._outcomes.get(text, text)[:OUTCOME]
        return self._outcomes.get(self._end, self._end)

    def scene(self) -> dict[str, Any]:
        return signals_scene(self.interface)

    def frame(self) -> dict[str, Any]:
        return signals_frame(self._observation, self._action, self.reward)

    def _disconnect(self) -> None:
        """End the scenario's process, and have the next one forked meanwhile."""
        if self._socket is not None:
            self._socket.close()
            self._socket = self._transport = None

    def close(self) -> None:
        self._disconnect()
        self._processes.stop()
