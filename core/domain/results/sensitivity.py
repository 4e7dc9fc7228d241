"""Sensitivity: which scenario and sweep parameters go with failure, or with a metric, and how strongly.

For each parameter: an effect with its 95 % interval, its association, and bins for a plot. Effects are of different
kinds (`effect_sizes.py`). Parameters are therefore sorted by their association, which has one scale for
numbers and levels and includes what is not monotone: Cramér's V of the bins with failure, the root of epsilon squared
with a metric.

The unit is the scenario. The parameter of a scenario goes with the failed share, or the mean metric, of its tasks; a
swept one with differences within a scenario (`within_scenarios.py`).

It is a description, not a proof of cause: parameters that vary together share their effects, and of many parameters
some have an interval without 0 by chance.
"""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from core.domain.results import effect_sizes, within_scenarios
from core.domain.results.effect_sizes import Effect
from core.domain.results.intervals import FEW, Bounds, few_values_interval, normal_interval
from core.domain.results.parameter_columns import Bins, Levels, Numbers, Values, binned, column_of, numbers
from core.domain.results.scenario_intervals import UnitValues, values_by_unit
from core.domain.results.within_scenarios import LevelTable

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

#: Most bins of a plot, and least scenarios of a level whose rate is compared.
BINS, FEWEST = 8, 5


class EffectKind(StrEnum):
    """Which effect a parameter's kind and the outcome's kind have."""

    RANK_BISERIAL = "rank_biserial"  # a number and failure: from -1 to 1; positive: larger values fail more often
    RATE_DIFFERENCE = "rate_difference"  # a level and failure: failure rate there minus the rate elsewhere
    SPEARMAN = "spearman"  # a number and a metric: rank correlation
    EPSILON_SQUARED = "epsilon_squared"  # levels and a metric: share of its variance


@dataclass(frozen=True, kw_only=True, slots=True)
class PlotBin:
    """A bin of a plot: results with values of the parameter from ``least`` to ``largest``, or with a level.

    ``value``: their failure rate or their mean metric, with the interval over scenarios.
    """

    label: str
    least: float | None
    largest: float | None
    count: int
    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Sensitivity:
    """How a parameter goes with the outcome. ``level``: that of a rate difference, the largest of all its levels.

    ``association``: from 0 to 1. ``picked_from``: number of levels that the interval of a rate difference holds for at
    once. ``missing``: results without a value.
    """

    parameter: str
    kind: EffectKind
    effect: Effect
    association: float
    level: str | None
    picked_from: int | None
    missing: int
    bins: tuple[PlotBin, ...]


def failure_sensitivities(
    columns: Mapping[str, Values],
    failed: Sequence[bool] | NDArray[np.bool_],
    units: Codes | None = None,
    swept: Set[str] = frozenset(),
) -> list[Sensitivity]:
    """Return how each parameter goes with failure, the strongest first.

    ``columns``: a value for each result by parameter; ``failed``: 0 or 1 for each; ``units``: its scenario, None if
    each has its own. ``swept``: parameters that are compared within scenarios. A parameter is left out if it has
    a single value, or if the results that have it all failed or all passed.
    """
    outcome = np.asarray(failed, np.bool_)
    scenarios = np.arange(len(outcome)) if units is None else units
    result = []
    for name, values in columns.items():
        column = column_of(values)
        bins = binned(column, BINS)
        present = bins.codes >= 0
        failures = int(outcome[present].sum())
        if len(bins.labels) < 2 or failures in (0, int(present.sum())):
            continue
        outcomes = _Outcomes(scenarios[present], outcome[present].astype(np.float64))
        strength = _within if units is not None and name in swept else _between
        found = strength(_selected(column, present), bins.codes[present], len(bins.labels), outcomes)
        if found is None:
            continue
        result.append(
            Sensitivity(
                parameter=name,
                kind=EffectKind.RANK_BISERIAL if isinstance(column, Numbers) else EffectKind.RATE_DIFFERENCE,
                effect=found.effect,
                association=found.association,
                level=found.level,
                picked_from=found.picked_from,
                missing=int(len(present) - present.sum()),
                bins=_rate_bins(bins, bins.codes[present], outcomes),
            )
        )
    return _strongest_first(result)


@dataclass(frozen=True, slots=True, eq=False)
class _Outcomes:
    """Scenario and value of each result, 1 for a failure; shapes (n,)."""

    units: Codes
    values: Floats


@dataclass(frozen=True, slots=True)
class _Strength:
    effect: Effect
    association: float
    level: str | None = None
    picked_from: int | None = None


def _between(column: Numbers | Levels, codes: Codes, bins: int, outcomes: _Outcomes) -> _Strength | None:
    """Return how a parameter goes with failure between scenarios, of which each has one value of it.

    ``codes``: bin of each result, from 0. None if no level has enough scenarios.
    """
    scenarios = _by_unit(column, outcomes.units)
    failures: Floats = np.bincount(scenarios.positions, outcomes.values).astype(np.float64)
    tasks: Floats = np.bincount(scenarios.positions).astype(np.float64)
    shares = failures / tasks
    in_bins = codes[scenarios.firsts]
    association = effect_sizes.cramers_v(
        np.bincount(in_bins, shares, bins),
        np.bincount(in_bins, minlength=bins),
        variance=float(shares.var()) if tasks.max() > 1 else None,
    )
    if isinstance(scenarios.column, Numbers):
        order = scenarios.column.order
        ordered = scenarios.column.values[order]
        return _Strength(effect_sizes.rank_biserial(ordered, failures[order], (tasks - failures)[order]), association)
    largest = _largest_difference(scenarios.column, failures, tasks)
    if largest is None:
        return None
    level, effect, picked_from = largest
    return _Strength(effect, association, level, picked_from)


def _within(column: Numbers | Levels, codes: Codes, bins: int, outcomes: _Outcomes) -> _Strength | None:
    """Return how a swept parameter goes with failure within scenarios; None if none has a result of each value."""
    levels, names = _numbered(column)
    table = LevelTable(outcomes.units, levels, outcomes.values, len(names))
    association = within_scenarios.association(LevelTable(outcomes.units, codes, outcomes.values, bins))
    if isinstance(column, Numbers):
        effect = within_scenarios.larger_fails(table)
        return None if effect is None else _Strength(effect, association)
    largest = within_scenarios.largest_difference(table)
    if largest is None:
        return None
    level, difference = largest
    return _Strength(difference, association, names[level], within_scenarios.candidates(len(names)))


def _numbered(column: Numbers | Levels) -> tuple[Codes, Sequence[str]]:
    """Return the level of each result, from 0, of numbers ascending; and the names of the levels."""
    if isinstance(column, Levels):
        return column.codes, column.names
    distinct, codes = np.unique(column.values, return_inverse=True)
    return codes, list(map(str, distinct.tolist()))


def metric_sensitivities(
    columns: Mapping[str, Values],
    metric: Sequence[float] | Floats,
    units: Codes | None = None,
    swept: Set[str] = frozenset(),
    bounds: Bounds | None = None,
) -> list[Sensitivity]:
    """Return how each parameter goes with a metric, the strongest first; NaN of the metric is missing.

    A parameter is left out if it has a single value, or fewer than five scenarios. ``units`` and ``swept``: as of
    `failure_sensitivities`. ``bounds``: the range that the metric declares.
    """
    values = np.asarray(metric, np.float64)
    known = np.isfinite(values)
    values = values[known]
    scenarios = np.arange(len(values)) if units is None else units[known]
    result = []
    for name, raw in columns.items():
        column = _selected(column_of(raw), known)
        bins = binned(column, BINS)
        present = bins.codes >= 0
        if len(bins.labels) < 2:
            continue
        outcomes = _Outcomes(scenarios[present], values[present])
        within = units is not None and name in swept
        strength = _metric_within if within else _metric_between
        found = strength(_selected(column, present), bins.codes[present], len(bins.labels), outcomes)
        if found is None:
            continue
        result.append(
            Sensitivity(
                parameter=name,
                kind=EffectKind.SPEARMAN if isinstance(column, Numbers) else EffectKind.EPSILON_SQUARED,
                effect=found.effect,
                association=found.association,
                level=None,
                picked_from=None,
                missing=int(len(present) - present.sum()),
                bins=_mean_bins(bins, bins.codes[present], outcomes, bounds),
            )
        )
    return _strongest_first(result)


def _metric_between(column: Numbers | Levels, codes: Codes, bins: int, outcomes: _Outcomes) -> _Strength | None:
    """Return how a parameter goes with the mean metric of scenarios; None for fewer than FEWEST scenarios."""
    scenarios = _by_unit(column, outcomes.units)
    if len(scenarios.firsts) < FEWEST:
        return None
    means = np.bincount(scenarios.positions, outcomes.values) / np.bincount(scenarios.positions)
    association = math.sqrt(effect_sizes.epsilon_squared(codes[scenarios.firsts], means, bins))
    column = scenarios.column
    if isinstance(column, Numbers):
        ranks = effect_sizes.mid_ranks(column.values, column.order)
        return _Strength(effect_sizes.spearman(ranks, effect_sizes.mid_ranks(means, np.argsort(means))), association)
    return _Strength(effect_sizes.epsilon_squared_effect(column.codes, means, len(column.names)), association)


def _metric_within(column: Numbers | Levels, codes: Codes, bins: int, outcomes: _Outcomes) -> _Strength | None:
    """Return how a swept parameter goes with a metric within scenarios; None if none has a result of each value."""
    levels, names = _numbered(column)
    table = LevelTable(outcomes.units, levels, outcomes.values, len(names))
    of = within_scenarios.mean_correlation if isinstance(column, Numbers) else within_scenarios.explained_share_effect
    effect = of(table)
    if effect is None:
        return None
    table = LevelTable(outcomes.units, codes, outcomes.values, bins)
    return _Strength(effect, within_scenarios.association(table))


def _strongest_first(sensitivities: list[Sensitivity]) -> list[Sensitivity]:
    return sorted(sensitivities, key=lambda item: (-item.association, -abs(item.effect.value), item.parameter))


def _largest_difference(column: Levels, failures: Floats, tasks: Floats) -> tuple[str, Effect, int] | None:
    """Return the level whose failure rate differs most from that of the rest, and from how many it was picked.

    ``failures`` and ``tasks``: of scenarios. The interval holds for all those differences at once.
    """
    counts = np.bincount(column.codes, minlength=len(column.names))
    hits, trials = (np.bincount(column.codes, values, len(column.names)) for values in (failures, tasks))
    compared = [level for level in range(len(counts)) if FEWEST <= counts[level] < len(column.codes)]
    if not compared:
        return None
    rates = {level: hits[level] / trials[level] for level in compared}
    others = {level: (hits.sum() - hits[level]) / (trials.sum() - trials[level]) for level in compared}
    level = max(compared, key=lambda level: float(abs(rates[level] - others[level])))
    picked_from = 1 if len(counts) == 2 else len(compared)
    own = column.codes == level
    effect = effect_sizes.rate_difference(
        UnitValues(failures[own], tasks[own]), UnitValues(failures[~own], tasks[~own]), picked_from
    )
    return column.names[level], effect, picked_from


@dataclass(frozen=True, slots=True, eq=False)
class _UnitColumn:
    """A parameter by scenario. ``firsts``: a result of each scenario; ``positions``: the scenario of each result."""

    column: Numbers | Levels
    firsts: Codes
    positions: Codes


def _by_unit(column: Numbers | Levels, units: Codes) -> _UnitColumn:
    """Return the column of the scenarios, in the order of their numbers."""
    _, firsts, positions = np.unique(units, return_index=True, return_inverse=True)
    if isinstance(column, Levels):
        return _UnitColumn(Levels(column.codes[firsts], column.names), firsts, positions)
    return _UnitColumn(numbers(column.values[firsts]), firsts, positions)


def _selected(column: Numbers | Levels, known: NDArray[np.bool_]) -> Numbers | Levels:
    """Return the column of the results whose metric is known."""
    if known.all():
        return column
    if isinstance(column, Levels):
        return Levels(column.codes[known], column.names)
    return numbers(column.values[known])


def _rate_bins(bins: Bins, codes: Codes, outcomes: _Outcomes) -> tuple[PlotBin, ...]:
    counts = np.bincount(codes, minlength=len(bins.labels)).tolist()
    plotted = []
    for at, count in enumerate(counts):
        own = codes == at
        values = values_by_unit(outcomes.units[own], outcomes.values[own]) if count else None
        interval = (0.0, 1.0) if values is None else values.interval(rate=True, bounds=None)
        plotted.append(_plot_bin(bins, at, count, 0.0 if values is None else values.mean, interval))
    return tuple(plotted)


def _mean_bins(bins: Bins, codes: Codes, outcomes: _Outcomes, bounds: Bounds | None) -> tuple[PlotBin, ...]:
    plotted = []
    for at, count in enumerate(np.bincount(codes, minlength=len(bins.labels)).tolist()):
        if not count:
            continue
        own = codes == at
        values = outcomes.values[own]
        by_unit = values_by_unit(outcomes.units[own], values)
        mean = float(values.mean())
        if by_unit.repeated:
            interval = by_unit.interval(rate=False, bounds=bounds)
        elif count < FEW:
            interval = few_values_interval(values, bounds)
        else:
            interval = normal_interval(count, mean, float(((values - mean) ** 2).sum()))
        plotted.append(_plot_bin(bins, at, count, mean, interval))
    return tuple(plotted)


def _plot_bin(bins: Bins, at: int, count: int, value: float, interval: tuple[float, float]) -> PlotBin:
    least, largest = bins.edges[at] if bins.edges else (None, None)
    low, high = interval
    return PlotBin(label=bins.labels[at], least=least, largest=largest, count=count, value=value, low=low, high=high)
