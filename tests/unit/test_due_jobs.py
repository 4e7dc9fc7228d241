"""Due jobs: which job a simulation needs, and the pauses between attempts of jobs that no queue records."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.scheduling.due_jobs import REST, Attempts, due_job
from core.domain.scheduling.job_kinds import BY_NAME, RETRY
from core.domain.scheduling.preparation import Preparation
from core.domain.scheduling.states import ADMITTED, FINAL, State

STAGE = BY_NAME["stage"]


@pytest.mark.parametrize("launched", [True, False])
@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("state", sorted(ADMITTED))
def test_a_simulation_whose_end_is_decided_is_collected_and_a_cancelled_one_after_its_launch(
    state: State, launched: bool, finished: bool
) -> None:
    for outcome in FINAL:
        kind = due_job(state, outcome, None, launched=launched, finished=finished)
        assert kind == (None if state is State.CANCELLING and launched else "collect")


@pytest.mark.parametrize(
    ("preparation", "job"), [(None, "stage"), (Preparation.QUICK, "stage"), (Preparation.LONG, "prepare")]
)
def test_a_simulation_without_a_decided_end_is_staged_once_and_collected_when_every_task_has_a_result(
    preparation: Preparation | None, job: str
) -> None:
    kinds = {
        (state, finished): due_job(state, None, preparation, launched=True, finished=finished)
        for state in ADMITTED - {State.CANCELLING}
        for finished in (True, False)
    }
    assert {case: kind for case, kind in kinds.items() if kind is not None} == {
        (State.STAGING, True): job,
        (State.STAGING, False): job,
        (State.RUNNING, True): "collect",
    }


@given(
    ends=st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.floats(0, 2000)), max_size=60),
)
def test_a_failing_job_waits_longer_and_longer_but_not_for_ever_and_delays_no_other(
    ends: list[tuple[str, bool, float]],
) -> None:
    attempts, now, failures = Attempts(STAGE), 0.0, dict.fromkeys("abc", 0)
    for id, failed, pause in ends:
        now += pause
        attempts.ended(id, now, failed=failed)
        failures[id] = failures[id] + 1 if failed else 0
        wait = (
            REST if not failed else (*STAGE.retries, 60.0, 120.0, 240.0, 480.0, RETRY.longest)[min(failures[id], 8) - 1]
        )
        assert attempts.next([id], now + wait - 0.001) is None
        assert attempts.next([id, "other"], now + wait - 0.001) == "other"
        failures = {other: failures[other] if other == id else 0 for other in failures}  # no longer due: forgotten
        assert attempts.next([id], now + wait) == id


def test_a_periodic_job_rests_for_its_period() -> None:
    sweep = replace(BY_NAME["sweep"], period=60.0)
    attempts = Attempts(sweep)
    assert attempts.next(["expired"], 0.0) == "expired"
    attempts.ended("expired", 0.0, failed=False)
    assert attempts.next(["expired"], 59.9) is None and attempts.next(["expired"], 60.0) == "expired"
