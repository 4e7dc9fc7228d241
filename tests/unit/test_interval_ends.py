"""Ends of usage intervals: parts add up to what is known and assumed; results that are summed up late keep nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.usage.usage_intervals import ASSUMED_SECONDS, LATE_MARK, IntervalEnd, OpenInterval, parts_of

seconds = st.floats(0, 10_000)


@pytest.mark.parametrize("summed_up_at", [None, 50.0, 103.0, 900.0])
def test_what_is_assumed_after_the_last_sign_is_lost_whenever_its_last_results_were_summed_up(
    summed_up_at: float | None,
) -> None:
    interval = OpenInterval(marked_at=100.0, milliseconds=60_000)
    parts = parts_of(interval, IntervalEnd(now=1000.0, heard_at=102.0, lost=True, result_at=summed_up_at))
    assert parts[-1].estimated and parts[-1].lost
    assert sum(part.milliseconds for part in parts) == 67_000
    lost = sum(part.milliseconds for part in parts if part.lost)
    assert lost == {None: 67_000, 50.0: 57_000, 103.0: 5_000, 900.0: 5_000}[summed_up_at]


@given(length=st.integers(0, 10**6), marked_at=seconds, gap=seconds, heard=seconds, result=st.none() | seconds)
def test_parts_follow_each_other_and_what_is_estimated_and_lost_is_at_the_end(
    length: int, marked_at: float, gap: float, heard: float, result: float | None
) -> None:
    end = IntervalEnd(marked_at + gap, marked_at + heard, lost=True, result_at=result)
    parts = parts_of(OpenInterval(marked_at, length), end)
    assert all(part.milliseconds >= 0 for part in parts)
    assert [part.lost for part in parts] == sorted(part.lost for part in parts)
    assert [part.estimated for part in parts] == sorted(part.estimated for part in parts)
    estimated = sum(part.milliseconds for part in parts if part.estimated)
    assert estimated <= 1000 * max(LATE_MARK, ASSUMED_SECONDS) + 1
