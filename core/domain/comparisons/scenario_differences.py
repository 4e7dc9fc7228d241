"""Differences of two models by scenario: the unit that a comparison draws, and that its tests count.

Tasks of one scenario, its repetitions and swept combinations, are alike, so that they are not a sample of their own.
The difference of a scenario is the mean over the repetitions and combinations that both sides have; each combination
counts once, however often it was repeated.

A pair is *unknown* if a side is `ok` and has no number, or if neither task is `ok`: nothing was learnt about how far
the two are apart. It counts as no difference for the claims that one is better, which that makes harder to show; for
the claims that they are within a margin, which it would make easier, as the worst difference that could have been, on
either side.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.domain.comparisons.metric_scale import MetricScale

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Codes = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class ScenarioDifferences:
    """Differences of scenarios, positive if the first model is better, in the metric's unit; shape (scenarios,) each.

    ``neutral``: unknown pairs count as no difference; ``lowest`` and ``highest``: as the worst on one side or the
    other. ``within``: variance of each scenario's difference over its seeds, 0 where it was played once. ``repeated``:
    whether each combination of each scenario has at least two repetitions. ``tasks``, ``clipped`` and ``unknown``:
    numbers of pairs of tasks.
    """

    neutral: Floats
    lowest: Floats
    highest: Floats
    within: Floats
    repeated: bool
    tasks: int
    clipped: int
    unknown: int


def scenario_differences(
    scenarios: Sequence[int],
    indexes: Sequence[int],
    combinations: Sequence[str],
    values: tuple[Floats, Floats],
    ok: tuple[Flags, Flags],
    scale: MetricScale,
) -> ScenarioDifferences:
    """Return the differences of ``scenarios``, in their order, from pairs of tasks.

    ``indexes`` and ``combinations``: of each pair, the scenario and the swept parameters. ``values``: of both sides,
    NaN for none; ``ok``: whether each task is. Shapes: (pairs,). Each scenario has a pair at least.
    """
    differences, clipped = scale.differences(*values)
    unknown = unknown_pairs(values, ok)
    neutral = np.where(unknown, 0.0, differences)
    order = {index: position for position, index in enumerate(scenarios)}
    codes = np.array([order[index] for index in indexes], np.int64)
    cells, sizes = _cells(codes, combinations)
    owners = np.zeros(len(sizes), np.int64)
    owners[cells] = codes
    per_scenario = np.bincount(owners, minlength=len(scenarios)).astype(np.float64)

    def means(pairs: Floats) -> Floats:
        of_cells = np.bincount(cells, weights=pairs, minlength=len(sizes)) / np.maximum(sizes, 1)
        summed: Floats = np.bincount(owners, weights=of_cells, minlength=len(scenarios)) / np.maximum(per_scenario, 1)
        return summed

    mean_of_cell = np.bincount(cells, weights=neutral, minlength=len(sizes)) / np.maximum(sizes, 1)
    squares = np.bincount(cells, weights=(neutral - mean_of_cell[cells]) ** 2, minlength=len(sizes))
    of_mean = np.where(sizes > 1, squares / np.maximum(sizes - 1, 1) / np.maximum(sizes, 1), 0.0)
    within = np.bincount(owners, weights=of_mean, minlength=len(scenarios)) / np.maximum(per_scenario, 1) ** 2
    return ScenarioDifferences(
        neutral=means(neutral),
        lowest=means(np.where(unknown, -scale.bound, differences)),
        highest=means(np.where(unknown, scale.bound, differences)),
        within=within,
        repeated=bool(len(sizes)) and bool((sizes >= 2).all()),
        tasks=len(codes),
        clipped=int(clipped),
        unknown=int(unknown.sum()),
    )


def unknown_pairs(values: tuple[Floats, Floats], ok: tuple[Flags, Flags]) -> Flags:
    """Return which pairs say nothing about the difference; shape (pairs,)."""
    without = [ok[side] & np.isnan(values[side]) for side in (0, 1)]
    unknown: Flags = without[0] | without[1] | ~(ok[0] | ok[1])
    return unknown


def _cells(codes: Codes, combinations: Iterable[str]) -> tuple[Codes, Floats]:
    """Return the cell of each pair, a scenario with a combination, and the number of pairs of each cell."""
    numbers: dict[tuple[int, str], int] = {}
    cells = [numbers.setdefault(key, len(numbers)) for key in zip(codes.tolist(), combinations, strict=True)]
    counted = np.array(cells, np.int64)
    return counted, np.bincount(counted, minlength=len(numbers)).astype(np.float64)
