"""Runners that wait for their launch: woken by the notifier or the clock, told what all are told, and bounded."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any

import pytest
from sqlalchemy import text

from api import runner_api as surface
from core.domain.ids import hashed
from core.domain.launches import Launch
from core.notifications.launch_waiters import LaunchWaiters
from core.services.platform import Platform
from core.services.scheduling.leases import Leases
from errors import TooManyWaits
from tests.api.conftest import HERE, LeasingWorker
from tests.local_notifier import LocalNotifier
from tests.waiting import until
from workers.executors.base import WarmLaunch

ID, TOKEN = "warm0123456789abcdef", "minted before"
Ask = Callable[..., tuple[int, dict[str, str], Any]]


@pytest.fixture
def ask(platform: Platform) -> Ask:
    return asking(platform.leases)


def asking(leases: Leases, **options: Any) -> Ask:
    application = surface.create(leases, **options)

    def asked(path: str = f"/v1/launches/{ID}/wait", token: str = TOKEN) -> tuple[int, dict[str, str], Any]:
        said: list[Any] = []
        environ = {"PATH_INFO": path, "REQUEST_METHOD": "GET", "HTTP_AUTHORIZATION": f"Bearer {token}"}
        body = b"".join(application(environ, lambda status, headers: said.extend((status, dict(headers)))))
        return int(said[0].split()[0]), said[1], json.loads(body)

    return asked


@pytest.fixture
def queued(driver: LeasingWorker, submitted: str) -> str:
    """A simulation that is about to be launched."""
    dispatch = driver.dispatch
    (busy,) = dispatch.snapshot().busy
    assert dispatch.admit(busy, HERE.name, ready=True)
    return submitted


@pytest.fixture
def submitted(client: Any, model: str) -> str:
    asked = {"dataset": "noop", "runtime": "python", "model": model, "scenarios": {"range": [0, 10]}}
    answer = client.post("/v1/simulations", json=asked)
    assert answer.status_code == HTTPStatus.CREATED, answer.json
    id: str = answer.json["id"]
    return id


def launched(driver: LeasingWorker, offered: WarmLaunch | None = None) -> Launch:
    dispatch = driver.dispatch
    (busy,) = dispatch.snapshot().busy
    launch = dispatch.launch(busy, lambda _: offered)
    assert launch is not None
    return launch


@contextmanager
def waiting(leases: Leases, ask: Ask, **asked: Any) -> Iterator[list[Any]]:
    """Wait in a thread; what it was told is in the list once it has ended."""
    told: list[Any] = []
    thread = threading.Thread(target=lambda: told.append(ask(**asked)), daemon=True)
    thread.start()
    until(lambda: leases.waiting)
    yield told
    thread.join(30.0)
    assert not thread.is_alive()


def test_a_runner_that_waits_is_told_of_its_launch_as_all_are(
    platform: Platform, ask: Ask, driver: LeasingWorker, queued: str
) -> None:
    with waiting(platform.leases, ask) as told:
        launch = launched(driver, WarmLaunch(ID, hashed(TOKEN)))
    assert launch.id == ID and not launch.token, "nobody but its runners knows that"
    ((status, _, said),) = told
    assert status == 200 and said == ask(f"/v1/launches/{ID}")[2]
    assert said["simulation"] == queued and said["model"]["format"] == "python"
    assert ask()[0] == 200, "who comes later is told at once"


def test_a_launch_with_another_token_is_not_told_of(
    platform: Platform, ask: Ask, driver: LeasingWorker, queued: str
) -> None:
    with waiting(platform.leases, ask, token="guessed") as told:
        launched(driver, WarmLaunch(ID, hashed(TOKEN)))
    assert told[0][0] == 401 and ask(token="guessed")[0] == 401


def test_what_is_offered_twice_is_refused_and_a_launch_of_its_own_made(
    platform: Platform, ask: Ask, driver: LeasingWorker, queued: str
) -> None:
    launched(driver, WarmLaunch(ID, hashed(TOKEN)))
    (lent,) = driver.dispatch.snapshot().launches
    driver.dispatch.requeue(lent, "it was not to be", counted=False)
    (busy,) = driver.dispatch.snapshot().busy
    assert driver.dispatch.admit(busy, HERE.name, ready=True)
    again = launched(driver, WarmLaunch(ID, hashed(TOKEN)))
    assert again.id != ID and again.token
    assert driver.platform.leases.authenticate(again.id, again.token).simulation == queued
    assert ask()[0] == 410, "the first one is over"


def test_whoever_waits_in_vain_is_told_to_ask_again(platform: Platform) -> None:
    ask = asking(platform.leases, wait=0.05)
    assert ask() == (200, ask()[1], {"retry_after": 0.0})


def test_only_so_many_wait_at_once_and_the_rest_are_told_when_to_come_back(platform: Platform) -> None:
    launch_waiters = LaunchWaiters(platform.database, platform.notifier, slots=1)
    leases = Leases(platform.database, platform.store, platform.notifier, launch_waiters=launch_waiters)
    ask = asking(leases, wait=5.0)
    with waiting(leases, ask) as told:
        status, headers, said = ask(f"/v1/launches/{ID}0/wait")
        assert status == 429 and headers["Retry-After"] == "2" and "Try again" in said["detail"]
    assert told[0][2] == {"retry_after": 0.0}
    assert launch_waiters.wait(ID, 0.01) is False, "its place is free again"


def test_without_a_notifier_the_clock_wakes(platform: Platform, driver: LeasingWorker, queued: str) -> None:
    launch_waiters = LaunchWaiters(platform.database, LocalNotifier(), interval=0.05)
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(launch_waiters.wait(ID, 30.0)), daemon=True)
    thread.start()
    launched(driver, WarmLaunch(ID, hashed(TOKEN)))
    thread.join(30.0)
    assert woken == [True]


def test_those_that_wait_share_one_look_and_cost_none_without_a_cause(platform: Platform) -> None:
    reads: list[None] = []

    class Counted:
        def read(self) -> Any:
            reads.append(None)
            return platform.database.read()

    counted: Any = Counted()
    launch_waiters = LaunchWaiters(counted, platform.notifier, interval=60.0)
    threads = [threading.Thread(target=launch_waiters.wait, args=(f"w{n}", 1.0), daemon=True) for n in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        platform.notifier.publish("somebody else")
    for thread in threads:
        thread.join(30.0)
    assert len(reads) == 2 * 8, "a look before and after each takes its place, and none for others' notifiers"


def test_slots_are_given_back_however_a_wait_ends(platform: Platform) -> None:
    launch_waiters = LaunchWaiters(platform.database, platform.notifier, slots=1)
    for _ in range(3):
        assert launch_waiters.wait(ID, 0.0) is False

    def wait_until_closed() -> None:
        with suppress(TooManyWaits):
            launch_waiters.wait("another", 30.0)

    thread = threading.Thread(target=wait_until_closed, daemon=True)
    thread.start()
    until(lambda: launch_waiters.waiting)
    with pytest.raises(TooManyWaits):
        launch_waiters.wait(ID, 0.0)
    launch_waiters.close()
    thread.join(30.0)
    assert launch_waiters.waiting == 0


def test_the_rows_of_what_waits_are_those_of_any_launch(platform: Platform, driver: LeasingWorker, queued: str) -> None:
    launched(driver, WarmLaunch(ID, hashed(TOKEN)))
    with platform.database.read() as c:
        row = c.execute(text("SELECT simulation_id, token_hash, state FROM launches")).one()
    assert tuple(row) == (queued, hashed(TOKEN), "live")


def test_a_process_that_ends_sends_everybody_away(ask: Ask, platform: Platform) -> None:
    with waiting(platform.leases, ask) as told:
        platform.leases.stop_waiting()
    assert told[0][0] == 429 and ask()[0] == 429
