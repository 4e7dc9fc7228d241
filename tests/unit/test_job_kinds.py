"""Kinds of background job: their table, an operator's settings, and the decision on an existing record of a job."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.scheduling.job_kinds import KINDS, LOST, RETRY, JobKind, Verdict, configured, judge
from core.services.claims import TERM

STATUSES = ("created", "queued", "finished", "failed", "started", "deferred", "scheduled", "stopped", "canceled")


def test_every_kind_is_documented_and_has_its_own_queue() -> None:
    assert len({kind.queue for kind in KINDS}) == len(KINDS)
    names = {kind.name for kind in KINDS}
    documented = {
        line.split("`")[1] for line in Path("docs/jobs.md").read_text().splitlines() if re.match(r"\| `\w+` \|", line)
    }
    assert names == documented


def test_the_first_retry_comes_after_the_claim_of_a_killed_attempt_has_expired() -> None:
    for kind in KINDS:
        assert min(kind.retries) > TERM


@given(st.sampled_from(KINDS), st.from_regex(r"[0-9A-HJKMNP-TV-Z]{26}(:[0-9]{1,6})?", fullmatch=True))
def test_rq_accepts_the_id_of_every_job(kind: JobKind, id: str) -> None:
    from rq.job import validate_job_id

    validate_job_id(kind.job_id(id))


def test_an_operator_sets_concurrency_and_timeout_of_a_kind_without_changing_other_kinds() -> None:
    kinds = {kind.name: kind for kind in configured(["stage=7"], ["replay=60"])}
    assert (kinds["stage"].concurrency, kinds["replay"].timeout) == (7, 60)
    unchanged = [kind for kind in KINDS if kind.name not in {"stage", "replay"}]
    assert [kinds[kind.name] for kind in unchanged] == unchanged


@pytest.mark.parametrize(
    "entry", ["stage", "stage=", "stage=0", "stage=-1", "stage=two", "stages=2", "=2", "stage=1.5"]
)
def test_a_setting_that_names_no_kind_or_no_number_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="KIND=NUMBER"):
        configured([entry], [])
    with pytest.raises(ValueError, match="KIND=NUMBER"):
        configured([], [entry])


@given(st.sampled_from(STATUSES), st.floats(0, 1e9), st.integers(-5, 10**9), st.booleans())
def test_no_record_blocks_a_job_for_ever(status: str, age: float, failures: int, listed: bool) -> None:
    verdict = judge(status, age=age, failures=failures, listed=lambda: listed)
    if status in {"queued", "scheduled"} and listed:
        assert verdict is Verdict.LEAVE  # it waits for its turn
    elif age >= max(LOST, RETRY.longest):
        assert verdict is not Verdict.LEAVE


@given(st.floats(0, 1e9), st.integers(0, 10**9))
def test_a_failed_job_pauses_before_it_is_enqueued_again(age: float, failures: int) -> None:
    assert (judge("failed", age=age, failures=failures, listed=bool) is Verdict.LEAVE) == (
        age < RETRY.pause(failures + 1)
    )
    assert judge("started", age=min(age, LOST / 2), failures=failures, listed=bool) is Verdict.LEAVE


@given(st.integers(-3, 10**9))
def test_pauses_never_shrink_and_have_a_limit(failures: int) -> None:
    assert RETRY.pause(failures) <= RETRY.pause(failures + 1) <= RETRY.longest


@pytest.mark.parametrize("status", ["queued", "scheduled", "started"])
@pytest.mark.parametrize("listed", [True, False])
def test_a_record_of_the_future_is_believed_while_a_registry_lists_it(status: str, listed: bool) -> None:
    expected = Verdict.LEAVE if listed else Verdict.REPLACE
    assert judge(status, age=-3600.0, failures=0, listed=lambda: listed) is expected


def test_a_job_that_failed_in_the_future_is_enqueued_again() -> None:
    assert judge("failed", age=-3600.0, failures=9, listed=bool) is Verdict.REQUEUE
