"""Statistics of results that are not tallied in task order: McNemar's test, and running sketches of batches."""

import math
from collections.abc import Iterable, Mapping, Sequence


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
    """Return the statistics that sketches can give; quantiles are None, as is what is too large for a number."""
    result: dict[str, dict[str, float | int | None]] = {}
    for name, (count, total, squares, low, high, *_) in sums.items():
        if count:
            variance = (squares - total * total / count) / (count - 1) if count > 1 else 0.0
            result[name] = {
                "count": int(count),
                "mean": _finite(total / count),
                "std": math.sqrt(max(0.0, variance)) if math.isfinite(variance) else None,
                "min": low,
                "p50": None,
                "p90": None,
                "p99": None,
                "max": high,
            }
    return result


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
