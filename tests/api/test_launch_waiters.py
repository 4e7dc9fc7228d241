"""Runners that wait for their launch: woken by the notifier or by polling, limited in number."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any

import pytest
from sqlalchemy import text

from api import runner_api
from common.errors import TooManyWaits
from common.ids import hashed
from core.domain.scheduling.launches import Launch, WarmLaunch
from core.notifications.change_notifier import ChangeNotifier
from core.notifications.launch_waiters import LaunchWaiters
from core.notifications.local_notifier import LocalNotifier
from core.services.platform import Platform
from core.services.scheduling.leases import Leases
from tests.api.conftest import LOCAL, LeasingWorker
from tests.dispatching import last_submitted
from tests.waiting import until

ID, TOKEN = "warm0123456789abcdef", "minted before"
SendWait = Callable[..., tuple[int, dict[str, str], Any]]


@pytest.fixture
def send_wait(platform: Platform) -> SendWait:
    return client_of(platform.scheduling.leases)


def client_of(leases: Leases, **options: Any) -> SendWait:
    application = runner_api.create(leases, **options)

    def send_wait(path: str = f"/v1/launches/{ID}/wait", token: str = TOKEN) -> tuple[int, dict[str, str], Any]:
        head: list[Any] = []
        environ = {"PATH_INFO": path, "REQUEST_METHOD": "GET", "HTTP_AUTHORIZATION": f"Bearer {token}"}
        body = b"".join(application(environ, lambda status, headers: head.extend((status, dict(headers)))))
        return int(head[0].split()[0]), head[1], json.loads(body)

    return send_wait


@pytest.fixture
def queued(worker: LeasingWorker, submitted: str) -> str:
    """Id of a simulation that is about to be launched."""
    dispatch = worker.dispatch
    busy = last_submitted(dispatch)
    assert dispatch.admit(busy, LOCAL.name)
    return submitted


@pytest.fixture
def submitted(client: Any, model: str) -> str:
    document = {"dataset": "noop", "runtime": "python", "model": model, "scenarios": {"range": [0, 10]}}
    response = client.post("/v1/simulations", json=document)
    assert response.status_code == HTTPStatus.CREATED, response.json
    id: str = response.json["id"]
    return id


def launched(worker: LeasingWorker, offered: WarmLaunch | None = None) -> Launch:
    dispatch = worker.dispatch
    busy = last_submitted(dispatch)
    launch = dispatch.launch(busy, lambda _: offered)
    assert launch is not None
    return launch


@contextmanager
def waiting(leases: Leases, send_wait: SendWait, **options: Any) -> Iterator[list[Any]]:
    """Send a waiting request in a thread; the yielded list has its response after the block."""
    responses: list[Any] = []
    thread = threading.Thread(target=lambda: responses.append(send_wait(**options)), daemon=True)
    thread.start()
    until(lambda: leases.launch_waiters.waiting)
    yield responses
    thread.join(30.0)
    assert not thread.is_alive()


def test_a_waiting_runner_gets_the_description_of_its_launch(
    platform: Platform, send_wait: SendWait, worker: LeasingWorker, queued: str
) -> None:
    with waiting(platform.scheduling.leases, send_wait) as responses:
        launch = launched(worker, WarmLaunch(ID, hashed(TOKEN)))
    assert launch.id == ID and not launch.token, "the platform does not know the token of a warm launch"
    ((status, _, body),) = responses
    assert status == 200 and body == send_wait(f"/v1/launches/{ID}")[2]
    assert body["simulation"] == queued and body["model"]["format"] == "python"
    assert send_wait()[0] == 200, "a later request is answered immediately"


def test_a_launch_with_another_token_is_not_described(
    platform: Platform, send_wait: SendWait, worker: LeasingWorker, queued: str
) -> None:
    with waiting(platform.scheduling.leases, send_wait, token="guessed") as responses:
        launched(worker, WarmLaunch(ID, hashed(TOKEN)))
    assert responses[0][0] == 401 and send_wait(token="guessed")[0] == 401


def test_a_warm_launch_that_is_offered_twice_is_used_once(
    platform: Platform, send_wait: SendWait, worker: LeasingWorker, queued: str
) -> None:
    launched(worker, WarmLaunch(ID, hashed(TOKEN)))
    (warm_launch,) = worker.dispatch.snapshot().launches
    worker.dispatch.requeue(warm_launch, "requeued by the test", counted=False)
    busy = last_submitted(worker.dispatch)
    assert worker.dispatch.admit(busy, LOCAL.name)
    second = launched(worker, WarmLaunch(ID, hashed(TOKEN)))
    assert second.id != ID and second.token
    assert worker.platform.scheduling.leases.authenticate(second.id, second.token).simulation == queued
    assert send_wait()[0] == 410, "the first launch has ended"


def test_a_runner_that_waits_in_vain_repeats_its_request(platform: Platform) -> None:
    send_wait = client_of(platform.scheduling.leases, wait=0.05)
    assert send_wait() == (200, send_wait()[1], {"retry_after": 0.0})


def test_the_number_of_waiting_runners_is_limited_and_others_get_retry_after(platform: Platform) -> None:
    launch_waiters = LaunchWaiters(platform.database, ChangeNotifier(platform.database, platform.notifier), slots=1)
    leases = Leases(platform.database, platform.store, platform.notifier, launch_waiters=launch_waiters)
    send_wait = client_of(leases, wait=5.0)
    with waiting(leases, send_wait) as responses:
        status, headers, body = send_wait(f"/v1/launches/{ID}0/wait")
        assert status == 429 and headers["Retry-After"] == "2" and "Try again" in body["detail"]
    assert responses[0][2] == {"retry_after": 0.0}
    assert launch_waiters.wait(ID, 0.01) is False, "the slot is free again"


def test_without_a_notifier_waiting_runners_poll(platform: Platform, worker: LeasingWorker, queued: str) -> None:
    launch_waiters = LaunchWaiters(platform.database, ChangeNotifier(platform.database, LocalNotifier(), interval=0.05))
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(launch_waiters.wait(ID, 30.0)), daemon=True)
    thread.start()
    launched(worker, WarmLaunch(ID, hashed(TOKEN)))
    thread.join(30.0)
    assert results == [True]


def test_waiting_runners_share_one_query_and_none_without_a_wake(platform: Platform) -> None:
    reads: list[None] = []

    class Counted:
        def read(self) -> Any:
            reads.append(None)
            return platform.database.read()

    counted: Any = Counted()
    launch_waiters = LaunchWaiters(counted, ChangeNotifier(counted, platform.notifier, interval=60.0))
    threads = [threading.Thread(target=launch_waiters.wait, args=(f"w{n}", 1.0), daemon=True) for n in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        platform.notifier.publish("another topic")
    for thread in threads:
        thread.join(30.0)
    assert len(reads) == 2 * 8, (
        "one query before and one after a runner takes its slot, and none for wakes of other topics"
    )


def test_a_stream_misses_no_wake_up_because_runners_wait_in_the_same_process(platform: Platform, queued: str) -> None:
    assert platform.scheduling.leases.launch_waiters.wait(ID, 0.01) is False
    changes = platform.submissions.changes
    with changes.watching(queued):
        for _ in range(20):
            version = changes.version(queued)
            platform.notifier.publish(queued)
            assert changes.wait(queued, version, 5.0), "nothing was written, so polling cannot wake the stream"


def test_slots_are_released_however_a_wait_ends(platform: Platform) -> None:
    launch_waiters = LaunchWaiters(platform.database, ChangeNotifier(platform.database, platform.notifier), slots=1)
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


def test_warm_launches_have_the_same_rows_as_any_launch(platform: Platform, worker: LeasingWorker, queued: str) -> None:
    launched(worker, WarmLaunch(ID, hashed(TOKEN)))
    with platform.database.read() as c:
        row = c.execute(text("SELECT simulation_id, token_hash, state FROM launches")).one()
    assert tuple(row) == (queued, hashed(TOKEN), "live")


def test_a_process_that_shuts_down_ends_all_waits(send_wait: SendWait, platform: Platform) -> None:
    with waiting(platform.scheduling.leases, send_wait) as responses:
        platform.scheduling.leases.launch_waiters.close()
    assert responses[0][0] == 429 and send_wait()[0] == 429
