"""Request rates: a burst and then so many a second; what a refusal promises is true; others are not slowed."""

import math

from hypothesis import given
from hypothesis import strategies as st

from api.identification import ANYBODY, IDENTITY, PROJECT
from api.request_rates import MOST_BUCKETS, RequestRates, payer_of
from common.errors import TooManyRequests
from common.rate_buckets import RateBuckets
from core.domain.access.identities import ProjectMembership, UserIdentity
from core.domain.access.roles import AccessRole

MEMBER = ProjectMembership(AccessRole.SUBMITTER)


def environ_of(user: str, *projects: str, path: str = "/v1/models", named: str | None = None) -> dict[str, object]:
    identity = UserIdentity(user, memberships=dict.fromkeys(projects, MEMBER))
    return {IDENTITY: identity, "PATH_INFO": path} | ({} if named is None else {PROJECT: named})


@given(
    st.floats(0.5, 500.0),
    st.integers(1, 50),
    st.lists(st.floats(0.0, 5.0), min_size=1, max_size=100),
)
def test_no_more_than_a_burst_and_the_rate_is_served_and_after_its_seconds_a_request_is(
    rate: float, burst: int, pauses: list[float]
) -> None:
    buckets, now, served = RateBuckets(rate, burst, MOST_BUCKETS), 1000.0, 0
    for pause in pauses:
        now += pause
        if seconds := buckets.take("red", now):
            now += math.ceil(seconds)
            assert not buckets.take("red", now), "what was said is true"
        served += 1
    assert served <= burst + rate * (now - 1000.0) + 1e-3


def test_a_refused_request_takes_nothing() -> None:
    buckets = RateBuckets(1.0, 2, MOST_BUCKETS)
    assert [buckets.take("red", 0.0) for _ in range(2)] == [0.0, 0.0]
    assert {buckets.take("red", 0.0) for _ in range(100)} == {1.0}
    assert buckets.take("blue", 0.0) == 0.0, "another has its own"
    assert buckets.take("red", 1.0) == 0.0


def test_buckets_are_bounded() -> None:
    buckets = RateBuckets(1.0, 2, MOST_BUCKETS)
    for number in range(MOST_BUCKETS + 100):
        buckets.take(f"project-{number}", 0.0)
    assert len(buckets) == MOST_BUCKETS


def test_a_request_counts_once_and_its_refusal_says_when() -> None:
    now = [0.0]
    rates = RequestRates(0.5, 1, clock=lambda: now[0])
    first = environ_of("ada", "red")
    assert rates.check(first) is rates.check(first) is None, "gateway and guard both ask"
    refusal = rates.check(environ_of("bob", "red"))
    assert isinstance(refusal, TooManyRequests) and "project red" in (refusal.detail or "")
    assert refusal.members["retry_after"] == 2.0
    now[0] = 2.0
    assert rates.check(environ_of("bob", "red")) is None


def test_nobody_charges_a_project_that_is_not_his() -> None:
    assert payer_of(environ_of("ada", "red")) == "red"
    assert payer_of(environ_of("ada", "red", "blue")) == "@ada"
    assert payer_of(environ_of("ada", "red", "blue", named="blue")) == "blue"
    assert payer_of(environ_of("ada", "red", "blue", path="/v1/projects/blue/usage")) == "blue"
    assert payer_of(environ_of("eve", "red", named="blue")) == "@eve"
    assert payer_of(environ_of("eve", "red", path="/v1/projects/blue/usage")) == "@eve"
    assert payer_of({IDENTITY: ANYBODY, "PATH_INFO": "/healthz"}) is None


def test_without_a_rate_nothing_is_refused() -> None:
    rates = RequestRates()
    assert all(rates.check(environ_of("ada", "red")) is None for _ in range(1000))
