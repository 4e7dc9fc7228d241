"""Scales of charts and the course of a verdict: round ticks, and a picture that shows what the reader looks for."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from web.chart_scale import scale_of
from web.verdict_course import course_of

numbers = st.floats(-1e9, 1e9, allow_subnormal=False)


@given(st.lists(numbers, min_size=1, max_size=20))
def test_a_scale_has_few_round_ticks_around_its_values(values: list[float]) -> None:
    assume(all(value == 0 or abs(value) > 1e-9 for value in values))
    scale = scale_of(values)
    reach = 1e-6 * (scale.high - scale.low)
    assert scale.low - reach <= min(values) and max(values) <= scale.high + reach
    assert 2 <= len(scale.ticks) <= 7 and list(scale.ticks) == sorted(set(scale.ticks))
    assert scale.low <= scale.ticks[0] and scale.ticks[-1] <= scale.high
    assert all(1 <= scale.place(value) <= 99 for value in values)


def test_ticks_are_multiples_of_1_2_or_5() -> None:
    assert scale_of([-12.3, 30.1]).ticks == [-10, 0, 10, 20, 30]
    assert scale_of([0.01, 0.07]).ticks == [0.02, 0.04, 0.06]
    assert scale_of([]).ticks == [0, 0.2, 0.4, 0.6, 0.8, 1]


def test_the_ends_of_a_scale_have_few_digits_and_are_close_to_its_values() -> None:
    scale = scale_of([-12.3, 30.1])
    assert (scale.low, scale.high) == (-15, 35)
    scale = scale_of([0.01234, None, 0.07])
    assert (scale.low, scale.high) == (0.01, 0.07)
    scale = scale_of([3.0])
    assert (scale.low, scale.high, scale.place(3)) == (1.4, 4.6, 50)


def test_a_scale_with_little_room_says_its_ends_and_0_between_them() -> None:
    assert scale_of([-12.3, 30.1]).labels == [-15, 0, 35]
    assert scale_of([-1, 30]).labels == [-2, 30]
    assert scale_of([5, 30]).labels == [4, 30]


def looks_of(*bounds: tuple[float, float]) -> list[dict[str, float]]:
    return [
        {"count": 16 * (number + 1), "mean": (low + high) / 2, "low": low, "high": high}
        for number, (low, high) in enumerate(bounds)
    ]


def test_there_is_a_course_from_the_first_look() -> None:
    assert course_of([]) is None
    course = course_of(looks_of((-90, 95)), None)
    assert course is not None and course.margin is None and not course.is_cut
    [look] = course.looks
    assert (look.pairs, look.x, look.is_labelled) == (16, 50, True) and look.high < look.mean < look.low


@given(
    st.lists(st.tuples(numbers, numbers).map(sorted), min_size=1, max_size=30),
    st.one_of(st.none(), st.just(0.0), st.floats(1e-3, 1e9)),
)
def test_a_course_shows_0_the_margin_and_the_last_interval(bounds: list[list[float]], margin: float | None) -> None:
    assume(all(value == 0 or abs(value) > 1e-3 for pair in bounds for value in pair))
    looks = looks_of(*((low, high) for low, high in bounds))
    course = course_of(looks, margin)
    assert course is not None
    last = course.looks[-1]
    assert all(0 < height < 100 for height in (course.zero, last.low, last.mean, last.high))
    assert last.is_labelled and sum(look.is_labelled for look in course.looks) <= 6
    assert (course.margin is None) == (not margin)
    if course.margin:
        assert 0 < course.margin.top <= course.zero <= course.margin.bottom < 100
    across = [place for look in course.looks for place in (look.left, look.x, look.right)]
    assert across == sorted(across) and 0 <= across[0] and across[-1] <= 100


def test_a_reader_sees_whether_the_last_interval_is_within_the_margin() -> None:
    for bounds, holds in (((-1, 1.5), True), ((-1, 2), True), ((-1, 2.5), False), ((-2.1, 1), False), ((3, 4), False)):
        course = course_of(looks_of((-40, 40), bounds), 2)
        assert course is not None and course.margin is not None and course.margin.holds is holds
        last = course.looks[-1]
        assert (course.margin.top <= last.high and last.low <= course.margin.bottom) is holds


def test_wide_first_intervals_do_not_flatten_the_last_one() -> None:
    course = course_of(looks_of((-90, 95), (-40, 45), (-1, 2)), 2)
    assert course is not None and course.is_cut
    last = course.looks[-1]
    assert last.low - last.high > 20, "percent of the height"


@pytest.mark.parametrize("count", [2, 15])
def test_each_look_has_a_place_of_its_own(count: int) -> None:
    course = course_of(looks_of(*[(-3, 5)] * count), 1)
    assert course is not None
    for look, following in zip(course.looks, course.looks[1:], strict=False):
        assert look.right < following.left
