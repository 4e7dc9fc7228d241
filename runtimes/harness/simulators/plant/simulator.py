"""Plant simulator: the scenarios of a dataset whose world is an FMU, from its description in the dataset."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...dataset_definition import Definition
from ...fmi.description import ports, type_of
from ...fmi.instances import Binary, Port, Wiring
from ..base import Interface, Metric, Scenario, signals_frame, signals_scene
from ..declared_interface import declared_interface
from .plant_process import Beginning, PlantEnded, PlantFailed, Plants
from .signals import TIME, Combination, End, Scores

#: The folder of a dataset's files with the unpacked FMU.
FOLDER = "plant"


class PlantSimulator:
    """Runs the scenarios of a plant, each in a process of its own."""

    def __init__(self, dataset: Path, definition: Definition, plants: Plants) -> None:
        self._plant = plant = definition.plant or {}
        self._plants, self._folder = plants, dataset / FOLDER
        self.interface = declared_interface(definition)
        self._step, self._steps, self._patience = plant["step"], plant["steps"], plant["patience"]
        read, inputs = _variables(plant["read"]), _variables(plant["inputs"])
        self._binary = Binary(plant["fmi"], plant["guid"], plant["identifier"])
        self._wiring = Wiring(
            inputs=ports(inputs, plant["fmi"], "input"),
            outputs=ports(read, plant["fmi"], "output"),
            step=plant["step"] / plant["substeps"],
            start=plant["start"],
            seed=self._port(plant["seed"], 1) if plant["seed"] is not None else None,
            substeps=plant["substeps"],
        )
        self._parameters = {entry["name"]: entry for entry in plant["parameters"]}
        self._names, self._actions = list(_entries(read)), list(_entries(inputs))
        self._initial = np.array(plant["initial"], np.float64)
        self._places = [self._names.index(name) for name in plant["observation"]]
        self._clipper = ActionClipper(self.interface, plant["whole"])
        self._combined = {name: Combination.of(values) for name, values in plant["signals"].items()}
        self._reward_of = Combination.of(plant["reward"]) if plant["reward"] is not None else None
        self._ends = [End(*(end[name] for name in ("of", "outcome", "above", "below"))) for end in plant["ends"]]
        self._clear()

    def _clear(self) -> None:
        self._done, self._clipped, self._return = 0, 0, 0.0
        self._end = "cut off"
        self._scores = Scores(self._plant["metrics"], self._step)
        self._action: NDArray[Any] | None = None
        self.reward: float | None = None
        self._observation = np.zeros(self.interface.observation.shape, self.interface.observation.dtype)

    def reset(self, scenario: Scenario) -> NDArray[Any]:
        self._clear()
        beginning = Beginning(
            folder=str(self._folder),
            binary=self._binary,
            wiring=self._wiring,
            seed=scenario.seed,
            starts=list(self._starts(scenario)),
        )
        self._take(self._plants.begin(beginning, self._patience), self._initial)
        return self._observation

    def _starts(self, scenario: Scenario) -> Iterator[tuple[Port, Sequence[float]]]:
        """Yield the values that a scenario sets before the initialization; parameters of the simulation come first."""
        own = {name: value for name, value in scenario.params.items() if name in self._parameters}
        for name, value in {**scenario.spec.get("parameters", {}), **own}.items():
            values = value if isinstance(value, list) else [value]
            yield self._port(self._parameters[name], len(values)), [float(number) for number in values]

    def _port(self, entry: Mapping[str, Any], size: int) -> Port:
        """Return the port of a single variable of ``size`` numbers."""
        variable = SimpleNamespace(**entry)
        dtype, suffix = type_of(variable, self._plant["fmi"], "parameter")
        return Port(suffix, dtype, (variable.valueReference,), tuple(range(size)))

    def step(self, action: NDArray[Any]) -> tuple[NDArray[Any], bool]:
        self._action, applied, was_clipped = self._clipper(action)
        try:
            values = self._plants.step(applied, self._patience)
        except PlantEnded as error:
            if (outcome := self._plant["ended"]) is None:
                raise PlantFailed(str(error)) from None
            self._end = outcome
            self._plants.end()
            return self._observation, True
        self._done += 1
        self._clipped += was_clipped
        signals = self._take(values, applied)
        if self._reward_of is not None:
            self.reward = self._finite(self._reward_of.value(signals), "reward")
            self._return += self.reward
        self._scores.add(signals)
        outcome = next((end.outcome for end in self._ends if end.holds(signals)), None)
        if outcome is None and self._done >= self._steps:
            outcome = self._plant["finished"]
        if outcome is not None:
            self._end = outcome
            self._plants.end()
        return self._observation, outcome is not None

    def _take(self, values: NDArray[Any], applied: NDArray[Any]) -> dict[str, float]:
        """Keep the observation of what the plant has answered; return the signals. Raises PlantFailed."""
        if len(values) != len(self._names):
            raise PlantFailed(f"the plant's process has answered with {len(values)} of {len(self._names)} numbers")
        if not np.isfinite(values).all():
            place = int(np.flatnonzero(~np.isfinite(values))[0])
            self._finite(float(values[place]), self._names[place])
        self._observation = values[self._places].astype(self.interface.observation.dtype)
        signals = dict(zip(self._names, values.tolist(), strict=True))
        signals |= zip(self._actions, applied.tolist(), strict=True)
        signals[TIME] = self._done * self._step
        for name, combination in self._combined.items():
            signals[name] = self._finite(combination.value(signals), name)
        return signals

    def _finite(self, value: float, name: str) -> float:
        if not np.isfinite(value):
            raise PlantFailed(f"the plant's {name} is {value} at {self._done * self._step:g} s")
        return value

    def outcome(self, fault: str | None) -> dict[str, Metric]:
        self._plants.end()
        metrics: dict[str, Metric] = {"return": self._return} if self._reward_of is not None else {}
        metrics |= self._scores.metrics()
        return metrics | {"length": self._done, "clipped_actions": self._clipped, "outcome": fault or self._end}

    def scene(self) -> dict[str, Any]:
        return signals_scene(self.interface)

    def frame(self) -> dict[str, Any]:
        return signals_frame(self._observation, self._action, self.reward)

    def close(self) -> None:
        self._plants.end()


class ActionClipper:
    """Turns a model's actions into a plant's inputs: within their ranges, and whole where the input is."""

    def __init__(self, interface: Interface, whole: Sequence[int]) -> None:
        """``whole``: places of the inputs that are integers, truth values or enumerations."""
        space = interface.action
        self._low, self._high = np.array(space.low), np.array(space.high)
        self._bounds = self._low.astype(space.dtype), self._high.astype(space.dtype)
        self._whole = list(whole)

    def __call__(self, action: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], bool]:
        """Return the action within its ranges, the plant's inputs, and whether the action was out of range."""
        flat = action.reshape(-1)
        clipped = np.clip(flat, *self._bounds)
        inputs = clipped.astype(np.float64)
        inputs[self._whole] = np.floor(inputs[self._whole] + 0.5)
        # A bound that float32 has rounded outwards is not to reach the plant.
        return clipped, np.clip(inputs, self._low, self._high), bool((clipped != flat).any())


def _variables(entries: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [SimpleNamespace(**entry) for entry in entries]


def _entries(variables: Sequence[Any]) -> Iterator[str]:
    """Yield the names of the numbers of variables: `x`, or `x[1]`, `x[2]` of an array."""
    for variable in variables:
        if variable.shape is None:
            yield variable.name
        else:
            places = np.ndindex(*variable.shape)
            yield from (f"{variable.name}[{','.join(str(index + 1) for index in place)}]" for place in places)
