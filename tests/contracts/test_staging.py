"""Staging: whole, verified and once a node, from each kind of store, whatever dies in the middle."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.errors import BadName, Corrupt, NodeFull, OriginFailed
from datasets.manifest import Entry, digest_of, encode
from datasets.packing import File, pack
from datasets.staging import NodeCache, Progress
from datasets.stores import ObjectStore, open_store
from datasets.stores.filesystem import FilesystemStore
from tests.stores import S3Server


def digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def some_files(count: int, seed: int = 1) -> dict[str, bytes]:
    """Files of all sizes from nothing to 300 KiB, in folders."""
    lot = random.Random(seed)
    return {
        f"d{number % 7}/{number:05d}.bin": lot.randbytes(lot.choice([0, 1, 500, 16_384, 300_000]))
        for number in range(count)
    }


def packed(store: ObjectStore, files: dict[str, bytes], target: int = 1 << 20) -> list[Entry]:
    """Put files into packs and return the manifest."""
    keys = (f"packs/d/{number}" for number in range(1000))
    found = pack((File(name, [files[name]]) for name in files), store.put, lambda: next(keys), target=target)
    return sorted(found, key=lambda entry: entry.path.encode())


class Counting:
    """A store that notes what is read of it, and how slowly."""

    def __init__(self, store: ObjectStore, pause: float = 0.0) -> None:
        self.store = store
        self.pause = pause
        self.reads: list[tuple[str, int, int | None]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self.store, name)

    def get(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        self.reads.append((key, start, length))
        time.sleep(self.pause)
        return self.store.get(key, start, length)


@pytest.fixture(params=["filesystem", "minio"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """Each kind of object store."""
    if request.param == "filesystem":
        return FilesystemStore(tmp_path / "objects")
    server: S3Server = request.getfixturevalue("minio")
    bucket = "staging-" + hashlib.sha256(str(tmp_path).encode()).hexdigest()[:16]
    return open_store(server.url(bucket), (server.access_key, server.secret_key))


@pytest.fixture
def local(tmp_path: Path) -> FilesystemStore:
    return FilesystemStore(tmp_path / "objects")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def staged(cache: NodeCache, entries: list[Entry], holder: str = "sim") -> Path:
    return cache.tree(digest_of(entries), lambda: iter(entries), holder=holder)


def test_a_version_becomes_a_read_only_folder_of_what_its_digests_name(store: ObjectStore, tmp_path: Path) -> None:
    files = some_files(60)
    entries = packed(store, files)
    cache = NodeCache(tmp_path / "cache", store)
    assert cache.ready(digest_of(entries)) is None
    said: list[Progress] = []
    tree = cache.tree(digest_of(entries), lambda: iter(entries), holder="sim", say=said.append)
    assert contents(tree) == files
    for path in (tree, *tree.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o555 if path.is_dir() else 0o444)
        assert path.is_dir() or path.stat().st_nlink == 1
    total = sum(map(len, files.values()))
    assert (said[-1].files, said[-1].bytes, said[-1].total_files, said[-1].total_bytes) == (60, total, 60, total)
    assert cache.ready(digest_of(entries)) == staged(cache, entries) == tree
    assert not list((tmp_path / "cache" / "partial").iterdir())


def test_a_model_is_verified_read_only_and_fetched_once(store: ObjectStore, tmp_path: Path) -> None:
    content = b"model" * 1000
    store.put("models/m", [content])
    cache = NodeCache(tmp_path / "cache", store)
    found = together(8, lambda: cache.object("models/m", digest(content)))
    assert len(found) == 8 and len(set(found)) == 1
    assert found[0].read_bytes() == content and found[0].stat().st_mode & 0o777 == 0o444


def test_bytes_that_are_not_what_their_digest_says_are_never_visible(store: ObjectStore, tmp_path: Path) -> None:
    store.put("models/m", [b"flipped"])
    cache = NodeCache(tmp_path / "cache", store)
    with pytest.raises(Corrupt, match="models/m"):
        cache.object("models/m", digest(b"as it was"))
    assert not list((tmp_path / "cache").rglob("*" + "0" * 10))
    assert not (tmp_path / "cache" / "objects").exists()
    assert not [path for path in (tmp_path / "cache" / "partial").iterdir() if path.suffix != ".failure"]


def together(count: int, ask: Callable[[], Path]) -> list[Path]:
    found: list[Path] = []
    askers = [threading.Thread(target=lambda: found.append(ask())) for _ in range(count)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    return found


def test_small_files_that_lie_together_are_fetched_together(local: FilesystemStore, tmp_path: Path) -> None:
    entries = packed(local, {f"{number:04d}": b"x" * 1000 for number in range(2000)})
    counting = Counting(local)
    staged(NodeCache(tmp_path / "cache", counting), entries)
    assert len(counting.reads) <= 3


def test_a_hundred_that_want_one_dataset_download_it_once(local: FilesystemStore, tmp_path: Path) -> None:
    entries = packed(local, {"a": b"a" * 100, "b": b"b" * 3000})
    counting = Counting(local, pause=0.3)
    caches = [NodeCache(tmp_path / "cache", counting) for _ in range(4)]
    asked = iter(range(100))

    def ask() -> Path:
        number = next(asked)
        return staged(caches[number % 4], entries, f"sim-{number}")

    found = together(100, ask)
    assert len(found) == 100 and len(set(found)) == 1
    assert len(counting.reads) == 1
