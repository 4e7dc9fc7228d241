"""Scenario choice: which scenario, repetition and seed a reset starts, from what its client names."""

from dataclasses import dataclass
from typing import Any

from runtimes.harness.evaluator.tasks import BITS_63, Permutation

#: The most repetitions, as of a simulation.
REPEATS = 10_000_000


class InvalidReset(ValueError):
    """The reset names no scenario of the dataset; nothing was changed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """A scenario to play. ``seed``: of the simulation whose task it equals."""

    scenario: int
    repeat: int
    seed: int


class ScenarioChoice:
    """The order of one session: scenarios from the first to the last, then the same with the next repetition.

    A reset with a seed alone begins an order that the seed draws. A reset that names a scenario leaves the order as it
    is; its seed is that of the resets that follow.
    """

    def __init__(self, dataset: str, total: int) -> None:
        self._dataset, self._total = dataset, total
        self._seed = 0
        self._drawn: Permutation | None = None
        self._next = 0

    def choose(self, *, seed: Any = None, scenario: Any = None, repeat: Any = None) -> Chosen:
        """Return what to play; raise InvalidReset with the next step if there is no such scenario."""
        if seed is not None and not _whole(seed, BITS_63 + 1):
            raise InvalidReset(f"`seed` is a whole number from 0 to {BITS_63}, not {seed!r:.80}.")
        if scenario is not None and not _whole(scenario, self._total):
            raise InvalidReset(
                f"`scenario` is a whole number from 0 to {self._total - 1} for {self._dataset}, not {scenario!r:.80}."
            )
        if repeat is not None and not _whole(repeat, REPEATS):
            raise InvalidReset(f"`repeat` is a whole number from 0 to {REPEATS - 1}, not {repeat!r:.80}.")
        if repeat is not None and scenario is None:
            raise InvalidReset("`repeat` is of a scenario: name `scenario` too.")
        if seed is not None:
            self._seed = seed
        if scenario is not None:
            return Chosen(scenario=scenario, repeat=repeat or 0, seed=self._seed)
        if seed is not None:
            self._drawn, self._next = Permutation(self._total, str(seed)), 0
        repeat, position = divmod(self._next, self._total)
        self._next += 1
        drawn = position if self._drawn is None else self._drawn[position]
        return Chosen(scenario=drawn, repeat=repeat, seed=self._seed)


def _whole(value: Any, end: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end
