"""Demand for job workers: when another worker of a kind is started."""

import pytest

from core.domain.scheduling.job_kinds import KINDS
from core.notifications.job_demand import STALE, JobDemand
from server.job_processes import OVERDUE, is_another_wanted


@pytest.mark.parametrize(
    ("waiting", "waiting_for", "youngest", "wanted"),
    [
        (0, 0.0, None, False),
        (1, 0.0, None, True),  # no worker runs
        (1, 0.0, 60.0, False),  # an idle worker takes it
        (1, OVERDUE, 60.0, True),  # none is idle
        (1, OVERDUE, 0.1, False),  # one has just been started for it
        (0, 0.0, 60.0, False),
        (None, 0.0, 60.0, True),  # Redis is away
    ],
)
def test_another_worker_is_started_for_jobs_that_no_running_worker_takes(
    waiting: int | None, waiting_for: float, youngest: float | None, wanted: bool
) -> None:
    assert is_another_wanted(waiting=waiting, waiting_for=waiting_for, youngest=youngest) is wanted


def test_only_more_waiting_jobs_or_a_lost_redis_are_news() -> None:
    demand = JobDemand(KINDS[:2], now=0.0)
    first, second = (kind.name for kind in KINDS[:2])
    assert not demand.record([0, 0], 1.0)
    assert demand.record([2, 0], 2.0)
    assert not demand.record([1, 0], 3.0)
    assert (demand.waiting(first, 3.0), demand.waiting(second, 3.0)) == (1, 0)
    assert demand.record(None, 4.0) and not demand.record(None, 5.0)
    assert demand.waiting(first, 5.0) is None
    assert demand.record([0, 0], 6.0)
    assert demand.waiting(first, 6.0) == 0


def test_jobs_wait_since_the_first_of_them_waited() -> None:
    demand = JobDemand(KINDS[:1], now=0.0)
    name = KINDS[0].name
    demand.record([1], 1.0)
    demand.record([3], 2.0)
    assert demand.seconds(name, 3.0) == 2.0
    demand.record([0], 4.0)
    demand.record([1], 5.0)
    assert demand.seconds(name, 5.5) == 0.5


def test_numbers_that_are_not_read_any_more_are_not_known() -> None:
    demand = JobDemand(KINDS[:1], now=0.0)
    assert demand.waiting(KINDS[0].name, STALE) == 0
    assert demand.waiting(KINDS[0].name, STALE + 0.1) is None
