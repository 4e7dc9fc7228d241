"""Columns of parameters: values of any JSON kind as numbers or as levels, in bins of their own kind.

A column of nothing but numbers has an order; texts, booleans, lists and mixtures are levels. None and NaN are missing.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.domain.results.result_table import TaskNumbers
from core.domain.submissions.task_parameters import Parameter

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

#: Most levels that are distinguished: the most frequent, and OTHERS for the rest.
LEVELS = 50
OTHERS = "(others)"


@dataclass(frozen=True, slots=True)
class Numbers:
    """A numeric parameter; NaN is missing. ``order``: that of the values, missing last."""

    values: Floats
    order: Codes


@dataclass(frozen=True, slots=True)
class Levels:
    """A parameter with levels. ``codes``: positions in ``names``, -1 for missing; the most frequent level first."""

    codes: Codes
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bins:
    """A parameter in few bins. ``codes``: positions in ``labels``, -1 for missing.

    ``edges``: the least and the largest value in each bin of numbers; empty for levels.
    """

    codes: Codes
    labels: tuple[str, ...]
    edges: tuple[tuple[float, float], ...] = ()


Arrays = Floats | NDArray[np.int64] | NDArray[np.bool_] | NDArray[np.object_]
#: Values of a parameter, one for each result, or the column of them, which several tables can share.
Values = Sequence[object] | Arrays | Numbers | Levels


def column_of(values: Values) -> Numbers | Levels:
    """Return a parameter's column; a column is returned as it is."""
    if isinstance(values, Numbers | Levels):
        return values
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiu":
        return numbers(values.astype(np.float64))
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    kinds = set(map(type, listed))
    if kinds <= {int, float}:
        return numbers(np.array(listed, np.float64))
    if kinds <= {int, float, type(None)} and len(kinds) > 1:
        return numbers(np.array([math.nan if value is None else value for value in listed]))
    return _levels([str(value) if isinstance(value, list | dict) else value for value in listed])


def column_of_parameter(parameter: Parameter, tasks: TaskNumbers) -> Numbers | Levels:
    """Return a parameter's column for tasks; of levels the most frequent first, and the rest as OTHERS."""
    values = parameter.of(tasks)
    if parameter.kind == "number":
        return numbers(values.astype(np.float64))
    counts = np.bincount(values[values >= 0], minlength=len(parameter.values))
    frequent = np.argsort(-counts, kind="stable")
    frequent = frequent[: int((counts > 0).sum())]
    kept = len(frequent) if len(frequent) <= LEVELS else LEVELS - 1
    ranks = np.zeros(len(parameter.values) + 1, np.int64)
    ranks[frequent] = np.minimum(np.arange(len(frequent)), kept)
    ranks[-1] = -1  # the position of a task without a value is -1
    names = tuple(str(parameter.values[code]) for code in frequent[:kept].tolist())
    return Levels(ranks[values], names + ((OTHERS,) if kept < len(frequent) else ()))


def numbers(values: Floats) -> Numbers:
    """Return the column of numbers."""
    return Numbers(values, np.argsort(values))


def _levels(values: Sequence[object]) -> Levels:
    counts = Counter(values)
    counts.pop(None, None)
    frequent = [value for value, _ in counts.most_common()]
    kept = frequent if len(frequent) <= LEVELS else frequent[: LEVELS - 1]
    names = tuple(map(_name, kept)) + ((OTHERS,) if len(frequent) > len(kept) else ())
    codes = {value: min(code, len(kept)) for code, value in enumerate(frequent)} | {None: -1}
    return Levels(np.fromiter(map(codes.__getitem__, values), np.int64, len(values)), names)


def _name(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def distinct_columns(columns: Mapping[str, Numbers | Levels]) -> dict[str, tuple[str, ...]]:
    """Return one of all parameters that tell the same results apart, with the others as aliases.

    Numbers are aliases if they have the same order and the same ties, levels if they divide the results in the same
    way: whatever goes with one of them goes with the other, in the same way. A field of a scenario comes before a
    member of an object in it.
    """
    alike: dict[bytes, list[str]] = {}
    for name, column in columns.items():
        alike.setdefault(_division(column), []).append(name)
    chosen = {min(names, key=lambda name: name.count(".")): names for names in alike.values()}
    return {name: tuple(other for other in names if other != name) for name, names in chosen.items()}


def _division(column: Numbers | Levels) -> bytes:
    """Return what is equal for two columns of one kind that tell the same results apart."""
    if isinstance(column, Numbers):
        ordered = column.values[column.order]
        steps = np.concatenate(([0], np.cumsum(ordered[1:] != ordered[:-1])))[: len(ordered)]
        ranks = np.empty(len(ordered), np.int64)
        ranks[column.order] = steps
        ranks[np.isnan(column.values)] = -1
        kind = b"numbers"
    else:
        _, first, codes = np.unique(column.codes, return_index=True, return_inverse=True)
        ranks = np.argsort(np.argsort(first))[codes].astype(np.int64)  # levels by their first result
        ranks[column.codes < 0] = -1
        kind = b"levels"
    return kind + hashlib.sha256(ranks.tobytes()).digest()


def binned(column: Numbers | Levels, most: int) -> Bins:
    """Return a column in at most ``most`` bins: each distinct number or quantiles of about equal counts; levels.

    Of levels, the most frequent have bins, and the rest is in one together.
    """
    if isinstance(column, Levels):
        if len(column.names) <= most:
            return Bins(column.codes, column.names)
        return Bins(np.minimum(column.codes, most - 1), (*column.names[: most - 1], OTHERS))
    ordered = column.values[column.order]
    ordered = ordered[: int(np.searchsorted(ordered, math.nan))]  # NaN sorts last
    if not len(ordered):
        return Bins(np.full(len(column.values), -1), ())
    firsts = ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))]
    if len(firsts) > most:  # quantiles that are distinct
        firsts = np.unique(np.concatenate((ordered[:1], ordered[np.arange(1, most) * len(ordered) // most])))
    starts = np.searchsorted(ordered, firsts)
    ends = np.append(starts[1:], len(ordered)) - 1
    # in the order of the values the bins are runs, which no search of each value has to determine
    codes = np.full(len(column.values), -1)
    codes[column.order[: len(ordered)]] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(ordered)))
    edges = tuple((float(ordered[start]), float(ordered[end])) for start, end in zip(starts, ends, strict=True))
    labels = tuple(f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}" for low, high in edges)
    return Bins(codes, labels, edges)
