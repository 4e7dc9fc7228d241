"""Gateway behind granian: responses of any length, clients that do not read, bodies of any length."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.contracts.streaming_application import CHUNK, CHUNKS
from tests.ports import free_ports
from tests.system.platform_process import die_with
from tests.waiting import until

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[int, int]]:
    """Port of a server, and its process id."""
    [port] = free_ports(1)
    parent = os.getpid()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.contracts.streaming_application", str(port)],
        cwd=ROOT,
        preexec_fn=lambda: die_with(parent),
    )

    def answers() -> bool:
        assert process.poll() is None
        try:
            return httpx.post(f"http://127.0.0.1:{port}/echo", content=b"x", trust_env=False).content == b"x"
        except httpx.TransportError:
            return False

    try:
        until(answers)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(20)


def memory(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("path", ["/stream", "/announced"])
def test_a_long_response_arrives_whole(server: tuple[int, int], path: str) -> None:
    received = 0
    with httpx.stream("GET", f"http://127.0.0.1:{server[0]}{path}", trust_env=False, timeout=60) as response:
        for chunk in response.iter_bytes(CHUNK):
            assert chunk == bytes([received // CHUNK % 256]) * CHUNK
            received += len(chunk)
    assert received == CHUNK * CHUNKS


@pytest.mark.parametrize("path", ["/stream", "/announced"])
def test_a_client_that_does_not_read_is_disconnected_and_takes_no_memory(server: tuple[int, int], path: str) -> None:
    port, pid = server
    before = memory(pid)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert client.recv(1, socket.MSG_PEEK)
        assert established(port, client)
        until(lambda: not established(port, client))
        assert memory(pid) - before < CHUNK * CHUNKS / 4
    assert httpx.post(f"http://127.0.0.1:{port}/echo", content=b"x", trust_env=False).content == b"x"


def established(port: int, client: socket.socket) -> bool:
    """Return whether the server's end of a client's connection is established (proc(5), net/tcp: state 01)."""
    ends = f":{port:04X} 0100007F:{client.getsockname()[1]:04X} 01 "
    return ends in Path("/proc/net/tcp").read_text()


def test_a_response_that_fails_is_cut_off(server: tuple[int, int]) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"http://127.0.0.1:{server[0]}/broken", trust_env=False)


def test_an_exception_is_a_500(server: tuple[int, int]) -> None:
    response = httpx.get(f"http://127.0.0.1:{server[0]}/nothing", trust_env=False)
    assert response.status_code == 500 and response.json()["type"] == "/problems/internal"


@pytest.mark.parametrize("size", [0, 1, (64 << 10) - 1, 64 << 10, (64 << 10) + 1, 5_000_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_of_any_length_arrives_whole(server: tuple[int, int], size: int, chunked: bool) -> None:
    body = os.urandom(size)
    content = (body[start : start + 10_000] for start in range(0, size, 10_000)) if chunked else body
    response = httpx.post(f"http://127.0.0.1:{server[0]}/echo", content=content, trust_env=False, timeout=60)
    assert response.content == body
