"""Decisions about webhooks: pauses, rests, when one is disabled, who wants an event, and marks of quotas."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.access.quota_marks import FORGOTTEN_PART, REACHED_PART, quota_marks
from core.domain.access.quotas import Charge, Quota
from core.domain.webhooks.cloud_events import StoredEvent, cloud_event
from core.domain.webhooks.delivery_outcomes import (
    DISABLED_AFTER,
    DISABLED_FAILURES,
    JITTER,
    PAUSES,
    REST_POLICY,
    DeliveryState,
    ReceiverAnswer,
    ReceiverHealth,
    after_attempt,
    after_batch,
    asked_pause_of,
)
from core.domain.webhooks.event_types import MEANINGS, WANTED_TYPES, EventType, RaisedEvent

REFUSED = ReceiverAnswer(status=500, error="It answered 500.")
ACCEPTED = ReceiverAnswer(status=204)
MOMENT = datetime(2026, 12, 1, tzinfo=UTC)
ANSWERS = st.sampled_from([REFUSED, ACCEPTED, ReceiverAnswer(error="It refuses connections.")])


@given(st.integers(1, 200), st.floats(0, 1))
def test_each_pause_is_longer_than_the_one_before_whatever_the_chance_until_it_is_given_up(
    attempts: int, chance: float
) -> None:
    change = after_attempt(attempts, REFUSED, chance)
    if attempts > len(PAUSES):
        assert change.state is DeliveryState.FAILED
        return
    least = PAUSES[attempts - 1]
    assert change.state is DeliveryState.WAITING and least <= change.pause <= least * (1 + JITTER)
    following = after_attempt(attempts + 1, REFUSED, 0.0)
    assert following.state is DeliveryState.FAILED or following.pause >= least


@given(st.integers(1, len(PAUSES)), st.floats(0, 1e9), st.floats(0, 1))
def test_a_pause_that_a_receiver_asks_for_is_kept_and_never_shortens_ones_own(
    attempts: int, asked: float, chance: float
) -> None:
    seconds = asked_pause_of(429, str(int(asked)), MOMENT)
    pause = after_attempt(attempts, replace(REFUSED, status=429, asked_pause=seconds), chance).pause
    assert max(PAUSES[attempts - 1], min(int(asked), PAUSES[-1])) <= pause <= PAUSES[-1] * (1 + JITTER)
    assert after_batch(ReceiverHealth(), [ACCEPTED, replace(REFUSED, asked_pause=seconds)], 1e9).rest == seconds


@pytest.mark.parametrize(
    ("status", "text", "seconds"),
    [
        (429, "120", 120.0),
        (503, " 120 ", 120.0),
        (503, "Tue, 01 Dec 2026 00:02:00 GMT", 120.0),
        (503, "Tue, 01 Dec 2026 00:02:00 -0000", 120.0),
        (503, "Mon, 30 Nov 2026 00:00:00 GMT", 0.0),
        (429, "9" * 400, PAUSES[-1]),
        (503, "Fri, 01 Dec 2126 00:00:00 GMT", PAUSES[-1]),
        *((429, text, 0.0) for text in ("", "-5", "1.5", "soon", "\u0661", "Tue, 99 Dec 2026 00:02:00 GMT", None)),
        *((code, "120", 0.0) for code in (200, 301, 404, 410, 500)),
    ],
)
def test_a_retry_after_is_seconds_or_a_date_of_a_receiver_that_is_busy(
    status: int, text: str | None, seconds: float
) -> None:
    assert asked_pause_of(status, text, MOMENT) == seconds


@given(st.integers(1, 20), st.floats(0, 1))
def test_what_is_accepted_is_delivered_and_what_is_gone_is_given_up_at_once(attempts: int, chance: float) -> None:
    assert after_attempt(attempts, ACCEPTED, chance).state is DeliveryState.DELIVERED
    gone = ReceiverAnswer(status=410, error="It answered 410.")
    assert after_attempt(attempts, gone, chance).state is DeliveryState.FAILED


@given(st.lists(st.tuples(st.lists(ANSWERS, min_size=1, max_size=8), st.floats(0, 1e6)), max_size=60))
def test_a_webhook_rests_while_all_fails_and_is_disabled_only_after_days_without_one_success(
    batches: Sequence[tuple[list[ReceiverAnswer], float]],
) -> None:
    health, now, accepted_at, failures = ReceiverHealth(), 1e9, 1e9, 0
    for answers, pause in batches:
        now += pause
        change = after_batch(health, answers, now)
        if any(answer.error is None for answer in answers):
            accepted_at, failures = now, 0
            assert change.health == ReceiverHealth() and change.rest == 0 and change.disabled is None
        else:
            failures += 1
            assert change.health.failures == failures and 0 < change.rest <= REST_POLICY.longest
            if change.disabled is not None:
                assert now - accepted_at >= DISABLED_AFTER and failures >= DISABLED_FAILURES
        health = change.health


def test_a_start_of_failures_from_the_future_disables_nothing() -> None:
    health = ReceiverHealth(failures=1000, failing_since=2e9)
    assert after_batch(health, [REFUSED], 1e9).disabled is None
    assert after_batch(health, [REFUSED], 2e9 + DISABLED_AFTER).disabled is not None


WORDS = st.sampled_from(["a", "b", "c"])
LABELS = st.dictionaries(WORDS, WORDS)


@given(st.lists(st.sampled_from(WANTED_TYPES)), LABELS, st.none() | LABELS)
def test_an_event_is_wanted_by_its_types_and_by_all_labels(
    wanted: list[EventType], asked: dict[str, str], labels: dict[str, str] | None
) -> None:
    types = (EventType.SIMULATION_ENDED, EventType.SIMULATION_FAILED)
    event = RaisedEvent(types=types, subject="simulations/s1", data={}, labels=labels)
    found = event.type_for(wanted, asked)
    matches = labels is None or asked.items() <= labels.items()
    assert (found is not None) == (matches and bool(set(types) & set(wanted)))
    if found is not None and EventType.SIMULATION_ENDED in wanted:
        assert found is EventType.SIMULATION_ENDED


def test_every_type_has_a_meaning() -> None:
    assert set(MEANINGS) == set(EventType) and EventType.PING not in WANTED_TYPES


@pytest.mark.parametrize(
    ("url", "source"), [("", "/v1/projects/red"), ("https://sim.example/", "https://sim.example/v1/projects/red")]
)
def test_an_event_names_where_it_comes_from(url: str, source: str) -> None:
    event = StoredEvent(id="1", type="quota.reached", project="red", subject="projects/red/quotas", at=0.25, data={})
    body = cloud_event(event, url)
    assert f'"source": "{source}"' in body and '"time": "1970-01-01T00:00:00.250Z"' in body


@given(st.lists(st.integers(-40, 40), max_size=60), st.integers(1, 100))
def test_a_crossing_is_told_once_until_the_use_has_fallen_below_the_lower_mark(changes: list[int], limit: int) -> None:
    used, told = 0, False
    marks: frozenset[Quota] = frozenset()
    for number in changes:
        used = max(0, used + number)
        change = quota_marks(marks, {Quota.TASKS: limit}, {Quota.TASKS: used}, Charge(tasks=number))
        crossed = not told and number > 0 and used >= REACHED_PART * limit
        assert (Quota.TASKS in change.new) == crossed
        told = crossed or (told and used >= FORGOTTEN_PART * limit)
        assert (Quota.TASKS in change.reached) == told
        marks = change.reached


def test_what_has_no_limit_has_no_mark() -> None:
    marks = quota_marks({Quota.TASKS}, {}, {Quota.TASKS: 10**9}, Charge(tasks=1))
    assert not marks.reached and not marks.new
