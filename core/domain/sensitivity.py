"""Sensitivity: which scenario and sweep parameters go with failure, or with a metric, and how strongly.

For each parameter: an effect with its 95 % interval, its association, and bins for a plot. Effects are of different
kinds (`core/domain/effect_sizes.py`). Parameters are therefore sorted by their association, which has one scale for
numbers and levels and includes what is not monotone: Cramér's V of the bins with failure, the root of epsilon squared
with a metric.

It is a description, not a proof of cause: parameters that vary together share their effects, and of many parameters
some have an interval without 0 by chance.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.domain import effect_sizes
from core.domain.effect_sizes import Effect
from core.domain.intervals import normal_interval, wilson
from core.domain.parameter_columns import Bins, Levels, Numbers, Values, binned, column_of, numbers

Floats = NDArray[np.float64]

#: Most bins of a plot, and least results of a level whose rate is compared.
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

    ``value``: their failure rate, with Wilson's interval, or their mean metric, with the normal one.
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

    ``association``: from 0 to 1. ``missing``: results without a value.
    """

    parameter: str
    kind: EffectKind
    effect: Effect
    association: float
    level: str | None
    missing: int
    bins: tuple[PlotBin, ...]


def failure_sensitivities(columns: Mapping[str, Values], failed: Sequence[bool] | NDArray[Any]) -> list[Sensitivity]:
    """Return how each parameter goes with failure, the strongest first.

    ``columns``: a value for each result by parameter; ``failed``: 0 or 1 for each. A parameter is left out if it has a
    single value, or if the results that have it all failed or all passed.
    """
    outcome = np.asarray(failed, np.bool_)
    result = []
    for name, values in columns.items():
        column = column_of(values)
        bins = binned(column, BINS)
        present = bins.codes >= 0
        failures = int(outcome[present].sum())
        if len(bins.labels) < 2 or failures in (0, int(present.sum())):
            continue
        sums = np.bincount(bins.codes[present & outcome], minlength=len(bins.labels))
        counts = np.bincount(bins.codes[present], minlength=len(bins.labels))
        level: str | None = None
        if isinstance(column, Numbers):
            order = column.order[: int(present.sum())]
            kind, effect = EffectKind.RANK_BISERIAL, effect_sizes.rank_biserial(column.values[order], outcome[order])
        else:
            largest = _largest_difference(column, outcome)
            if largest is None:
                continue
            kind, (level, effect) = EffectKind.RATE_DIFFERENCE, largest
        result.append(
            Sensitivity(
                parameter=name,
                kind=kind,
                effect=effect,
                association=effect_sizes.cramers_v(sums, counts),
                level=level,
                missing=int(len(present) - present.sum()),
                bins=tuple(
                    _plot_bin(bins, at, count, hits / max(count, 1), wilson(hits, count))
                    for at, (hits, count) in enumerate(zip(sums.tolist(), counts.tolist(), strict=True))
                ),
            )
        )
    return _strongest_first(result)


def metric_sensitivities(columns: Mapping[str, Values], metric: Sequence[float] | Floats) -> list[Sensitivity]:
    """Return how each parameter goes with a metric, the strongest first; NaN of the metric is missing.

    A parameter is left out if it has a single value, or fewer than five results.
    """
    values = np.asarray(metric, np.float64)
    known = np.isfinite(values)
    values = values[known]
    metric_ranks: Floats | None = None
    result = []
    for name, raw in columns.items():
        column = _selected(column_of(raw), known)
        bins = binned(column, BINS)
        present = bins.codes >= 0
        all_present = bool(present.all())
        own, codes = (values, bins.codes) if all_present else (values[present], bins.codes[present])
        if len(bins.labels) < 2 or len(own) < FEWEST:
            continue
        if isinstance(column, Numbers):
            if not all_present or metric_ranks is None:
                own_ranks = effect_sizes.mid_ranks(own, np.argsort(own))
                metric_ranks = own_ranks if all_present else metric_ranks
            else:
                own_ranks = metric_ranks
            kind = EffectKind.SPEARMAN
            ranks = effect_sizes.mid_ranks(column.values, column.order)
            effect = effect_sizes.spearman(ranks[present], own_ranks)
        else:
            kind = EffectKind.EPSILON_SQUARED
            effect = effect_sizes.epsilon_squared_effect(column.codes[present], own, len(column.names))
        association = math.sqrt(effect_sizes.epsilon_squared(codes, own, len(bins.labels)))
        result.append(
            Sensitivity(
                parameter=name,
                kind=kind,
                effect=effect,
                association=association,
                level=None,
                missing=int(len(present) - present.sum()),
                bins=_mean_bins(bins, codes, own),
            )
        )
    return _strongest_first(result)


def _strongest_first(sensitivities: list[Sensitivity]) -> list[Sensitivity]:
    return sorted(sensitivities, key=lambda item: (-item.association, -abs(item.effect.value), item.parameter))


def _largest_difference(column: Levels, failed: NDArray[np.bool_]) -> tuple[str, Effect] | None:
    """Return the level whose failure rate differs most from that of the rest, with the interval of that level alone."""
    present = column.codes >= 0
    counts = np.bincount(column.codes[present], minlength=len(column.names)).tolist()
    hits = np.bincount(column.codes[present & failed], minlength=len(column.names)).tolist()
    trials, failures = sum(counts), sum(hits)
    effects = [
        (name, effect_sizes.rate_difference(hit, count, failures - hit, trials - count))
        for name, hit, count in zip(column.names, hits, counts, strict=True)
        if FEWEST <= count < trials
    ]
    return max(effects, key=lambda item: abs(item[1].value), default=None)


def _selected(column: Numbers | Levels, known: NDArray[np.bool_]) -> Numbers | Levels:
    """Return the column of the results whose metric is known."""
    if known.all():
        return column
    if isinstance(column, Levels):
        return Levels(column.codes[known], column.names)
    return numbers(column.values[known])


def _mean_bins(bins: Bins, codes: NDArray[np.int64], values: Floats) -> tuple[PlotBin, ...]:
    counts = np.bincount(codes, minlength=len(bins.labels))
    means = np.bincount(codes, weights=values, minlength=len(bins.labels)) / np.maximum(counts, 1)
    deviations = np.bincount(codes, weights=(values - means[codes]) ** 2, minlength=len(bins.labels))
    return tuple(
        _plot_bin(bins, at, count, mean, normal_interval(count, mean, deviation))
        for at, (count, mean, deviation) in enumerate(
            zip(counts.tolist(), means.tolist(), deviations.tolist(), strict=True)
        )
        if count
    )


def _plot_bin(bins: Bins, at: int, count: int, value: float, interval: tuple[float, float]) -> PlotBin:
    least, largest = bins.edges[at] if bins.edges else (None, None)
    low, high = interval
    return PlotBin(label=bins.labels[at], least=least, largest=largest, count=count, value=value, low=low, high=high)
