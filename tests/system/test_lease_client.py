"""The lease client against the real runner API: the platform's changes to a lease reach the worker's shared page."""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtimes.harness.gang.delivered_files import DeliveredFile
from runtimes.harness.gang.gang_runner import GangPage
from runtimes.harness.gang.task_storage import TaskFileClient
from runtimes.harness.runner.framed_socket import Batch
from runtimes.harness.runner.lease_client import HeldLease, LeaseClient
from runtimes.harness.runner.runner_api_client import Credentials
from runtimes.harness.runner.runner_api_messages import TaskFileHeader
from tests.api.answers import line
from tests.system.runner_api import LAUNCH, TOKEN, RunnerApi

TTL = 9.0


@pytest.fixture
def runner_api(tmp_path: Path) -> Iterator[RunnerApi]:
    """A simulation of 100 tasks for one worker, so that a first lease has 50."""
    runner_api = RunnerApi(tmp_path, total=100, play={}, workers=1, ttl=TTL)
    yield runner_api
    runner_api.close()


def credentials(runner_api: RunnerApi) -> Credentials:
    return Credentials(url=runner_api.url, launch=LAUNCH, token=TOKEN)


@pytest.fixture
def leases(runner_api: RunnerApi) -> LeaseClient:
    return LeaseClient(credentials(runner_api), threading.Event())


def results(since: int, to: int) -> Batch:
    """Return results as an evaluator sends them."""
    return Batch(since=since, to=to, lines=memoryview(b"".join(line(task) for task in range(since, to))))


def begin_lease(leases: LeaseClient, name: str) -> tuple[HeldLease, GangPage]:
    """Acquire a lease for a worker and start its first task."""
    page = GangPage()
    holder = leases.holder(name)
    lease = holder.next(page)
    assert lease is not None and holder.resume(lease) == range(lease.cursor, lease.stop)
    return lease, page


def test_a_worker_stops_before_the_tasks_that_an_idle_worker_has_taken_over(leases: LeaseClient) -> None:
    slow, page = begin_lease(leases, "slow")
    while slow.stop == page.stop == 50:
        quick, _ = begin_lease(leases, "quick")
        assert leases.renew() == TTL / 3
    assert slow.stop == page.stop == quick.cursor < 50
    leases.holders[0].report(slow, results(0, page.stop))
    assert leases.holders[0].resume(slow) is None, "all remaining tasks of the lease are reported"


def test_a_worker_stops_once_its_lease_is_lost(runner_api: RunnerApi, leases: LeaseClient) -> None:
    lease, page = begin_lease(leases, "0")
    runner_api.release()
    leases.renew()
    assert lease.lost and page.stop == 0
    assert not lease.continues_with(results(0, 1)) and leases.holders[0].drop() is None


def test_results_that_another_worker_has_reported_advance_a_speculative_lease(leases: LeaseClient) -> None:
    lease, page = begin_lease(leases, "0")
    speculative = HeldLease(lease.granted, GangPage(stop=50), lease.cursor, lease.stop)
    leases.holder("1").report(speculative, results(0, 10))
    leases.holders[0].report(lease, results(0, 5))
    assert (lease.cursor, page.stop) == (10, 0), (
        "the present task is already reported, so the worker stops and continues at task 10"
    )
    assert leases.holders[0].resume(lease) == range(10, 50)
    assert page.stop == 50


def test_the_response_to_the_last_report_of_a_lease_contains_the_next_lease(
    runner_api: RunnerApi, leases: LeaseClient
) -> None:
    lease, page = begin_lease(leases, "0")
    leases.holders[0].report(lease, results(0, 50), rate=1.0)
    following = leases.holders[0].next(page)
    assert following is not None and following.cursor == 50
    assert runner_api.requests == ["lease", "report"]


def test_a_runner_that_stops_releases_the_lease_in_use_and_the_lease_just_granted(
    runner_api: RunnerApi, leases: LeaseClient
) -> None:
    _, page = begin_lease(leases, "0")
    granted, _ = begin_lease(leases, "1")
    leases.holders[1].report(granted, results(granted.cursor, granted.stop))
    assert runner_api.count_leases() == 2, "the next lease of the second worker is granted, but not started"
    for holder in leases.holders:
        holder.stop()
    assert page.stop == 0
    leases.release(5.0)
    assert runner_api.count_leases() == 0
    assert leases.holders[0].next(page) is None


def test_a_file_of_a_lost_lease_is_refused_although_its_body_is_not_read(
    runner_api: RunnerApi, leases: LeaseClient, tmp_path: Path
) -> None:
    granted = begin_lease(leases, "0")[0].granted
    runner_api.release()
    (tmp_path / "field").write_bytes(bytes(5 << 20))
    file = DeliveredFile(0, "field", os.open(tmp_path / "field", os.O_RDONLY), 5 << 20)
    header = TaskFileHeader(stage=granted.stage, start=granted.start, fencing_token=granted.fencing_token, task=0)
    client = TaskFileClient(credentials(runner_api), threading.Event(), patience=2.0)
    with contextlib.closing(file):
        assert client.store("output", header, file) is None
