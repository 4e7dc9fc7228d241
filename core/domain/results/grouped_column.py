"""Running statistics of one metric in each of several groups, in memory that does not grow with the values.

Moments are exact and merged block by block (Chan, Golub, LeVeque 1979). Quantiles are of a systematic sample (every
value, then every second, fourth, ... of each group), complete until the sample of all groups together is full.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.domain.results.intervals import (
    BOOTSTRAPPED,
    FEW,
    Bounds,
    constant_interval,
    few_values_interval,
    mean_interval,
    normal_interval,
    student_interval,
    wilson,
    within,
)
from core.domain.results.rates import is_rate
from core.domain.results.scenario_intervals import RATE, UnitSums

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


def sorted_by_group(codes: Codes) -> tuple[Codes, Codes]:
    """Return the order that sorts values by group and in each group by task, without group -1; and the codes in it."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    first = int(np.searchsorted(ordered, 0))
    return order[first:], ordered[first:]


class GroupedColumn:
    """One metric's values of ``ok`` tasks, by group. ``scenarios``: where some have several tasks, their number."""

    def __init__(self, scenarios: int | None = None) -> None:
        self._by_unit = None if scenarios is None else UnitSums(scenarios)
        self.counts: NDArray[np.int64] = np.zeros(0, np.int64)
        self._means: Floats = np.zeros(0)
        self._m2: Floats = np.zeros(0)
        self._lows: Floats = np.zeros(0)
        self._highs: Floats = np.zeros(0)
        self._binary = True
        self._sample: list[tuple[NDArray[np.int16], Floats]] = []
        self._sampled = 0
        self._stride = 1
        self._by_group: dict[int, Floats] | None = None

    def _grow(self, groups: int) -> None:
        more = max(groups, 2 * len(self.counts)) - len(self.counts)
        self.counts = np.append(self.counts, np.zeros(more, np.int64))
        self._means = np.append(self._means, np.zeros(more))
        self._m2 = np.append(self._m2, np.zeros(more))
        self._lows = np.append(self._lows, np.full(more, math.inf))
        self._highs = np.append(self._highs, np.full(more, -math.inf))

    def add(self, codes: Codes, values: Floats, room: int, units: Codes | None = None) -> None:
        """Add a block of values, sorted by group and in each group by task; NaN counts as missing.

        ``room``: most values of the sample. ``units``: the scenarios of the tasks.
        """
        present = ~np.isnan(values)
        if not present.all():
            codes, values = codes[present], values[present]
            units = None if units is None else units[present]
        if not len(values):
            return
        if self._by_unit is not None and units is not None:
            self._by_unit.add(codes, units, values, room)
        if codes[-1] >= len(self.counts):
            self._grow(int(codes[-1]) + 1)
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        groups, lengths = codes[starts], np.diff(starts, append=len(codes))
        before = self.counts[groups]
        self._add_sample(codes, values, np.arange(len(codes)) + np.repeat(before - starts, lengths), room)
        with np.errstate(over="ignore", invalid="ignore"):
            means = np.add.reduceat(values, starts) / lengths
            m2 = np.add.reduceat((values - np.repeat(means, lengths)) ** 2, starts)
            totals = before + lengths
            deltas = means - self._means[groups]
            self._m2[groups] += m2 + deltas * deltas * before * lengths / totals
            self._means[groups] += deltas * lengths / totals
        self._lows[groups] = np.minimum(self._lows[groups], np.minimum.reduceat(values, starts))
        self._highs[groups] = np.maximum(self._highs[groups], np.maximum.reduceat(values, starts))
        self._binary = self._binary and bool(((values == 0) | (values == 1)).all())
        self.counts[groups] = totals

    def _add_sample(self, codes: Codes, values: Floats, ordinals: Codes, room: int) -> None:
        """Add to the sample; ``ordinals``: number of earlier values of the same group."""
        if self._stride > 1:
            kept = ordinals % self._stride == 0
            codes, values = codes[kept], values[kept]
        self._by_group = None
        self._sample.append((codes.astype(np.int16), values))
        self._sampled += len(values)
        room = max(room, 4 * len(self.counts))  # each group keeps a value
        while self._sampled > room:
            self._thin()

    def _thin(self) -> None:
        """Keep every second value of each group."""
        codes, values = self._joined()
        order = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
        ranks = np.arange(len(codes)) - np.repeat(starts, np.diff(starts, append=len(codes)))
        kept = np.sort(order[ranks % 2 == 0])
        self._sample = [(codes[kept], values[kept])]
        self._sampled = len(kept)
        self._stride *= 2

    def _joined(self) -> tuple[NDArray[np.int16], Floats]:
        if not self._sample:
            return np.zeros(0, np.int16), np.zeros(0)
        codes, values = (np.concatenate(parts) for parts in zip(*self._sample, strict=True))
        self._sample = [(codes, values)]
        return codes, values

    def sample(self, group: int) -> Floats:
        """Return the sample of a group, in task order."""
        if self._by_group is None:
            codes, values = self._joined()
            order = np.argsort(codes, kind="stable")
            groups, starts = np.unique(codes[order], return_index=True)
            parts = np.split(values[order], starts[1:])
            self._by_group = dict(zip(groups.tolist(), parts, strict=True))
        return self._by_group.get(group, np.zeros(0))

    def count(self, group: int) -> int:
        """Return the number of a group's values."""
        return int(self.counts[group]) if group < len(self.counts) else 0

    def summary(self, group: int, *, penalties: int, worst: float | None) -> dict[str, float | int | None]:
        """Return a group's statistics; the standard deviation is that of the sample (n - 1).

        ``penalties``: tasks that are not ``ok``, each of which counts as ``worst`` in ``mean_penalised``.
        """
        n = self.count(group)
        mean, m2 = (float(self._means[group]), float(self._m2[group])) if n else (math.nan, math.nan)
        quantiles = np.quantile(self.sample(group), (0.5, 0.9, 0.99)).tolist() if n else [None] * 3
        penalised = mean if n else None
        if penalties:
            total = (mean * n if n else 0.0) + (worst or 0.0) * penalties
            penalised = None if worst is None else total / (n + penalties)
        statistics = {
            "mean": mean if n else None,
            "std": math.sqrt(m2 / (n - 1)) if n > 1 else (0.0 if n else None),
            "min": float(self._lows[group]) if n else None,
            **dict(zip(("p50", "p90", "p99"), quantiles, strict=True)),
            "max": float(self._highs[group]) if n else None,
            "mean_ok": mean if n else None,
            "mean_penalised": penalised,
        }
        return {"count": n} | {name: _finite(value) for name, value in statistics.items()}

    def is_rate(self, declared: bool | None) -> bool:
        """Return whether the metric is a rate, from its declaration and the values of all groups."""
        used = self.counts > 0
        if not self._binary or not used.any():
            return False
        low, high = float(self._lows[used].min()), float(self._highs[used].max())
        return is_rate(declared, count=int(self.counts.sum()), low=low, high=high, binary=True)

    def interval(
        self,
        group: int,
        *,
        rate: bool,
        bounds: Bounds | None,
        bootstrap: bool,
        failures: "Failures | None" = None,
    ) -> dict[str, float | None]:
        """Return the 95 % interval of a group's mean, `low` and `high`, None for a mean of one value; empty without.

        ``rate``: whether the metric is a rate (`is_rate`). ``bounds``: its declared range. ``bootstrap``: take the
        bootstrap of up to BOOTSTRAPPED values, which takes milliseconds to seconds. ``failures``: tasks that are not
        ``ok``, for `low_penalised` and `high_penalised`, the interval of the mean over all tasks.
        """
        ends: dict[str, float | None] = {}
        if self.count(group):
            low, high = within(self._interval(group, rate, bounds, bootstrap), *self._extremes(group), bounds)
            ends = {"low": _finite(low), "high": _finite(high)}
        if failures is not None:
            low, high = self._penalised_interval(group, failures, rate, bounds)
        elif not ends:
            return {}
        return ends | {"low_penalised": _finite(low), "high_penalised": _finite(high)}

    def _interval(self, group: int, rate: bool, bounds: Bounds | None, bootstrap: bool) -> tuple[float, float]:
        if self._by_unit is not None and (values := self._by_unit.of(group)).repeated:
            return values.interval(rate=rate, bounds=bounds)
        n, mean, m2 = self.count(group), float(self._means[group]), float(self._m2[group])
        if rate:
            return wilson(round(mean * n), n)
        with np.errstate(over="ignore", invalid="ignore"):
            if n < FEW:
                return self._few_interval(group, (), bounds)
            least, most = self._extremes(group)
            if least == most and (constant := constant_interval(least, n, bounds)) is not None:
                return constant
            if bootstrap and self._stride == 1 and n <= BOOTSTRAPPED:
                return mean_interval(self.sample(group))
        return normal_interval(n, mean, m2)

    def _extremes(self, group: int) -> tuple[float, float]:
        return float(self._lows[group]), float(self._highs[group])

    def _few_interval(self, group: int, more: Sequence[float], bounds: Bounds | None) -> tuple[float, float]:
        """Return the interval of the mean of a group's values, of which there are few, and ``more``."""
        sample = self.sample(group) if self.count(group) else np.zeros(0)
        if len(sample) == self.count(group):
            return few_values_interval(np.append(sample, more), bounds)
        return student_interval(self.count(group), float(self._means[group]), float(self._m2[group]))

    def _penalised_interval(
        self, group: int, failures: "Failures", rate: bool, bounds: Bounds | None
    ) -> tuple[float, float]:
        """Return the interval of the mean over all tasks, of which those that are not ``ok`` have the worst value."""
        worst, failed = failures.worst, failures.count
        if worst is None:
            return math.nan, math.nan
        rate = rate and worst in RATE
        if self._by_unit is not None and failures.by_unit is not None:
            values = self._by_unit.of(group, failures.by_unit, worst)
            if values.repeated:
                return values.interval(rate=rate, bounds=bounds)
        n = self.count(group)
        total = n + failed
        mean_ok, m2 = (float(self._means[group]), float(self._m2[group])) if n else (0.0, 0.0)
        mean = (mean_ok * n + worst * failed) / total
        if rate:
            return wilson(round(mean * total), total)
        with np.errstate(over="ignore", invalid="ignore"):
            if total < FEW:
                return self._few_interval(group, [worst] * failed, bounds)
            least, most = self._extremes(group) if n else (worst, worst)
            if least == most == worst and (constant := constant_interval(worst, total, bounds)) is not None:
                return constant
            m2 += n * failed / total * (mean_ok - worst) ** 2
        return within(normal_interval(total, mean, m2), min(least, worst), max(most, worst), bounds)


@dataclass(frozen=True, slots=True, eq=False)
class Failures:
    """The tasks of a group that are not ``ok``, each of which counts as ``worst``; None if no value is declared.

    ``by_unit``: their numbers by scenario, where some scenarios have several tasks.
    """

    count: int
    worst: float | None
    by_unit: UnitSums | None


def _finite(value: float | None) -> float | None:
    """Return a number, or None for an overflow, which JSON cannot express."""
    return value if value is not None and math.isfinite(value) else None
