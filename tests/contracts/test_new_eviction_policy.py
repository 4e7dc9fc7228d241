"""A new eviction policy, added by the recipe of docs/cache.md to a copy of the sources: both caches use it."""

import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Protocol

import pytest

from datasets.objectstore.filesystem import FilesystemStore
from runtimes.images.image_names import SERVER
from tests.ports import free_ports
from tests.waiting import TIMEOUT, until

ROOT = Path(__file__).parents[2]
CAPACITY = 1000
SETTINGS = {"WINDTUNNEL_CACHE_CAPACITY": str(CAPACITY), "WINDTUNNEL_CACHE_EVICTION": "gds"}
#: Reads an object through the node cache of the settings: arguments are its key and its digest.
READ = """
import os, sys
from server.composition import node_cache, store_of
from core.settings import Settings

settings = Settings.from_env(os.environ)
node_cache(settings, store_of(settings), {}).object(sys.argv[1], sys.argv[2])
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the server's sources and follow the recipe: write the documented file, and nothing else."""
    folder = tmp_path_factory.mktemp("sources")
    for name in SERVER:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    recipe = (ROOT / "docs" / "cache.md").read_text().partition("### A new policy")[2]
    file = r"`(datasets/eviction/policies/\w+\.py)`:\n\n(?:<!-- [^\n]* -->\n)?"
    match = re.search(rf"{file}```python\n(.*?)```", recipe, re.DOTALL)
    assert match is not None
    path = folder / match[1]
    assert not path.exists() and path.stem == "gds"
    path.write_text(match[2])
    return folder


class Cache(Protocol):
    """A cache of CAPACITY bytes, used through its interface."""

    def add(self, name: str, size: int) -> None:
        """Read an object of that size, which puts it into the cache if it is absent."""

    def present(self) -> set[str]:
        """Return the names of the objects in the cache."""

    def kill(self) -> None:
        """End the cache's process by kill -9, and start another."""


class CacheService:
    """A cache service process of the copied sources."""

    def __init__(self, sources: Path, folder: Path) -> None:
        self._sources, self._folder = sources, folder
        (self._port,) = free_ports(1)
        bucket = {"Name": "b", "BucketQuota": CAPACITY, "AllowNamespaces": ["team"], "Eviction": "gds"}
        authenticator = {"Kind": "static", "Tokens": [{"Token": "secret", "Namespace": "team"}]}
        document = {"Bucket": [bucket], "Reviewer": authenticator, "Directory": str(folder / "scs")}
        (folder / "scs.json").write_text(json.dumps(document | {"Listen": f"127.0.0.1:{self._port}"}))
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "datasets.scs", "--config", str(self._folder / "scs.json")]
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(command, cwd=self._sources, stdout=log, stderr=log)

        def ready() -> bool:
            assert self._process.poll() is None, (self._folder / "log").read_text()
            try:
                return self._request("GET", "/readyz") == 200
            except OSError:
                return False

        until(ready)

    def _request(self, method: str, target: str, body: bytes | None = None) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT)
        try:
            connection.request(method, target, body, {"Authorization": "Bearer secret"})
            return connection.getresponse().status
        finally:
            connection.close()

    def add(self, name: str, size: int) -> None:
        """Put an object."""
        assert self._request("PUT", f"/v1/objects/b/{name}", b"x" * size) == 201

    def present(self) -> set[str]:
        """Read the object index: a request would count as a use."""
        with closing(sqlite3.connect(f"file:{self._folder}/scs/ledger.db?mode=ro", uri=True)) as connection:
            return {key.decode() for (key,) in connection.execute("select key from objects")}

    def kill(self) -> None:
        """Kill the process, and start another."""
        self.end()
        self._start()

    def end(self) -> None:
        """Kill the process."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(TIMEOUT)


class NodeCache:
    """The node cache of the copied sources; each use runs in a new process."""

    def __init__(self, sources: Path, folder: Path) -> None:
        self._sources, self._home = sources, folder
        self._store = FilesystemStore(folder / "objects")
        self._digests: dict[str, str] = {}

    def add(self, name: str, size: int) -> None:
        """Read an object through the cache."""
        content = name.encode() + b"x" * (size - len(name))
        self._digests[name] = hashlib.sha256(content).hexdigest()
        self._store.put(f"models/{name}", [content])
        subprocess.run(
            [sys.executable, "-c", READ, f"models/{name}", f"sha256:{self._digests[name]}"],
            cwd=self._sources,
            env=os.environ | SETTINGS | {"WINDTUNNEL_HOME": str(self._home)},
            check=True,
            timeout=TIMEOUT,
        )

    def present(self) -> set[str]:
        """Look into the cache's folder."""
        entries = set(os.listdir(self._home / "cache" / "objects"))
        return {name for name, digest in self._digests.items() if digest in entries}

    def kill(self) -> None:
        """Do nothing: the cache has no running process."""

    def end(self) -> None:
        """Do nothing."""


@pytest.fixture(params=[CacheService, NodeCache])
def cache(request: pytest.FixtureRequest, sources: Path, tmp_path: Path) -> Iterator[CacheService | NodeCache]:
    kind: Callable[[Path, Path], CacheService | NodeCache] = request.param
    cache = kind(sources, tmp_path)
    yield cache
    cache.end()


def test_a_policy_that_the_documented_recipe_adds_chooses_the_victims_of_both_caches(cache: Cache) -> None:
    for name, size in (("small", 100), ("large", 500), ("middle", 200)):
        cache.add(name, size)
    cache.add("second", 250)
    assert cache.present() == {"small", "middle", "second"}, (
        "neither the oldest nor the least recently used entry is evicted"
    )
    cache.kill()
    # The floor, 1/500, survives: without it `third` would have the least key, and before it `second`.
    cache.add("third", 300)
    cache.add("fourth", 200)
    assert cache.present() == {"small", "second", "third", "fourth"}, "1/200 < 1/500 + 1/300 < 1/500 + 1/250"


def test_an_unknown_policy_is_an_error_that_lists_the_added_policy(sources: Path, tmp_path: Path) -> None:
    bucket = {"Name": "b", "BucketQuota": CAPACITY, "Eviction": "gdsf"}
    (tmp_path / "scs.json").write_text(json.dumps({"Bucket": [bucket], "Directory": str(tmp_path / "scs")}))
    for command, settings, subject in (
        (["-m", "datasets.scs", "--config", str(tmp_path / "scs.json")], {}, "scs.json: Bucket: number 0: Eviction"),
        (["-m", "server", "run"], {"WINDTUNNEL_CACHE_EVICTION": "gdsf"}, "WINDTUNNEL_CACHE_EVICTION"),
    ):
        environ = os.environ | {"WINDTUNNEL_HOME": str(tmp_path / "home")} | settings
        completed = subprocess.run(
            [sys.executable, *command], cwd=sources, env=environ, capture_output=True, text=True, timeout=TIMEOUT
        )
        message = completed.stdout + completed.stderr
        assert completed.returncode == 2 and subject in message and "fifo, gds, lru, nr, random" in message, message
