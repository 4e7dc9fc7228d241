"""Contract of notifiers: the notifier within a process, and the notifier over a real Valkey."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from core.notifications import redis_notifier
from core.notifications.notifier import Notifier
from tests.local_notifier import LocalNotifier
from tests.valkey import Valkey
from tests.waiting import until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Valkey]:
    server = Valkey(tmp_path)
    yield server
    server.kill()


@pytest.fixture(params=["local", "redis"])
def notifier(request: pytest.FixtureRequest) -> Iterator[Notifier]:
    if request.param == "local":
        yield LocalNotifier()
        return
    notifier = redis_notifier.RedisNotifier(request.getfixturevalue("server").url)
    yield notifier
    while TIMERS:
        TIMERS.pop().join()  # a pending wake-up uses the connection
    notifier.close()


TIMERS: list[threading.Timer] = []


def later(work: Callable[[], object]) -> None:
    timer = threading.Timer(0.1, work)
    TIMERS.append(timer)
    timer.start()


def test_a_wake_up_ends_a_wait(notifier: Notifier) -> None:
    later(lambda: notifier.wake("dispatch"))
    start = time.monotonic()
    assert notifier.wait("dispatch", 120.0)
    assert time.monotonic() - start < 60.0


def test_a_wake_up_before_the_wait_is_not_lost(notifier: Notifier) -> None:
    notifier.wake("dispatch")
    assert notifier.wait("dispatch", 5.0)


def test_several_wake_ups_end_one_wait(notifier: Notifier) -> None:
    for _ in range(10):
        notifier.wake("dispatch")
    assert notifier.wait("dispatch", 5.0)
    assert not notifier.wait("dispatch", 0.05)


def test_a_role_is_not_woken_by_a_wake_up_of_another_role(notifier: Notifier) -> None:
    notifier.wake("jobs")
    assert not notifier.wait("dispatch", 0.05)


def test_published_ids_are_received_in_order(notifier: Notifier) -> None:
    assert notifier.published(0.05) == []  # subscribes
    notifier.publish("a")
    notifier.publish("b")
    ids: list[str] = []
    until(lambda: ids.extend(notifier.published(1.0)) or len(ids) >= 2)
    assert ids == ["a", "b"]


def test_without_published_ids_the_list_is_empty(notifier: Notifier) -> None:
    start = time.monotonic()
    assert notifier.published(0.1) == []
    assert time.monotonic() - start < 2.0


def test_a_working_notifier_is_alive(notifier: Notifier) -> None:
    assert notifier.alive()


def test_a_notifier_without_redis_raises_nothing_and_logs_one_warning(
    server: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    notifier = redis_notifier.RedisNotifier(server.url)
    assert notifier.alive()
    server.kill()
    with caplog.at_level(logging.WARNING):
        notifier.wake("dispatch")
        notifier.publish("a")
        notifier.enqueue("stage", "a")
        assert not notifier.wait("dispatch", 0.1)
        assert notifier.published(0.1) == []
        assert not notifier.alive()
    assert len([record for record in caplog.records if record.name == "core.notifications.redis_notifier"]) == 1
    server.start()
    notifier.wake("dispatch")
    assert notifier.wait("dispatch", 5.0)
    notifier.published(0.05)
    notifier.publish("b")
    assert notifier.published(5.0) == ["b"]
    notifier.close()


def test_valkey_listens_on_no_port_and_requires_the_password(server: Valkey) -> None:
    from redis.exceptions import AuthenticationError

    with pytest.raises(AuthenticationError):
        Redis(unix_socket_path=str(server.run / "valkey.sock")).ping()
    assert (server.run / "valkey.sock").stat().st_mode & 0o077 == 0
    assert Redis.from_url(server.url).config_get("port")["port"] == "0"
