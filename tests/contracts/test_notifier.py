"""Contract of notifiers: the notifier within a process, and the notifier over a real Valkey."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from core.notifications import redis_notifier
from core.notifications.local_notifier import LocalNotifier
from core.notifications.notifier import Notifier
from tests.severed_connections import SeveredConnections
from tests.valkey import Valkey
from tests.waiting import TIMEOUT, until


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
        assert not notifier.enqueue("stage", "a")
        assert not notifier.wait("dispatch", 0.1)
        assert notifier.published(0.1) == []
        assert not notifier.alive()
    assert len([record for record in caplog.records if record.name == "core.notifications.redis_notifier"]) == 1
    server.start()
    until(notifier.alive)
    notifier.wake("dispatch")
    assert notifier.wait("dispatch", 5.0)
    notifier.published(0.05)
    notifier.publish("b")
    assert notifier.published(5.0) == ["b"]
    notifier.close()


@pytest.fixture
def proxy(server: Valkey) -> Iterator[SeveredConnections]:
    proxy = SeveredConnections(server.run / "valkey.sock")
    yield proxy
    proxy.close()


@pytest.fixture
def remote(server: Valkey, proxy: SeveredConnections) -> Iterator[redis_notifier.RedisNotifier]:
    """A notifier whose packets a test may drop; every kind of its connections is open."""
    password = (server.run / "valkey.password").read_text()
    notifier = redis_notifier.RedisNotifier(f"redis://:{password}@127.0.0.1:{proxy.port}")
    assert notifier.alive() and notifier.enqueue("stage", "a")
    assert not notifier.wait("dispatch", 0.01)
    assert notifier.published(0.01) == []
    yield notifier
    notifier.close()


@pytest.mark.parametrize(
    "use",
    [
        lambda notifier: notifier.wait("dispatch", 600.0),
        lambda notifier: notifier.published(600.0),
        lambda notifier: notifier.wake("dispatch"),
        lambda notifier: notifier.publish("a"),
        lambda notifier: notifier.enqueue("stage", "b"),
        lambda notifier: notifier.job_counts(),
        lambda notifier: notifier.alive(),
    ],
    ids=["wait", "published", "wake", "publish", "enqueue", "job_counts", "alive"],
)
def test_nothing_hangs_on_connections_whose_packets_are_dropped_and_all_recovers(
    remote: redis_notifier.RedisNotifier,
    proxy: SeveredConnections,
    use: Callable[[redis_notifier.RedisNotifier], object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    proxy.sever()
    user = threading.Thread(target=use, args=(remote,))
    user.start()
    until(lambda: "unavailable; consumers poll instead" in caplog.text)
    proxy.restore()
    until(remote.alive)
    user.join(60)  # `wait` and `published` return after the outage
    assert not user.is_alive()
    remote.wake("dispatch")
    assert remote.wait("dispatch", 30.0)
    remote.published(0.05)
    remote.publish("b")
    assert remote.published(30.0) == ["b"]


def test_during_an_outage_no_command_is_sent(
    remote: redis_notifier.RedisNotifier, proxy: SeveredConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.sever()
    remote.wake("dispatch")  # begins the outage
    sent: list[object] = []
    monkeypatch.setattr(Redis, "execute_command", lambda *command, **options: sent.append(command))
    monkeypatch.setattr(redis_notifier, "ping", lambda url: time.sleep(TIMEOUT))
    for _ in range(1000):
        remote.wake("dispatch")
        remote.publish("a")
        assert not remote.enqueue("stage", "a")
    assert not sent


def test_a_notifier_whose_server_has_lost_its_socket_is_not_alive(server: Valkey) -> None:
    notifier = redis_notifier.RedisNotifier(server.url)
    assert notifier.alive()
    (server.run / "valkey.sock").unlink()
    assert not notifier.alive()
    server.kill()
    server.start()
    until(notifier.alive)
    notifier.close()


def test_valkey_listens_on_no_port_and_requires_the_password(server: Valkey) -> None:
    from redis.exceptions import AuthenticationError

    with pytest.raises(AuthenticationError):
        Redis(unix_socket_path=str(server.run / "valkey.sock")).ping()
    assert (server.run / "valkey.sock").stat().st_mode & 0o077 == 0
    assert Redis.from_url(server.url).config_get("port")["port"] == "0"
