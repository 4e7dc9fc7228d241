"""Used shares of limits: the fullest come first, and what is not used is not there."""

from hypothesis import given
from hypothesis import strategies as st

from core.domain.access.quota_shares import QuotaShare, fullest

SHARES = st.builds(
    QuotaShare,
    st.sampled_from(["red", "blue"]),
    st.sampled_from(["", "ada"]),
    st.sampled_from(["tasks", "resources.cpu"]),
    st.integers(0, 9),
    st.integers(0, 20) | st.floats(0, 20),
)


@given(st.lists(SHARES), st.floats(0, 3), st.integers(0, 5))
def test_the_fullest_come_first_and_as_many_as_are_asked_for(limits: list[QuotaShare], share: float, most: int) -> None:
    found = fullest(limits, share, most)
    full = [limit for limit in limits if limit.used and limit.share >= share]
    assert len(found) == min(most, len(full)) and all(limit in full for limit in found)
    assert [limit.share for limit in found] == sorted((limit.share for limit in full), reverse=True)[:most]


@given(st.lists(SHARES))
def test_the_order_does_not_depend_on_that_of_the_rows(limits: list[QuotaShare]) -> None:
    shares = {(limit.project, limit.user, limit.quota): limit for limit in limits}
    assert fullest(shares.values(), 0, 9) == fullest(reversed(shares.values()), 0, 9)


def test_what_is_used_of_nothing_is_over_every_share() -> None:
    assert fullest([QuotaShare("red", "", "tasks", 0, 1), QuotaShare("red", "", "tasks", 0, 0)], 99, 9) == [
        QuotaShare("red", "", "tasks", 0, 1)
    ]
