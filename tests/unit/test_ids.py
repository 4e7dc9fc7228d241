"""Identifiers: they sort in the order in which a process makes them."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from common.ids import new_id


@given(st.lists(st.datetimes(datetime(2020, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC)), min_size=2))
def test_ids_sort_in_the_order_in_which_they_are_made_whatever_the_clock_does(moments: list[datetime]) -> None:
    ids = [new_id(moment) for moment in moments]
    assert ids == sorted(set(ids)) and all(len(id) == 26 for id in ids)


def test_threads_that_make_ids_within_one_millisecond_make_different_ids() -> None:
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda _: new_id(moment), range(2000)))
    assert len(set(ids)) == 2000
