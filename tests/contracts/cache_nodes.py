"""Cache nodes: processes of the real cache service, and a faulty node."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from datasets.scs_client.cache_nodes import CacheNode, StaticMembership
from datasets.scs_client.client import SimpleCache
from tests.conftest import Clock
from tests.ports import free_ports
from tests.system.platform_process import die_with
from tests.waiting import until

TOKEN = "a-token-for-tests"


class CacheServiceProcess:
    """A process of the real cache service, on a port and a folder of its own."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port, self.url = folder, port, f"http://127.0.0.1:{port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.folder.mkdir(exist_ok=True)
        authenticator = {"Kind": "static", "Tokens": [{"Token": TOKEN, "Namespace": "tests"}]}
        bucket = {"Name": "private", "Public": False, "BucketQuota": "64Mi", "AllowNamespaces": ["tests"]}
        document = {
            "Bucket": [bucket],
            "Listen": f"127.0.0.1:{self.port}",
            "Directory": str(self.folder / "objects"),
            "KeepFree": 0,
            "Reviewer": authenticator,
        }
        config = self.folder / "scs.json"
        config.write_text(json.dumps(document))
        parent = os.getpid()
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "datasets.scs", "--config", str(config)],
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=lambda: die_with(parent),
            )

    def wait(self) -> None:
        def failure() -> str:
            return f"the cache service does not start:\n{(self.folder / 'log').read_text()}"

        def listens() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, failure()
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                return False
            return True

        until(listens, message=failure)

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None


class FaultyNode:
    """A node that answers every request with the same bytes and disconnects, or never answers.

    ``pause``: seconds before each byte: of the body if the head is complete, otherwise of the head.
    """

    def __init__(self, answer: bytes | None, pause: float = 0.0) -> None:
        self._pause = pause
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._answer = answer
        self._open: list[socket.socket] = []
        self.connections = 0
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            if self._answer is None:
                self._open.append(connection)
                continue
            with connection:
                self._send(connection, self._answer)

    def _send(self, connection: socket.socket, answer: bytes) -> None:
        try:
            connection.recv(65536)
            if not self._pause:
                connection.sendall(answer)
                return
            head, end, body = answer.partition(b"\r\n\r\n")
            connection.sendall(head + end if end else b"")
            for byte in body if end else head:
                time.sleep(self._pause)
                connection.sendall(bytes([byte]))
        except OSError:
            return  # the client has disconnected

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for connection in self._open:
            connection.close()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[CacheServiceProcess]]:
    processes = [CacheServiceProcess(tmp_path / f"scs-{number}", port) for number, port in enumerate(free_ports(3))]
    try:
        for server in processes:
            server.start()
        for server in processes:
            server.wait()
        yield processes
    finally:
        for server in processes:
            server.kill()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CacheServiceProcess]:
    """A cache service that the tests of a module share; each test has its own objects."""
    process = CacheServiceProcess(tmp_path_factory.mktemp("scs"), free_ports(1)[0])
    try:
        process.start()
        process.wait()
        yield process
    finally:
        process.kill()


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    return path


@pytest.fixture
def open_cache(token: Path, clock: Clock) -> Iterator[Callable[..., SimpleCache]]:
    clients: list[SimpleCache] = []

    def make(*nodes: CacheNode | str, **options: object) -> SimpleCache:
        arguments: dict[str, object] = {"token": token, "clock": clock, "time_out": 30.0} | options
        members = StaticMembership(CacheNode(node) if isinstance(node, str) else node for node in nodes)
        clients.append(SimpleCache(members, **arguments))  # type: ignore[arg-type]
        return clients[-1]

    yield make
    for client in clients:
        client.close()
