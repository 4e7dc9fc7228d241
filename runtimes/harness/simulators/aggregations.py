"""Aggregations of the values that a world reports at each step into one metric of the scenario."""

from collections.abc import Callable, Mapping

#: By name; none of them is called without values.
AGGREGATIONS: Mapping[str, Callable[[list[float]], float]] = {
    "last": lambda values: values[-1],
    "mean": lambda values: sum(values) / len(values),
    "min": min,
    "max": max,
}
