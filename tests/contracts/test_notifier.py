"""The notifier's contract, kept by the one within a process and by the one over a real valkey."""

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
    made = Valkey(tmp_path)
    yield made
    made.kill()


@pytest.fixture(params=["local", "redis"])
def notifier(request: pytest.FixtureRequest) -> Iterator[Notifier]:
    if request.param == "local":
        yield LocalNotifier()
        return
    made = redis_notifier.RedisNotifier(request.getfixturevalue("server").url)
    yield made
    while TIMERS:
        TIMERS.pop().join()  # a ring that is still being answered wants its connection
    made.close()


TIMERS: list[threading.Timer] = []


def later(work: Callable[[], object]) -> None:
    timer = threading.Timer(0.1, work)
    TIMERS.append(timer)
    timer.start()


def test_a_ring_ends_a_wait(notifier: Notifier) -> None:
    later(lambda: notifier.wake("dispatch"))
    began = time.monotonic()
    assert notifier.wait("dispatch", 120.0)
    assert time.monotonic() - began < 60.0


def test_a_ring_before_the_wait_is_heard(notifier: Notifier) -> None:
    notifier.wake("dispatch")
    assert notifier.wait("dispatch", 5.0)


def test_many_rings_are_one(notifier: Notifier) -> None:
    for _ in range(10):
        notifier.wake("dispatch")
    assert notifier.wait("dispatch", 5.0)
    assert not notifier.wait("dispatch", 0.05)


def test_a_role_is_not_woken_by_another_s_notifier(notifier: Notifier) -> None:
    notifier.wake("jobs")
    assert not notifier.wait("dispatch", 0.05)


def test_announcements_come_together(notifier: Notifier) -> None:
    assert notifier.published(0.05) == []  # from here on it listens
    notifier.publish("a")
    notifier.publish("b")
    heard: list[str] = []
    until(lambda: heard.extend(notifier.published(1.0)) or len(heard) >= 2)
    assert heard == ["a", "b"]


def test_nothing_announced_is_an_empty_list(notifier: Notifier) -> None:
    began = time.monotonic()
    assert notifier.published(0.1) == []
    assert time.monotonic() - began < 2.0


def test_it_tells_whether_it_rings(notifier: Notifier) -> None:
    assert notifier.alive()


def test_a_notifier_whose_redis_is_away_harms_nobody(server: Valkey, caplog: pytest.LogCaptureFixture) -> None:
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


def test_valkey_listens_on_no_port_and_to_nobody_without_the_password(server: Valkey) -> None:
    from redis.exceptions import AuthenticationError

    with pytest.raises(AuthenticationError):
        Redis(unix_socket_path=str(server.run / "valkey.sock")).ping()
    assert (server.run / "valkey.sock").stat().st_mode & 0o077 == 0
    assert Redis.from_url(server.url).config_get("port")["port"] == "0"
