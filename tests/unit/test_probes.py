"""Probes of roles against real sockets and files, and when a role counts as hung."""

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.probes import TRIES, Exchange, Health, LivenessFile, Probe, http_probe, redis_probe
from tests.ports import free_ports
from tests.waiting import until


def finished(exchange: Exchange) -> bool:
    """Continue an exchange to its end; return its result."""
    until(lambda: exchange.result() is not None)
    result = exchange.result()
    exchange.close()
    return bool(result)


@pytest.mark.parametrize(
    ("answer", "answered"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", True),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", False),
        (b"HTTP/1.1 2", False),
        (b"", False),
    ],
)
def test_an_http_role_answers_if_its_status_is_200(answer: bytes, answered: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        exchange = http_probe("0.0.0.0", server.getsockname()[1])()
        client, _ = server.accept()
        with client:
            until(lambda: exchange.result() is None)
            assert client.recv(1000).startswith(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
            client.sendall(answer)
        assert finished(exchange) is answered


def test_a_role_that_accepts_nothing_leaves_the_probe_open_and_a_refused_one_fails() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        exchange = http_probe("127.0.0.1", server.getsockname()[1])()
        assert all(exchange.result() is None for _ in range(100))
        exchange.close()
    assert not finished(http_probe("127.0.0.1", free_ports(1)[0])())


def test_a_redis_without_its_socket_does_not_answer(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    probe: Probe = redis_probe(path, lambda: "secret")
    assert not finished(probe())
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        exchange = probe()
        client, _ = server.accept()
        with client:
            until(lambda: exchange.result() is None)
            assert client.recv(1000) == b"*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n*1\r\n$4\r\nPING\r\n"
            client.sendall(b"+OK\r\n+PONG\r\n")
            assert finished(exchange)
        path.unlink()
        assert not finished(probe())


def test_a_liveness_file_answers_while_it_is_young_or_absent(tmp_path: Path) -> None:
    path = tmp_path / "role.beat"
    assert LivenessFile(path, 60.0).result()
    path.touch()
    os.utime(path, (1000.0, 1000.0))
    assert LivenessFile(path, 60.0, lambda: 1060.0).result()
    assert not LivenessFile(path, 60.0, lambda: 1061.0).result()


@given(probes=st.lists(st.tuples(st.booleans(), st.floats(0, 20)), max_size=40), patience=st.floats(0, 60))
def test_a_role_hangs_after_enough_failures_in_succession_and_enough_time(
    probes: list[tuple[bool, float]], patience: float
) -> None:
    health, now, failed_at = Health(), 0.0, list[float]()
    for answered, pause in probes:
        now += pause
        failed_at = [] if answered else [*failed_at, now]
        health = health.after(answered, now)
        assert health.is_hung(now, patience) == (len(failed_at) >= TRIES and now - failed_at[0] >= patience)
