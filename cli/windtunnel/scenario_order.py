"""Scenario order: which scenarios an environment of Gymnasium plays one after the other, for one world or many."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, SupportsInt

import numpy as np

from windtunnel.errors import WindtunnelError
from windtunnel.submissions import Scenarios
from windtunnel.submissions import scenarios as selection_of


class ScenarioOrder:
    """The selected scenarios from the first to the last, then all again with the next repetition.

    Once a seed has been drawn from, each repetition has an order of its own. Worlds are dealt the scenarios in turns,
    as cards are: world i of K plays the entries i, i + K, i + 2 K. So what a world plays depends on no other, nor on
    how fast any is, and together they play what one world would. Raise WindtunnelError for a scenario that there is
    not.
    """

    def __init__(self, selection: Scenarios | None, total: int, worlds: int = 1) -> None:
        self._scenarios = _selected(selection, total)
        self._worlds = worlds
        self._draw: Callable[[int], Any] = range
        self.begin(None)

    def begin(self, random: np.random.Generator | None) -> None:
        """Begin again, in an order that a generator draws if there is one, else once more from the first scenario."""
        if random is not None:
            self._draw = random.permutation
        self._rounds: list[Any] = []  # of the repetitions that a world still plays
        self._dropped = 0
        self._next = list(range(self._worlds))

    def next(self, world: int = 0) -> tuple[int, int]:
        """Return the scenario and the repetition that a world plays next."""
        count = len(self._scenarios)
        repeat, place = divmod(self._next[world], count)
        while repeat >= self._dropped + len(self._rounds):
            self._rounds.append(self._draw(count))
        chosen = self._scenarios[self._rounds[repeat - self._dropped][place]]
        self._next[world] += self._worlds
        while self._dropped < min(self._next) // count and self._rounds:
            self._rounds.pop(0)
            self._dropped += 1
        return chosen, repeat

    def tasks_of(self, options: Mapping[str, Any]) -> list[tuple[int, int] | None]:
        """Return for each world the scenario and the repetition that options of a reset name; None: the next.

        Raise WindtunnelError for options that there are not.
        """
        if unknown := sorted(options.keys() - {"scenario", "repeat"}):
            raise WindtunnelError(f"A reset has no option {unknown[0]!r}; there are `scenario` and `repeat`.")
        if "scenario" not in options:
            if "repeat" in options:
                raise WindtunnelError("`repeat` is of a scenario: name `scenario` too.")
            return [None] * self._worlds
        scenarios = self._by_worlds(options["scenario"], "scenario")
        return list(zip(scenarios, self._by_worlds(options.get("repeat", 0), "repeat"), strict=True))

    def _by_worlds(self, value: Any, name: str) -> list[int]:
        """Return a whole number for each world, from one for all or from a sequence of them."""
        values = value if self._worlds > 1 and isinstance(value, Sequence | np.ndarray) else [value] * self._worlds
        if len(values) != self._worlds:
            raise WindtunnelError(f"`{name}` has {len(values)} numbers for {self._worlds} worlds.")
        return [_whole(item, name) for item in values]


def _selected(selection: Scenarios | None, total: int) -> range | list[int]:
    """Return the numbers of the scenarios that are played; raise WindtunnelError for one that there is not."""
    document = selection_of(selection)
    if document is None:
        return range(total)
    if "sample" in document:
        raise WindtunnelError("Name scenarios by numbers; reset(seed=...) draws their order.")
    chosen = list(range(*document["range"])) if "range" in document else [int(number) for number in document["tasks"]]
    if not chosen or min(chosen) < 0 or max(chosen) >= total:
        raise WindtunnelError(f"Scenarios are numbers from 0 to {total - 1}, at least one.")
    return chosen


def _whole(value: SupportsInt, name: str) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = -1
    if number < 0 or number != value:
        raise WindtunnelError(f"`{name}` is a whole number from 0, not {value!r}.")
    return number
