"""The lease client against the real runner API: what the platform decides about a lease reaches the worker's page."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtimes.harness.runner.framed_socket import Batch
from runtimes.harness.runner.lease_client import HeldLease, LeaseClient
from runtimes.harness.runner.runner_api_client import Credentials
from tests.api.answers import line
from tests.system.runner_api import LAUNCH, TOKEN, RunnerApi
from workers.gang_runner import GangPage

TTL = 9.0


@pytest.fixture
def runner_api(tmp_path: Path) -> Iterator[RunnerApi]:
    """A simulation of 100 tasks for one worker, so that a first lease has 50."""
    runner_api = RunnerApi(tmp_path, total=100, play={}, workers=1, ttl=TTL)
    yield runner_api
    runner_api.close()


@pytest.fixture
def leases(runner_api: RunnerApi) -> LeaseClient:
    return LeaseClient(Credentials(url=runner_api.url, launch=LAUNCH, token=TOKEN), threading.Event())


def results(since: int, to: int) -> Batch:
    """Return results as an evaluator sends them."""
    return Batch(since=since, to=to, lines=memoryview(b"".join(line(task) for task in range(since, to))))


def begun(leases: LeaseClient, name: str) -> tuple[HeldLease, GangPage]:
    """Have a worker take a lease and begin with it."""
    page = GangPage()
    holder = leases.holder(name)
    held = holder.next(page)
    assert held is not None and holder.resume(held) == range(held.cursor, held.stop)
    return held, page


def test_a_worker_stops_before_the_tasks_that_an_idle_worker_has_stolen(leases: LeaseClient) -> None:
    slow, page = begun(leases, "slow")
    while slow.stop == page.stop == 50:
        quick, _ = begun(leases, "quick")
        assert leases.renew() == TTL / 3
    assert slow.stop == page.stop == quick.cursor < 50
    leases.holders[0].report(slow, results(0, page.stop))
    assert leases.holders[0].resume(slow) is None, "all that was left to it is reported"


def test_a_worker_stops_once_its_lease_is_lost(runner_api: RunnerApi, leases: LeaseClient) -> None:
    held, page = begun(leases, "0")
    runner_api.release()
    leases.renew()
    assert held.lost and page.stop == 0
    assert not held.continues_with(results(0, 1)) and leases.holders[0].drop() is None


def test_a_report_of_another_worker_s_results_moves_a_speculative_lease_on(leases: LeaseClient) -> None:
    held, page = begun(leases, "0")
    twin = HeldLease(held.granted, GangPage(stop=50), held.cursor, held.stop)
    leases.holder("1").report(twin, results(0, 10))
    leases.holders[0].report(held, results(0, 5))
    assert (held.cursor, page.stop) == (10, 0), "what it runs now is reported already, so it stops and goes on at 10"
    assert leases.holders[0].resume(held) == range(10, 50)
    assert page.stop == 50


def test_the_next_lease_comes_with_the_answer_to_the_last_report(runner_api: RunnerApi, leases: LeaseClient) -> None:
    held, page = begun(leases, "0")
    leases.holders[0].report(held, results(0, 50), rate=1.0)
    following = leases.holders[0].next(page)
    assert following is not None and following.cursor == 50
    assert runner_api.asked == ["lease", "report"]


def test_a_runner_that_stops_releases_the_lease_at_work_and_the_one_just_granted(
    runner_api: RunnerApi, leases: LeaseClient
) -> None:
    _, page = begun(leases, "0")
    granted, _ = begun(leases, "1")
    leases.holders[1].report(granted, results(granted.cursor, granted.stop))
    assert runner_api.held() == 2, "the next lease of the second worker is granted, but not begun"
    for holder in leases.holders:
        holder.stop()
    assert page.stop == 0
    leases.release(5.0)
    assert runner_api.held() == 0
    assert leases.holders[0].next(page) is None
