"""Effect sizes with 95 % intervals: how strongly a parameter goes with failure, or with a metric.

- Numbers and failure: rank-biserial correlation, from the area under the ROC curve with DeLong's variance (DeLong,
  DeLong and Clarke-Pearson, Biometrics 44, 1988; in one sort: Sun and Xu, IEEE Signal Processing Letters 21, 2014) on
  the logit scale; where that variance is 0, Newcombe's interval (Statistics in Medicine 25, 2006, method 5). Of
  scenarios with several tasks, Obuchowski's variance (Biometrics 53, 1997), which is DeLong's for one task each.
- A level and failure: difference of rates with Newcombe's hybrid score interval (Statistics in Medicine 17, 1998,
  method 10).
- Levels and failure: Cramér's V with Bergsma's bias correction (J. Korean Stat. Soc. 42, 2013).
- Numbers and a metric: Spearman's correlation with the interval of Bonett and Wright (Psychometrika 65, 2000).
- Levels and a metric: epsilon squared (Kelley 1935), with a seeded bootstrap.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.domain.results.intervals import Z
from core.domain.results.scenario_intervals import UnitValues

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: Resamples of the bootstrap, and intervals of the metric between which a resample does not distinguish.
RESAMPLES, STEPS = 300, 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """An effect with its 95 % interval."""

    value: float
    low: float
    high: float


def rank_biserial(ordered: Floats, failures: Floats, passes: Floats) -> Effect:
    """Return P(value of a failed > of a passed) - P(<), from -1 to 1; ``ordered``: values of scenarios, ascending.

    ``failures`` and ``passes``: numbers of their tasks. Shapes: (n,) each; at least one failed and one passed.
    """
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    positives, negatives = np.add.reduceat(failures, starts), np.add.reduceat(passes, starts)
    m, n = positives.sum(), negatives.sum()
    # for each distinct value: the share of passed below it, and of failed above it, ties by half
    below = (np.cumsum(negatives) - negatives / 2) / n
    above = 1 - (np.cumsum(positives) - positives / 2) / m
    area = float(positives @ below / m)
    failing, passing = int(np.count_nonzero(failures)), int(np.count_nonzero(passes))
    variance = 0.0
    if min(failing, passing) > 1:
        squares = np.add.reduceat(failures * failures, starts), np.add.reduceat(passes * passes, starts)
        both = np.add.reduceat(failures * passes, starts) @ ((below - area) * (above - area))
        variance = float(
            squares[0] @ (below - area) ** 2 / (failing - 1) / m * (failing / m)
            + squares[1] @ (above - area) ** 2 / (passing - 1) / n * (passing / n)
            + 2 * both * len(ordered) / (len(ordered) - 1) / m / n
        )
    low, high = _area_interval(area, max(0.0, variance), failing, passing)
    return Effect(value=2 * area - 1, low=2 * low - 1, high=2 * high - 1)


def _area_interval(area: float, variance: float, positives: int, negatives: int) -> tuple[float, float]:
    if variance > 0 and 0 < area < 1:
        logit = math.log(area / (1 - area))
        half = Z * math.sqrt(variance) / (area * (1 - area))
        return 1 / (1 + math.exp(min(700.0, half - logit))), 1 / (1 + math.exp(-half - logit))
    return _score_bound(area, 0.0, positives, negatives), _score_bound(area, 1.0, positives, negatives)


def _score_bound(area: float, end: float, positives: int, negatives: int) -> float:
    """Return the area between ``area`` and ``end`` from which the observed one is 1.96 deviations away (method 5)."""
    mean_size = (positives + negatives) / 2 - 1
    inner, outer = area, end
    for _ in range(50):
        middle = (inner + outer) / 2
        spread = 1 + mean_size * ((1 - middle) / (2 - middle) + middle / (1 + middle))
        variance = middle * (1 - middle) * spread / (positives * negatives)
        if (middle - area) ** 2 <= Z * Z * variance:
            inner = middle
        else:
            outer = middle
    return inner


def rate_difference(rates: UnitValues, others: UnitValues, chosen_from: int = 1) -> Effect:
    """Return the first rate minus the second, of tasks of different scenarios.

    ``chosen_from``: of so many differences it is the largest; its interval holds for all of them at once, with a part
    of the error rate for each (Bonferroni). There Wilson's bounds are too narrow: of 50 equal levels with 6 results
    each, one would be called different in 39 %.
    """
    rate, other = rates.mean, others.mean
    if chosen_from == 1:
        (low, high), (other_low, other_high) = (each.interval(rate=True, bounds=None) for each in (rates, others))
    else:
        error_rate = 0.05 / chosen_from
        (low, high), (other_low, other_high) = (each.exact_rate_interval(error_rate) for each in (rates, others))
    value = rate - other
    return Effect(
        value=value,
        low=value - math.hypot(rate - low, other_high - other),
        high=value + math.hypot(high - rate, other - other_low),
    )


def cramers_v(failures: Codes | Floats, counts: Codes, variance: float | None = None) -> float:
    """Return the association of levels with failure, from 0 to 1; ``failures`` and ``counts``: by level, shape (k,).

    ``variance``: that of the failed shares of scenarios, whose sums ``failures`` are; left out for one task each.
    """
    present = counts > 0
    failures, counts = failures[present], counts[present]
    n, k = int(counts.sum()), len(counts)
    rate = float(failures.sum()) / max(1, n)
    if k < 2 or not 0 < rate < 1:
        return 0.0
    spread = rate * (1 - rate) if variance is None else variance
    if spread <= 0:
        return 0.0
    phi2 = float(((failures - counts * rate) ** 2 / counts).sum() / spread / n)
    corrected = max(0.0, phi2 - (k - 1) / (n - 1))
    levels, outcomes = k - (k - 1) ** 2 / (n - 1), 2 - 1 / (n - 1)
    return math.sqrt(min(1.0, corrected / max(1e-12, min(levels, outcomes) - 1)))


def spearman(ranks: Floats, other: Floats) -> Effect:
    """Return the correlation of two rankings, with ties by mean ranks (``mid_ranks``); shape (n,) each, n > 3."""
    first, second = ranks - ranks.mean(), other - other.mean()
    scale = math.sqrt(float(first @ first) * float(second @ second))
    rho = max(-1.0, min(1.0, float(first @ second) / scale)) if scale > 0 else 0.0
    if abs(rho) == 1:
        return Effect(value=rho, low=rho, high=rho)
    half = Z * math.sqrt((1 + rho * rho / 2) / (len(ranks) - 3))
    return Effect(value=rho, low=math.tanh(math.atanh(rho) - half), high=math.tanh(math.atanh(rho) + half))


def mid_ranks(values: Floats, order: Codes) -> Floats:
    """Return the ranks from 1 on, the mean rank for ties; ``order``: that of ``values``, from argsort."""
    ordered = values[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    lengths = np.diff(starts, append=len(values))
    ranks = np.empty(len(values))
    ranks[order] = np.repeat(starts + (lengths + 1) / 2, lengths)
    return ranks


def epsilon_squared(codes: Codes, values: Floats, levels: int) -> float:
    """Return the share of a metric's variance that levels explain, less what chance explains; at most 1, at least 0.

    ``codes``: level of each value, from 0; shapes (n,).
    """
    counts = np.bincount(codes, minlength=levels).astype(np.float64)
    sums = np.bincount(codes, weights=values - values.mean(), minlength=levels).astype(np.float64)
    total = float(((values - values.mean()) ** 2).sum())
    return max(0.0, float(_adjusted(counts, sums, np.array(total))))


def _adjusted(counts: Floats, sums: Floats, total: Floats) -> Floats:
    """Return epsilon squared, of which chance may make less than 0; ``sums``: of values whose mean is 0.

    Shapes: (..., k), (..., k), and (...) for ``total``, the sum of squares.
    """
    n, k = counts.sum(axis=-1), (counts > 0).sum(axis=-1)
    between = (sums**2 / np.maximum(counts, 1)).sum(axis=-1)
    share = between / np.where(total > 0, total, 1.0)
    adjusted = 1 - (1 - share) * (n - 1) / np.maximum(n - k, 1)
    result: Floats = np.where((total > 0) & (n > k), adjusted, 0.0)
    return result


def epsilon_squared_effect(codes: Codes, values: Floats, levels: int) -> Effect:
    """Return epsilon squared with the interval of a bootstrap, whose cost does not grow with the number of values.

    Resamples are drawn from the table of levels and quantile steps of the metric. Their spread around their own mean,
    which chance has moved upwards, is put around the value.
    """
    value = epsilon_squared(codes, values, levels)
    ordered = np.sort(values)
    edges = np.unique(ordered[np.arange(1, STEPS) * len(ordered) // STEPS])
    steps = np.searchsorted(edges, values, side="right")
    in_step = np.bincount(steps, minlength=STEPS)
    centres = np.bincount(steps, weights=values, minlength=STEPS) / np.maximum(in_step, 1)
    cells = np.bincount(codes * STEPS + steps, minlength=levels * STEPS)
    used = np.flatnonzero(cells)
    generator = np.random.Generator(np.random.PCG64(0))
    draws = generator.multinomial(len(values), cells[used] / len(values), RESAMPLES).astype(np.float64)
    of_cell = centres[used % STEPS]
    of_cell = of_cell - of_cell @ cells[used] / len(values)
    belongs = (used // STEPS)[:, None] == np.arange(levels)
    counts = draws @ belongs
    means = draws @ of_cell / len(values)
    sums = (draws * of_cell) @ belongs - counts * means[:, None]
    totals = draws @ of_cell**2 - len(values) * means**2
    resampled = _adjusted(counts, sums, totals)
    low, high = np.quantile(resampled, (0.025, 0.975)) - resampled.mean()
    return Effect(value=value, low=max(0.0, value + float(low)), high=min(1.0, value + float(high)))
