"""Real S3 servers for tests: MinIO built from its pinned sources, and swift from the package index."""

import os
import re
import secrets
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import httpx
import pytest
from minio import MinioAdmin
from minio.credentials import StaticProvider

from tests.cached import tool
from tests.ports import free_ports
from tests.system.platform_process import die_with
from tests.waiting import until

ROOT = Path(__file__).parent.parent
#: Seconds until a started server must answer on a busy machine.
START_TIMEOUT = 60.0


class S3Server:
    """An S3 server in a folder, with its own keys, on a port that stays the same over restarts.

    ``health``: a path that is requested until it answers. ``healthy``: what the answer matches once the start is over.
    """

    def __init__(
        self,
        folder: Path,
        command: list[str],
        *,
        health: str,
        healthy: str = "",
        environ: Mapping[str, str] | None = None,
        access_key: str = "",
    ) -> None:
        self.folder = folder
        self.access_key = access_key or secrets.token_hex(8)
        self.secret_key = secrets.token_hex(16)
        self.port = free_ports(1)[0]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.region = "us-east-1"
        self.log = folder / "server.log"
        self._command = command
        self._environ = dict(environ or {})
        self._health, self._healthy = health, healthy
        self._process: subprocess.Popen[bytes] | None = None
        self._users: set[str] = set()
        folder.mkdir(parents=True, exist_ok=True)

    def url(self, bucket: str, prefix: str = "") -> str:
        """Return the URL that names a bucket of this server as an object store."""
        path = f"{bucket}/{prefix}" if prefix else bucket
        return f"s3://{path}?endpoint={self.endpoint}&region={self.region}"

    def start(self) -> "S3Server":
        """Start or restart the server and wait until it answers."""
        parent = os.getpid()
        names = (("MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD"), ("SWIFT_ACCESS_KEY", "SWIFT_SECRET_KEY"))
        keys = {name: key for pair in names for name, key in zip(pair, (self.access_key, self.secret_key), strict=True)}
        placeholders = {"address": f"127.0.0.1:{self.port}", "port": str(self.port), "folder": str(self.folder)}
        with open(self.log, "ab") as output:
            self._process = subprocess.Popen(
                [word.format(**placeholders) for word in self._command],
                env={**os.environ, **self._environ, **keys},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=lambda: die_with(parent),
            )
        process = self._process

        def answers() -> bool:
            assert process.poll() is None, f"{self._command[0]} has ended: {self.log.read_text()[-3000:]}"
            return self.answers()

        until(answers, START_TIMEOUT, lambda: f"{self._command[0]} does not start: {self.log.read_text()[-3000:]}")
        return self

    def answers(self) -> bool:
        """Return whether the server answers and has finished its start."""
        try:
            answer = httpx.get(self.endpoint + self._health, timeout=5.0, trust_env=False)
        except httpx.TransportError:
            return False
        return answer.status_code == 200 and re.search(self._healthy, answer.text) is not None

    def user(self, name: str, actions: Sequence[str]) -> tuple[str, str]:
        """Let a user of MinIO do no more than these actions (`s3:GetObject`), from now on; return its keys."""
        admin = MinioAdmin(
            endpoint=f"127.0.0.1:{self.port}",
            credentials=StaticProvider(self.access_key, self.secret_key),
            secure=False,
        )
        allowed = {"Effect": "Allow", "Action": list(actions), "Resource": ["arn:aws:s3:::*"]}
        admin.policy_add(name, policy={"Version": "2012-10-17", "Statement": [allowed]})
        keys = (name, self.secret_key)
        if name not in self._users:
            admin.user_add(*keys)
            admin.attach_policy([name], user=name)
            self._users.add(name)
        return keys

    def kill(self) -> None:
        """Kill the server, as a crash does; acknowledged objects must exist after a restart."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def freeze(self) -> None:
        """Stop the process: it accepts connections and sends no response."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        threads = Path(f"/proc/{self._process.pid}/task")
        # The signal returns before every thread has stopped.
        until(lambda: all(stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in threads.glob("*/stat")))

    def thaw(self) -> None:
        """Resume the process."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


def fresh_bucket() -> str:
    """Return a new bucket name."""
    return f"tests-{secrets.token_hex(8)}"


def minio_server(folder: Path) -> S3Server:
    """Return a MinIO server with its data in a folder; it is not started yet."""
    command = [tool("minio"), "server", "--quiet", "--address", "{address}", "{folder}/disk"]
    # CI mode permits data on the root disk. MinIO answers before its start is over: it creates the buckets that it has
    # listed, also one that a test has removed meanwhile, and its first load of users forgets those that came meanwhile.
    # So buckets are read before it serves, and the count of loads says when users are.
    environ = {"MINIO_BROWSER": "off", "MINIO_CI_CD": "1", "MINIO_UPDATE": "off"}
    environ |= {"MINIO_SYNC_BOOT": "on", "MINIO_PROMETHEUS_AUTH_TYPE": "public"}
    loaded = r"minio_cluster_iam_sync_successes [1-9]"
    return S3Server(folder, command, health="/minio/metrics/v3/cluster/iam", healthy=loaded, environ=environ)


def swift_server(folder: Path) -> S3Server:
    """Return an OpenStack Swift with the S3 API and its data in a folder; it is not started yet."""
    command = [*tool("swift").split(" "), "{folder}", "{port}"]
    return S3Server(folder, command, health="/healthcheck", access_key="tests:tester")


@pytest.fixture(scope="session")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A Swift that all tests of this process share, each with its own buckets; no test may stop it."""
    server = swift_server(tmp_path_factory.mktemp("swift")).start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A MinIO that all tests of this process share, each with its own buckets; no test may stop it."""
    server = minio_server(tmp_path_factory.mktemp("minio")).start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture
def own_minio(tmp_path: Path) -> Iterator[S3Server]:
    """A MinIO for a single test, which may kill and restart it."""
    server = minio_server(tmp_path / "minio").start()
    try:
        yield server
    finally:
        server.kill()
