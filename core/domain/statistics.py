"""Statistics of results: exact and in task order at the end, approximate and in order of arrival before.

Intervals: Wilson (J. Am. Stat. Assoc. 22, 1927) for rates, percentile bootstrap (Efron 1979) for means; the random
numbers are seeded, so equal results give equal bytes.
"""

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Maximum of values kept for exact quantiles; beyond it, every second, fourth, ... value is kept.
KEPT = 1_000_000
#: Resamples of the bootstrap, and the maximum of values for it; beyond it the normal approximation is as good.
RESAMPLES, BOOTSTRAPPED = 1000, 20_000
Z = 1.959963984540054


def wilson(hits: int, trials: int) -> tuple[float, float]:
    """Return the 95 % interval of a rate: 0 of 288 still means up to 1.3 %."""
    if trials == 0:
        return 0.0, 1.0
    share, z2 = hits / trials, Z * Z
    middle = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = Z / (1 + z2 / trials) * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials * trials))
    return max(0.0, middle - half), min(1.0, middle + half)


def mean_interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95 % interval of a mean."""
    n = len(values)
    if n < 2:
        only = float(values[0]) if n else 0.0
        return only, only
    if n > BOOTSTRAPPED:
        half = Z * float(values.std(ddof=1)) / math.sqrt(n)
        return float(values.mean()) - half, float(values.mean()) + half
    generator = np.random.Generator(np.random.PCG64(0))
    means = np.empty(RESAMPLES)
    for at in range(RESAMPLES):
        means[at] = values[generator.integers(0, n, n)].mean()
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


class Column:
    """Running statistics of one metric: values of ``ok`` tasks for the mean, all tasks for the penalised mean.

    Values are merged in blocks of a fixed size, so that the sums do not depend on how results were batched.
    """

    BLOCK = 4096

    def __init__(self, worst: float | None, penalties: int = 0, *, kept: int = KEPT) -> None:
        self._worst = worst
        self._waiting = array("d")
        self._kept: list[NDArray[np.float64]] = []
        self._most_kept = kept
        self._stride = 1
        self._count = 0
        self._mean = 0.0
        self._m2 = 0.0
        self._min = math.inf
        self._max = -math.inf
        self.penalties = penalties

    @property
    def count(self) -> int:
        """Number of values added."""
        return self._count + len(self._waiting)

    def add(self, value: float) -> None:
        """Add the value of an ``ok`` task."""
        self._waiting.append(value)
        if len(self._waiting) >= self.BLOCK:
            self._fold()

    def _fold(self) -> None:
        """Merge a block into the running moments (Chan, Golub, LeVeque 1979) and keep its sample for the quantiles."""
        if not self._waiting:
            return
        block = np.array(self._waiting)
        del self._waiting[:]
        n, mean = len(block), float(block.mean())
        total = self._count + n
        delta = mean - self._mean
        self._m2 += float(((block - mean) ** 2).sum()) + delta * delta * self._count * n / total
        self._mean += delta * n / total
        self._min = min(self._min, float(block.min()))
        self._max = max(self._max, float(block.max()))
        self._kept.append(block[:: self._stride])
        self._count = total
        if total // self._stride > self._most_kept:
            self._stride *= 2
            self._kept = [part[::2] for part in self._kept]

    def penalise(self) -> None:
        """Add a task that is not ``ok``."""
        self.penalties += 1

    def summary(self, *, interval: bool = True) -> dict[str, float | int | None]:
        """Return the statistics; the standard deviation is that of the sample (n - 1)."""
        self._fold()
        n = self._count
        values = np.concatenate(self._kept) if self._kept else np.empty(0)
        p50, p90, p99 = (float(q) for q in np.quantile(values, (0.5, 0.9, 0.99))) if n else (None, None, None)
        result: dict[str, float | int | None] = {
            "count": n,
            "mean": self._mean if n else None,
            "std": math.sqrt(self._m2 / (n - 1)) if n > 1 else (0.0 if n else None),
            "min": self._min if n else None,
            "p50": p50,
            "p90": p90,
            "p99": p99,
            "max": self._max if n else None,
            "mean_ok": self._mean if n else None,
            "mean_penalised": self._penalised(),
        }
        if interval and n:
            is_rate = bool(((values == 0) | (values == 1)).all())
            low, high = wilson(int(values.sum()), n) if is_rate and self._stride == 1 else mean_interval(values)
            result |= {"low": low, "high": high}
        return result

    def _penalised(self) -> float | None:
        if self.penalties == 0:
            return self._mean if self._count else None
        if self._worst is None:
            return None
        return (self._mean * self._count + self._worst * self.penalties) / (self._count + self.penalties)


class MetricTally:
    """Tally of results, in total and by group."""

    def __init__(self, metrics: Sequence[Mapping[str, Any]], group_by: Sequence[str]) -> None:
        self._worst = {metric["name"]: metric.get("worst") for metric in metrics}
        self._group_by = group_by
        self.statuses: dict[str, int] = {}
        self.outcomes: dict[str, dict[str, int]] = {}
        self._columns: dict[str, Column] = {name: Column(worst) for name, worst in self._worst.items()}
        self._timing: dict[str, Column] = {}
        self._groups: dict[str, dict[str, MetricTally]] = {name: {} for name in group_by}

    def clock(self, timing: Mapping[str, Any], prefix: str = "") -> None:
        """Add the timing of a result: seconds and latencies, which differ from run to run."""
        for name, value in timing.items():
            if isinstance(value, Mapping):
                self.clock(value, f"{name}_")
            elif isinstance(value, int | float):
                self._timing.setdefault(prefix + name, Column(None)).add(float(value))

    def add(self, status: str, scenario: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
        """Add a result; it belongs to no group of a name that its scenario does not have."""
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if status == "ok":
            for name, value in metrics.items():
                if isinstance(value, str):
                    counts = self.outcomes.setdefault(name, {})
                    counts[value] = counts.get(value, 0) + 1
                elif value is not None:
                    column = self._columns.get(name)
                    if column is None:  # an undeclared metric: tasks that failed before its first value count too
                        failed = self.done - self.statuses["ok"]
                        column = self._columns[name] = Column(self._worst.get(name), failed)
                    column.add(float(value))
        else:
            for column in self._columns.values():
                column.penalise()
        for name, groups in self._groups.items():
            if name not in scenario:
                continue
            value = str(scenario[name])
            if value not in groups and len(groups) < 1000:
                groups[value] = MetricTally([{"name": key, "worst": worst} for key, worst in self._worst.items()], ())
            if value in groups:
                groups[value].add(status, {}, metrics)

    @property
    def done(self) -> int:
        """Number of results added."""
        return sum(self.statuses.values())

    def summary(self, *, interval: bool = True) -> dict[str, Any]:
        """Return statuses, outcomes and every metric's statistics, failures first."""
        order = sorted(self.statuses.items(), key=lambda item: (item[0] == "ok", item[0]))
        result: dict[str, Any] = {
            "tasks": {"total": self.done, "done": self.done, "failed": self.done - self.statuses.get("ok", 0)},
            "statuses": dict(order),
            "outcomes": {name: dict(sorted(counts.items())) for name, counts in sorted(self.outcomes.items())},
            "metrics": {
                name: column.summary(interval=interval)
                for name, column in self._columns.items()
                if column.count or column.penalties
            },
        }
        if self._timing:
            result["timing"] = {name: column.summary(interval=False) for name, column in self._timing.items()}
        if self._groups:
            result["groups"] = {
                name: {value: tally.summary(interval=False) for value, tally in sorted(groups.items())}
                for name, groups in self._groups.items()
            }
        return result


def paired(first: Mapping[Any, float], second: Mapping[Any, float]) -> dict[str, Any] | None:
    """Return the mean paired difference over shared scenarios with its 95 % interval; None without shared ones."""
    shared = sorted(first.keys() & second.keys())
    if not shared:
        return None
    mine = np.array([first[key] for key in shared])
    other = np.array([second[key] for key in shared])
    low, high = mean_interval(mine - other)
    result = {
        "count": len(shared),
        "mean": float(mine.mean()),
        "to": float(other.mean()),
        "difference": float((mine - other).mean()),
        "low": low,
        "high": high,
    }
    if bool((((mine == 0) | (mine == 1)) & ((other == 0) | (other == 1))).all()):
        result |= mcnemar(int(((mine == 1) & (other == 0)).sum()), int(((mine == 0) & (other == 1)).sum()))
    return result


def mcnemar(only_ours: int, only_theirs: int) -> dict[str, float | int]:
    """Return McNemar's exact two-sided p-value (Psychometrika 12, 1947) of a split of the disagreements."""
    n, k = only_ours + only_theirs, min(only_ours, only_theirs)
    tail = sum(math.comb(n, i) for i in range(k + 1)) / 2**n if n <= 1000 else math.nan
    if n > 1000:
        tail = 0.5 * math.erfc((abs(only_ours - only_theirs) - 1) / math.sqrt(2 * n))
    return {"only_ours": only_ours, "only_theirs": only_theirs, "p": min(1.0, 2 * tail)}


def merged(sketches: Iterable[Mapping[str, Sequence[float]]], into: dict[str, list[float]]) -> None:
    """Merge sketches of batches, [count, sum, sum of squares, min, max] per metric, ``into`` running sketches."""
    for sketch in sketches:
        for name, (count, total, squares, low, high, *_) in sketch.items():
            running = into.get(name)
            if running is None:
                into[name] = [count, total, squares, low, high]
            else:
                running[0] += count
                running[1] += total
                running[2] += squares
                running[3] = min(running[3], low)
                running[4] = max(running[4], high)


def sketched(sums: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float | int | None]]:
    """Return the statistics that sketches can give; quantiles are None."""
    result = {}
    for name, (count, total, squares, low, high, *_) in sums.items():
        if count:
            variance = max(0.0, (squares - total * total / count) / (count - 1)) if count > 1 else 0.0
            result[name] = {
                "count": int(count),
                "mean": total / count,
                "std": math.sqrt(variance),
                "min": low,
                "p50": None,
                "p90": None,
                "p99": None,
                "max": high,
            }
    return result
