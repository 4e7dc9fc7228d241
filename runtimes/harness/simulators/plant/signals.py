"""Signals of a plant: named numbers of each step, and what is computed from them: rewards, metrics, ends."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: The simulated time in seconds, since the scenario's start.
TIME = "time"

#: A list of a signal's values after each step, and the seconds of a step, to a metric.
Aggregation = Callable[[Sequence[float], float], float]
#: How a metric is computed from the values of a signal after each step; the registration checks the names.
AGGREGATIONS: Mapping[str, Aggregation] = {
    "last": lambda values, step: values[-1],
    "min": lambda values, step: min(values),
    "max": lambda values, step: max(values),
    "mean": lambda values, step: math.fsum(values) / len(values),
    "sum": lambda values, step: math.fsum(values),
    "integral": lambda values, step: math.fsum(values) * step,
    "rms": lambda values, step: math.sqrt(math.fsum(value * value for value in values) / len(values)),
    "mean_abs": lambda values, step: math.fsum(map(abs, values)) / len(values),
    "max_abs": lambda values, step: max(map(abs, values)),
    "integral_abs": lambda values, step: math.fsum(map(abs, values)) * step,
    "integral_square": lambda values, step: math.fsum(value * value for value in values) * step,
}


@dataclass(frozen=True, slots=True)
class Combination:
    """A constant, plus signals by their weights, plus squares of signals by their weights."""

    constant: float
    linear: tuple[tuple[str, float], ...]
    quadratic: tuple[tuple[str, float], ...]

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Combination":
        """Read the JSON form."""
        return cls(values["constant"], tuple(values["linear"].items()), tuple(values["quadratic"].items()))

    def value(self, signals: Mapping[str, float]) -> float:
        """Return the value. Infinite or not a number if a product is too large."""
        total = self.constant
        for name, weight in self.linear:
            total += weight * signals[name]
        for name, weight in self.quadratic:
            total += weight * signals[name] * signals[name]
        return total


@dataclass(frozen=True, slots=True)
class End:
    """A condition that ends a scenario with an outcome; bounds that are None are not looked at."""

    signal: str
    outcome: str
    above: float | None
    below: float | None

    def holds(self, signals: Mapping[str, float]) -> bool:
        """Return whether the signal lies beyond a bound."""
        value = signals[self.signal]
        return (self.above is not None and value > self.above) or (self.below is not None and value < self.below)


class Scores:
    """Values of a scenario's signals, kept for its metrics."""

    def __init__(self, metrics: Mapping[str, Sequence[str]], step: float) -> None:
        """``metrics``: signal and aggregation of each metric; ``step`` in seconds."""
        self._metrics = {name: (signal, AGGREGATIONS[by]) for name, (signal, by) in metrics.items()}
        self._step = step
        self._values: dict[str, list[float]] = {signal: [] for signal, _ in self._metrics.values()}

    def add(self, signals: Mapping[str, float]) -> None:
        """Add the values after a step."""
        for name, values in self._values.items():
            values.append(signals[name])

    def metrics(self) -> dict[str, float | None]:
        """Return the metrics; None if there was no step, or if the number is too large."""
        return {name: self._aggregate(by, self._values[signal]) for name, (signal, by) in self._metrics.items()}

    def _aggregate(self, by: Aggregation, values: Sequence[float]) -> float | None:
        if not values:
            return None
        try:
            number = by(values, self._step)
        except OverflowError:
            return None
        return number if math.isfinite(number) else None
