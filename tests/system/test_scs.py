"""The cache service in processes of its own: its real client, sudden deaths, full disks, several at once."""

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
from datasets.scs.store import Store
from tests.ports import free_ports
from tests.system.platform_process import ROOT
from tests.waiting import until

TOKEN = "a-token"
PATIENCE = 60.0


class Service:
    """`python -m datasets.scs` on a port and in a folder of its own."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.folder, self.log = folder, folder / "scs.log"
        (self.port,) = free_ports(1)
        buckets = [
            {"Name": "public", "Public": True, "BucketQuota": "64Mi", "AllowNamespaces": ["team"]},
            {"Name": "private", "BucketQuota": "64Mi", "AllowNamespaces": ["team"]},
        ]
        reviewer = {"Kind": "static", "Tokens": [{"Token": TOKEN, "Namespace": "team"}]}
        document = {"Bucket": buckets, "Reviewer": reviewer, "Directory": str(folder / "scs")} | more
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

    def stop(self, how: int = signal.SIGTERM) -> int:
        """End it; return its exit status. Harmless twice."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(PATIENCE)

    def children(self) -> list[int]:
        assert self.process is not None
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(word) for word in found.split()]

    def line(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def ask(
        self, method: str, target: str, body: bytes | None = None, line: http.client.HTTPConnection | None = None
    ) -> tuple[int, bytes]:
        """Send one request; return status and body."""
        used = line or self.line()
        try:
            used.request(method, target, body, {"Authorization": f"Bearer {TOKEN}"})
            with used.getresponse() as answer:
                return answer.status, answer.read()
        finally:
            if line is None:
                used.close()

    def store(self) -> Store:
        """Open its folder, as the next to start does; it must have ended."""
        return Store(load(self.config))


Start = Callable[..., Service]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Start]:
    """Start services that end with the test."""
    made: list[Service] = []

    def start(folder: Path = tmp_path, **more: Any) -> Service:
        made.append(Service(folder, **more))
        return made[-1].start()

    yield start
    for service in made:
        service.stop()


def content(key: str, size: int) -> bytes:
    """Return what an object of this key has to be."""
    return (hashlib.sha256(key.encode()).digest() * (size // 32 + 1))[:size]


# -- the real client


def test_pfio_reads_through_it(started: Start, tmp_path: Path) -> None:
    import pfio.v2

    service = started()
    token = tmp_path / "token"
    token.write_text(TOKEN)
    files = tmp_path / "files"
    files.mkdir()
    names = {"plain.bin": content("plain", 100_000), "a%2eb": b"escaped", "a.b": b"plain", "x;y=1&z+": b"odd"}
    for name, held in names.items():
        (files / name).write_bytes(held)
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("inner/member.bin", content("member", 50_000))
    for bucket in ("public", "private"):
        prefix = f"http://127.0.0.1:{service.port}/v1/objects/{bucket}"
        before = hits(service, bucket)
        for turn in (1, 2):
            with pfio.v2.HTTPCachedFS(prefix, pfio.v2.Local(str(files)), bearer_token_path=str(token)) as local:
                for name, held in names.items():
                    with local.open(name, "rb") as file:
                        assert file.read() == held, (turn, name)
            with pfio.v2.Local(str(tmp_path)) as local, local.open_zip("all.zip") as inside:
                with pfio.v2.HTTPCachedFS(prefix, inside, bearer_token_path=str(token)) as cached:
                    with cached.open("inner/member.bin", "rb") as file:
                        assert file.read() == content("member", 50_000)
            if turn == 1:
                assert hits(service, bucket) == before, "all were misses, and were put"
        assert hits(service, bucket) == before + len(names) + 1, "all were hits"


def test_pfio_opens_an_address_with_http_cache(started: Start, tmp_path: Path) -> None:
    import pfio.v2

    service = started()
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
    """Return how many hits a bucket has had."""
    page = service.ask("GET", "/metrics")[1].decode()
    found = [line.split()[1] for line in page.splitlines() if line.startswith(f'scs_hits_total{{bucket="{bucket}"}}')]
    return int(float(found[0])) if found else 0


# -- deaths


class Load:
    """Clients that put and get for as long as the block lasts, and check every byte that they get."""

    def __init__(self, service: Service, clients: int = 6) -> None:
        self.service, self.wrong, self.stored, self.read = service, [], set[str](), 0
        self.full = 0
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(number,)) for number in range(clients)]

    wrong: list[str]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE)

    def _work(self, number: int) -> None:
        chance = random.Random(number)
        line = self.service.line()
        while not self._over.is_set():
            key = f"k{chance.randrange(60)}"
            size = chance.choice((0, 100, 5_000, 70_000, 400_000))
            try:
                if chance.random() < 0.5:
                    status, _ = self.service.ask("PUT", f"/v1/objects/private/{key}-{size}", content(key, size), line)
                    if status == 201:
                        self.stored.add(f"{key}-{size}")
                    elif status == 507:
                        self.full += 1
                    else:
                        self.wrong.append(f"PUT {key}-{size}: {status}")
                else:
                    status, body = self.service.ask("GET", f"/v1/objects/private/{key}-{size}", None, line)
                    if status == 200 and body != content(key, size):
                        self.wrong.append(f"GET {key}-{size}: {len(body)} other bytes")
                    elif status not in (200, 404):
                        self.wrong.append(f"GET {key}-{size}: {status}")
                    self.read += status == 200
            except (OSError, http.client.HTTPException):
                line.close()  # it was killed; begin again as soon as somebody listens
                self._over.wait(0.05)
        line.close()


def consistent(store: Store) -> None:
    """Assert that rows, files and accounts agree, and that every content is what it was."""
    rows = store.index.rows_after(b"", 1_000_000)
    assert {row.file for row in rows} == {file for file, _ in store.files()}
    held = store.index.accounts()
    assert sum(account.bytes for account in held.values()) == sum(row.size for row in rows)
    assert sum(account.objects for account in held.values()) == len(rows)
    assert list((store.folder / "temp").iterdir()) == []
    assert all(store.verify(threading.Event()))


def test_killed_under_load_it_comes_back_with_all_it_said_it_had(started: Start) -> None:
    service = started()
    with Load(service) as load_:
        for _ in range(3):
            enough = load_.read + 50
            until(lambda enough=enough: load_.read > enough)
            service.stop(signal.SIGKILL)
            service.start()
        until(lambda enough=load_.read + 50: load_.read > enough)
    assert not load_.wrong
    service.stop(signal.SIGKILL)
    store = service.store()
    consistent(store)
    store.close()
    service.start()
    for key in sorted(load_.stored):
        name, _, size = key.partition("-")
        assert service.ask("GET", f"/v1/objects/private/{key}") == (200, content(name, int(size)))


def test_two_processes_share_a_folder_and_one_may_die(started: Start) -> None:
    service = started(Processes=2)
    first = service.children()
    assert len(first) == 2
    with Load(service) as load_:
        until(lambda: load_.read > 100)
        os.kill(first[0], signal.SIGKILL)
        until(lambda: len(now := service.children()) == 2 and first[0] not in now)
        until(lambda enough=load_.read + 100: load_.read > enough)
    assert not load_.wrong
    for key in sorted(load_.stored):
        name, _, size = key.partition("-")
        for _ in range(2):  # on connections of their own, so perhaps from each
            assert service.ask("GET", f"/v1/objects/private/{key}") == (200, content(name, int(size)))
    service.stop(signal.SIGKILL)
    until(lambda: unheld(service.folder / "scs"))
    store = service.store()
    consistent(store)
    store.close()


def test_it_ends_when_asked_and_reports_damage_when_asked(started: Start) -> None:
    service = started(ScrubRate=0)  # which might find it first
    assert service.ask("PUT", "/v1/objects/private/k", b"x" * 100)[0] == 201
    (path,) = (path for path in (service.folder / "scs").glob("??/*"))
    path.write_bytes(b"y" * 100)
    command = [sys.executable, "-m", "datasets.scs", "--config", str(service.config), "--verify"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert (found.returncode, found.stdout) == (1, "1 objects, 1 damaged and dropped\n")
    assert service.ask("GET", "/v1/objects/private/k")[0] == 404, "beside the one that serves"
    assert service.stop() == 0


def test_a_wrong_configuration_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "scs.json").write_text('{"Buckets": []}')
    command = [sys.executable, "-m", "datasets.scs", "--config", str(tmp_path / "scs.json")]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert found.returncode == 2 and "unknown key 'Buckets'" in found.stderr


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    told = {"Bucket": [{"Name": "b", "BucketQuota": "1Gi"}], "Directory": str(tmp_path)}
    (tmp_path / "scs.json").write_text(json.dumps(told))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        command = [sys.executable, "-m", "datasets.scs", "--config", str(tmp_path / "scs.json"), "--port", port]
        found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert found.returncode == 2 and f"127.0.0.1:{port}" in found.stderr


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


def test_a_full_disk_refuses_and_still_serves(started: Start, small_disk: Path) -> None:
    buckets = [{"Name": "private", "BucketQuota": "1Gi", "AllowNamespaces": ["team"], "Eviction": "nr"}]
    service = started(Directory=str(small_disk / "scs"), Bucket=buckets, KeepFree="0")
    with Load(service) as load_:
        until(lambda: load_.full > 50)
        enough = load_.read + 100
        until(lambda: load_.read > enough)
    assert not load_.wrong and load_.stored
    left = 0
    for key in sorted(load_.stored):
        name, _, size = key.partition("-")
        status, body = service.ask("GET", f"/v1/objects/private/{key}")
        # its own old version is what a newer one may have taken the place of, in vain
        assert (status, body) == (200, content(name, int(size))) or status == 404
        left += status == 200
    assert left > 20
    assert service.stop() == 0
    store = service.store()
    consistent(store)
    store.close()


def test_a_disk_that_is_smaller_than_the_quota_makes_room(started: Start, small_disk: Path) -> None:
    buckets = [{"Name": "private", "BucketQuota": "1Gi", "AllowNamespaces": ["team"]}]
    service = started(Directory=str(small_disk / "scs"), Bucket=buckets, KeepFree="4Mi")
    for number in range(60):
        assert service.ask("PUT", f"/v1/objects/private/{number}", content("k", 1 << 20))[0] == 201
    assert service.ask("GET", "/v1/objects/private/59") == (200, content("k", 1 << 20))
    assert shutil.disk_usage(small_disk).free >= 3 << 20


def unheld(folder: Path) -> bool:
    """Tell whether no process has a cache's folder open."""
    with open(folder / "alive") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
