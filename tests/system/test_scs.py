"""The cache service as processes: its real client, kills, full disks, several processes on one folder."""

import fcntl
import hashlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from datasets.scs.config import load
from datasets.scs.scrub import scrub
from datasets.scs.store import Store
from tests.ports import free_ports
from tests.system.platform_process import ROOT
from tests.waiting import until

TOKEN = "a-token"
TIMEOUT = 60.0


class Service:
    """`python -m datasets.scs` with its own port and folder."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder, self.log = folder, folder / "scs.log"
        (self.port,) = free_ports(1)
        buckets = [
            {"Name": "public", "Public": True, "BucketQuota": "64Mi", "AllowNamespaces": ["team"]},
            {"Name": "private", "BucketQuota": "64Mi", "AllowNamespaces": ["team"]},
        ]
        authenticator = {"Kind": "static", "Tokens": [{"Token": TOKEN, "Namespace": "team"}]}
        document = {"Bucket": buckets, "Reviewer": authenticator, "Directory": str(folder / "scs")} | options
        self.config = folder / "scs.json"
        self.config.write_text(json.dumps(document | {"Listen": f"127.0.0.1:{self.port}"}))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Service":
        with open(self.log, "ab") as log:
            command = [sys.executable, "-m", "datasets.scs", "--config", str(self.config)]
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        process = self.process

        def ready() -> bool:
            assert process.poll() is None, self.log.read_text()
            try:
                return self.ask("GET", "/readyz")[0] == 200
            except OSError:
                return False

        until(ready, message=lambda: self.log.read_text())
        return self

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop the service and return its exit status; idempotent."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(TIMEOUT)

    def children(self) -> list[int]:
        assert self.process is not None
        pids = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in pids.split()]

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)

    def ask(
        self, method: str, target: str, body: bytes | None = None, connection: http.client.HTTPConnection | None = None
    ) -> tuple[int, bytes]:
        """Send one request; return status and body."""
        used_connection = connection or self.connect()
        try:
            used_connection.request(method, target, body, {"Authorization": f"Bearer {TOKEN}"})
            with used_connection.getresponse() as response:
                return response.status, response.read()
        finally:
            if connection is None:
                used_connection.close()

    def store(self) -> Store:
        """Open the store of the service, which must have ended."""
        return Store(load(self.config))


StartService = Callable[..., Service]


@pytest.fixture
def start_service(tmp_path: Path) -> Iterator[StartService]:
    """Function that starts services; they end with the test."""
    services: list[Service] = []

    def start(folder: Path = tmp_path, **options: Any) -> Service:
        services.append(Service(folder, **options))
        return services[-1].start()

    yield start
    for service in services:
        service.stop()


def content(key: str, size: int) -> bytes:
    """Return the expected content of an object with this key."""
    return (hashlib.sha256(key.encode()).digest() * (size // 32 + 1))[:size]


# -- the real client


def test_pfio_reads_through_the_cache_service(start_service: StartService, tmp_path: Path) -> None:
    import pfio.v2

    service = start_service()
    token = tmp_path / "token"
    token.write_text(TOKEN)
    files = tmp_path / "files"
    files.mkdir()
    names = {"plain.bin": content("plain", 100_000), "a%2eb": b"escaped", "a.b": b"plain", "x;y=1&z+": b"odd"}
    for name, data in names.items():
        (files / name).write_bytes(data)
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("inner/member.bin", content("member", 50_000))
    for bucket in ("public", "private"):
        prefix = f"http://127.0.0.1:{service.port}/v1/objects/{bucket}"
        before = hits(service, bucket)
        for attempt in (1, 2):
            with pfio.v2.HTTPCachedFS(prefix, pfio.v2.Local(str(files)), bearer_token_path=str(token)) as local:
                for name, data in names.items():
                    with local.open(name, "rb") as file:
                        assert file.read() == data, (attempt, name)
            with pfio.v2.Local(str(tmp_path)) as local, local.open_zip("all.zip") as zip_files:
                with pfio.v2.HTTPCachedFS(prefix, zip_files, bearer_token_path=str(token)) as cached:
                    with cached.open("inner/member.bin", "rb") as file:
                        assert file.read() == content("member", 50_000)
            if attempt == 1:
                assert hits(service, bucket) == before, "all reads were misses, and the objects were put"
        assert hits(service, bucket) == before + len(names) + 1, "all reads were hits"


def test_pfio_opens_an_address_with_http_cache(start_service: StartService, tmp_path: Path) -> None:
    import pfio.v2

    service = start_service()
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "file").write_bytes(b"from its origin")
    os.environ["PFIO_HTTP_BEARER_TOKEN_PATH"] = str(tmp_path / "token")
    try:
        prefix = f"http://127.0.0.1:{service.port}/v1/objects/private"
        for _ in range(2):
            with pfio.v2.from_url(str(tmp_path), http_cache=prefix) as fs, fs.open("file", "rb") as file:
                assert file.read() == b"from its origin"
    finally:
        del os.environ["PFIO_HTTP_BEARER_TOKEN_PATH"]
    assert hits(service, "private") == 1
    assert service.ask("GET", f"/v1/objects/private/file:/{tmp_path}/file")[1] == b"from its origin"


def hits(service: Service, bucket: str) -> int:
    """Return the number of hits of a bucket."""
    page = service.ask("GET", "/metrics")[1].decode()
    values = [line.split()[1] for line in page.splitlines() if line.startswith(f'scs_hits_total{{bucket="{bucket}"}}')]
    return int(float(values[0])) if values else 0


# -- kills


class BackgroundLoad:
    """Clients that put and get objects until the end of the block, and check every byte that they get."""

    def __init__(self, service: Service, clients: int = 6) -> None:
        self.service, self.errors, self.stored, self.read = service, [], set[str](), 0
        self.full = 0
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(number,)) for number in range(clients)]

    wrong: list[str]

    def __enter__(self) -> "BackgroundLoad":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(TIMEOUT)

    def _work(self, number: int) -> None:
        rng = random.Random(number)
        connection = self.service.connect()
        while not self._over.is_set():
            key = f"k{rng.randrange(60)}"
            size = rng.choice((0, 100, 5_000, 70_000, 400_000))
            try:
                if rng.random() < 0.5:
                    status, _ = self.service.ask(
                        "PUT", f"/v1/objects/private/{key}-{size}", content(key, size), connection
                    )
                    if status == 201:
                        self.stored.add(f"{key}-{size}")
                    elif status == 507:
                        self.full += 1
                    else:
                        self.errors.append(f"PUT {key}-{size}: {status}")
                else:
                    status, body = self.service.ask("GET", f"/v1/objects/private/{key}-{size}", None, connection)
                    if status == 200 and body != content(key, size):
                        self.errors.append(f"GET {key}-{size}: {len(body)} other bytes")
                    elif status not in (200, 404):
                        self.errors.append(f"GET {key}-{size}: {status}")
                    self.read += status == 200
            except (OSError, http.client.HTTPException):
                connection.close()  # the service was killed; reconnect when it listens again
                self._over.wait(0.05)
        connection.close()


def assert_consistent(store: Store) -> None:
    """Assert that rows, files and accounts agree, and that no content has changed."""
    rows = store.index.rows_after(b"", 1_000_000)
    assert {row.file for row in rows} == {file for file, _ in store.files()}
    accounts = store.index.accounts()
    assert sum(account.bytes for account in accounts.values()) == sum(row.size for row in rows)
    assert sum(account.objects for account in accounts.values()) == len(rows)
    assert list((store.folder / "temp").iterdir()) == []
    assert all(scrub(store, threading.Event()))


def test_a_service_killed_under_load_has_every_stored_object_after_a_restart(start_service: StartService) -> None:
    service = start_service()
    with BackgroundLoad(service) as background_load:
        for _ in range(3):
            goal = background_load.read + 50
            until(lambda goal=goal: background_load.read > goal)
            service.stop(signal.SIGKILL)
            service.start()
        until(lambda goal=background_load.read + 50: background_load.read > goal)
    assert not background_load.errors
    service.stop(signal.SIGKILL)
    store = service.store()
    assert_consistent(store)
    store.close()
    service.start()
    for key in sorted(background_load.stored):
        name, _, size = key.partition("-")
        assert service.ask("GET", f"/v1/objects/private/{key}") == (200, content(name, int(size)))


def test_two_processes_share_a_folder_and_survive_a_kill_of_either(start_service: StartService) -> None:
    service = start_service(Processes=2)
    first = service.children()
    assert len(first) == 2
    with BackgroundLoad(service) as background_load:
        until(lambda: background_load.read > 100)
        os.kill(first[0], signal.SIGKILL)
        until(lambda: len(now := service.children()) == 2 and first[0] not in now)
        until(lambda goal=background_load.read + 100: background_load.read > goal)
    assert not background_load.errors
    for key in sorted(background_load.stored):
        name, _, size = key.partition("-")
        for _ in range(2):  # on separate connections, so perhaps from both processes
            assert service.ask("GET", f"/v1/objects/private/{key}") == (200, content(name, int(size)))
    service.stop(signal.SIGKILL)
    until(lambda: is_unlocked(service.folder / "scs"))
    store = service.store()
    assert_consistent(store)
    store.close()


def test_verify_reports_damage_while_the_service_runs_and_sigterm_ends_the_service(start_service: StartService) -> None:
    service = start_service(ScrubRate=0)  # a scrub might detect the damage first
    assert service.ask("PUT", "/v1/objects/private/k", b"x" * 100)[0] == 201
    (path,) = (path for path in (service.folder / "scs").glob("??/*"))
    path.write_bytes(b"y" * 100)
    command = [sys.executable, "-m", "datasets.scs", "--config", str(service.config), "--verify"]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT)
    assert (completed.returncode, completed.stdout) == (1, "1 objects, 1 damaged and dropped\n")
    assert service.ask("GET", "/v1/objects/private/k")[0] == 404, "the check drops the object while the service runs"
    assert service.stop() == 0


def test_an_unknown_configuration_key_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "scs.json").write_text('{"Buckets": []}')
    command = [sys.executable, "-m", "datasets.scs", "--config", str(tmp_path / "scs.json")]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT)
    assert completed.returncode == 2 and "unknown key 'Buckets'" in completed.stderr


def test_a_port_in_use_is_named_in_the_error(tmp_path: Path) -> None:
    config = {"Bucket": [{"Name": "b", "BucketQuota": "1Gi"}], "Directory": str(tmp_path)}
    (tmp_path / "scs.json").write_text(json.dumps(config))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        command = [sys.executable, "-m", "datasets.scs", "--config", str(tmp_path / "scs.json"), "--port", port]
        completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT)
    assert completed.returncode == 2 and f"127.0.0.1:{port}" in completed.stderr


# -- full disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 20 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.fail("a small file system can only be mounted by root")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "scs-test", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_refuses_puts_and_still_serves_gets(start_service: StartService, small_disk: Path) -> None:
    buckets = [{"Name": "private", "BucketQuota": "1Gi", "AllowNamespaces": ["team"], "Eviction": "nr"}]
    service = start_service(Directory=str(small_disk / "scs"), Bucket=buckets, KeepFree="0")
    with BackgroundLoad(service) as background_load:
        until(lambda: background_load.full > 50)
        goal = background_load.read + 100
        until(lambda: background_load.read > goal)
    assert not background_load.errors and background_load.stored
    readable = 0
    for key in sorted(background_load.stored):
        name, _, size = key.partition("-")
        status, body = service.ask("GET", f"/v1/objects/private/{key}")
        # a put that failed for lack of room may have replaced the old version already
        assert (status, body) == (200, content(name, int(size))) or status == 404
        readable += status == 200
    assert readable > 20
    assert service.stop() == 0
    store = service.store()
    assert_consistent(store)
    store.close()


def test_objects_are_evicted_on_a_disk_smaller_than_the_quota(start_service: StartService, small_disk: Path) -> None:
    buckets = [{"Name": "private", "BucketQuota": "1Gi", "AllowNamespaces": ["team"]}]
    service = start_service(Directory=str(small_disk / "scs"), Bucket=buckets, KeepFree="4Mi")
    for number in range(60):
        assert service.ask("PUT", f"/v1/objects/private/{number}", content("k", 1 << 20))[0] == 201
    assert service.ask("GET", "/v1/objects/private/59") == (200, content("k", 1 << 20))
    assert shutil.disk_usage(small_disk).free >= 3 << 20


def is_unlocked(folder: Path) -> bool:
    """Return whether no process has the folder of a cache open."""
    with open(folder / "alive") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
