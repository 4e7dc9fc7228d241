"""Scenario units: the scenario that a task belongs to, which is the unit of every interval.

Tasks of one scenario, its repetitions and its combinations with the values of a sweep, are not independent: they have
the same street, the same traffic, the same difficulty. An interval that counts them as if they were is too narrow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class ScenarioUnits:
    """The scenarios of a plan of which some have several tasks. ``positions``: number of scenarios that it selects.

    ``first``: for each of them the first one with the same index, as a selection may list a scenario twice; None if
    all differ. Shape (positions,).
    """

    positions: int
    first: Codes | None = None

    @property
    def count(self) -> int:
        """Number of different scenarios."""
        return self.positions if self.first is None else len(np.unique(self.first))

    def of(self, tasks: NDArray[np.int32] | NDArray[np.int64]) -> Codes:
        """Return the scenario of each task, a number from 0 to less than ``positions``."""
        units: Codes = tasks.astype(np.int64) % self.positions
        return units if self.first is None else self.first[units]


def units_of(select: Mapping[str, object], scenarios: int, tasks: int) -> ScenarioUnits | None:
    """Return the scenarios of a plan's tasks; None if each task is of a scenario of its own.

    ``select``: the plan's selection. ``scenarios``: number of scenarios in it. ``tasks``: number of tasks.
    """
    listed = select.get("tasks")
    first = _first_of_equal(listed) if isinstance(listed, list | tuple) else None
    return None if first is None and tasks == scenarios else ScenarioUnits(scenarios, first)


def _first_of_equal(indices: Sequence[int]) -> Codes | None:
    """Return the position of the first equal index; None if all differ."""
    if len(set(indices)) == len(indices):
        return None
    _, firsts, inverse = np.unique(np.array(indices), return_index=True, return_inverse=True)
    return firsts[inverse].astype(np.int64)
