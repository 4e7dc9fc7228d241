"""Columns of a simulation's parameters: numbers, or levels with the most frequent first."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.domain.results.parameter_columns import LEVELS, Levels, Numbers, column_of, column_of_parameter
from core.domain.submissions.task_parameters import parameter_of

VALUES = st.one_of(
    st.lists(st.one_of(st.none(), st.text("ab", max_size=2), st.booleans()), min_size=1, max_size=40),
    st.lists(st.one_of(st.none(), st.integers(-5, 5)), min_size=1, max_size=40),
)


@given(VALUES, st.integers(1, 3))
def test_a_parameters_column_is_that_of_its_values(values: list[Any], stride: int) -> None:
    parameter = parameter_of("x", "scenario", values, stride)
    if parameter is None:
        return
    tasks = np.arange(len(values) * stride)
    column = column_of_parameter(parameter, tasks)
    labels = [values[task // stride] for task in tasks.tolist()]
    expected = column_of(labels)
    if isinstance(column, Numbers):
        assert isinstance(expected, Numbers) and np.array_equal(column.values, expected.values, equal_nan=True)
        return
    named = [None if code < 0 else column.names[code] for code in column.codes.tolist()]
    assert named == [
        None if value is None else str(value).lower() if value in (True, False) else value for value in labels
    ]
    counts = np.bincount(column.codes[column.codes >= 0]).tolist()
    assert counts == sorted(counts, reverse=True)


def test_rare_levels_count_together() -> None:
    parameter = parameter_of("x", "scenario", [f"v{n}" for n in range(LEVELS + 10)], 1)
    assert parameter is not None
    column = column_of_parameter(parameter, np.arange(LEVELS + 10))
    assert isinstance(column, Levels) and len(column.names) == LEVELS and int((column.codes == LEVELS - 1).sum()) == 11
