"""Staging: datasets are complete, verified and downloaded once per node from any store, even if a process is killed."""

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
from typing import BinaryIO

import pytest

from common.errors import BadName, Corrupt, NodeFull, OriginFailed
from datasets.nodecache.node_cache import DownloadProgress, NodeCache
from datasets.objectstore import ObjectStore, open_store
from datasets.objectstore.filesystem import FilesystemStore
from datasets.scs_client.client import SimpleCache
from datasets.versions.manifest import ManifestEntry, digest_of, encode
from datasets.versions.packs import SourceFile, pack
from tests.contracts import staging_process
from tests.contracts.cache_nodes import CacheServiceProcess, open_cache, server, servers, token
from tests.ports import free_ports
from tests.s3_servers import S3Server
from tests.waiting import TIMEOUT, until

__all__ = ["open_cache", "server", "servers", "token"]  # fixtures


def digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def some_files(count: int, seed: int = 1) -> dict[str, bytes]:
    """Return files of sizes from 0 to 300 KiB, in folders."""
    rng = random.Random(seed)
    return {
        f"d{number % 7}/{number:05d}.bin": rng.randbytes(rng.choice([0, 1, 500, 16_384, 300_000]))
        for number in range(count)
    }


def packed(store: ObjectStore, files: dict[str, bytes], target: int = 1 << 20) -> list[ManifestEntry]:
    """Write files into packs and return the manifest."""
    keys = (f"packs/d/{number}" for number in range(1000))
    entries = pack((SourceFile(name, [files[name]]) for name in files), store.put, lambda: next(keys), target=target)
    return sorted(entries, key=lambda entry: entry.path.encode())


class RecordingStore:
    """Store that records reads; before each read it calls a function and pauses."""

    def __init__(self, store: ObjectStore, pause: float = 0.0, on_read: Callable[[], object] = int) -> None:
        self.store = store
        self.pause = pause
        self.on_read = on_read
        self.reads: list[tuple[str, int, int | None]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self.store, name)

    def get(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        self.reads.append((key, start, length))
        self.on_read()
        time.sleep(self.pause)
        return self.store.get(key, start, length)


class DiskFillingStore(RecordingStore):
    """Store that fills the disk up to one megabyte before the first read, as another program could."""

    def __init__(self, store: ObjectStore, disk: Path) -> None:
        super().__init__(store)
        self.disk = disk

    def get(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        if not self.reads:
            disk = os.statvfs(self.disk)
            with open(self.disk / "other-program", "wb") as file:
                os.posix_fallocate(file.fileno(), 0, disk.f_bavail * disk.f_frsize - (1 << 20))
        return super().get(key, start, length)


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


def staged(cache: NodeCache, entries: list[ManifestEntry], holder: str = "sim") -> Path:
    return cache.tree(digest_of(entries), lambda: iter(entries), holder=holder)


def test_a_version_is_staged_as_a_read_only_folder_of_verified_files(store: ObjectStore, tmp_path: Path) -> None:
    files = some_files(60)
    entries = packed(store, files)
    cache = NodeCache(tmp_path / "cache", store)
    assert cache.ready(digest_of(entries)) is None
    reports: list[DownloadProgress] = []
    tree = cache.tree(digest_of(entries), lambda: iter(entries), holder="sim", on_progress=reports.append)
    assert contents(tree) == files
    for path in (tree, *tree.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o555 if path.is_dir() else 0o444)
        assert path.is_dir() or path.stat().st_nlink == 1
    total = sum(map(len, files.values()))
    last = reports[-1]
    assert (last.files, last.bytes, last.total_files, last.total_bytes) == (60, total, 60, total)
    assert cache.ready(digest_of(entries)) == staged(cache, entries) == tree
    assert not list((tmp_path / "cache" / "partial").iterdir())


def test_a_model_is_verified_read_only_and_fetched_once(store: ObjectStore, tmp_path: Path) -> None:
    content = b"model" * 1000
    store.put("models/m", [content])
    cache = NodeCache(tmp_path / "cache", store)
    paths = run_concurrently(8, lambda: cache.object("models/m", digest(content)))
    assert len(paths) == 8 and len(set(paths)) == 1
    assert paths[0].read_bytes() == content and paths[0].stat().st_mode & 0o777 == 0o444


def test_bytes_with_a_wrong_digest_are_never_visible(store: ObjectStore, tmp_path: Path) -> None:
    store.put("models/m", [b"flipped"])
    cache = NodeCache(tmp_path / "cache", store)
    with pytest.raises(Corrupt, match="models/m"):
        cache.object("models/m", digest(b"original"))
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert not [path for path in files if path.read_bytes() == b"flipped"]
    assert not (tmp_path / "cache" / "objects").exists()
    assert not [path for path in (tmp_path / "cache" / "partial").iterdir() if path.suffix != ".failure"]


def run_concurrently(count: int, call: Callable[[], Path]) -> list[Path]:
    paths: list[Path] = []
    threads = [threading.Thread(target=lambda: paths.append(call())) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return paths


def test_adjacent_small_files_are_fetched_in_one_request(local: FilesystemStore, tmp_path: Path) -> None:
    entries = packed(local, {f"{number:04d}": b"x" * 1000 for number in range(2000)})
    store = RecordingStore(local)
    staged(NodeCache(tmp_path / "cache", store), entries)
    assert len(store.reads) <= 3


def pin_count(folder: Path) -> int:
    """Return the number of pins in a cache."""
    return len(list((folder / "pins").glob("*/*")))


def test_a_hundred_requests_for_one_dataset_download_it_once(local: FilesystemStore, tmp_path: Path) -> None:
    entries = packed(local, {"a": b"a" * 100, "b": b"b" * 3000})
    store = RecordingStore(local, on_read=lambda: until(lambda: pin_count(tmp_path / "cache") == 100))
    caches = [NodeCache(tmp_path / "cache", store) for _ in range(4)]
    numbers = iter(range(100))

    def request() -> Path:
        number = next(numbers)
        return staged(caches[number % 4], entries, f"sim-{number}")

    paths = run_concurrently(100, request)
    assert len(paths) == 100 and len(set(paths)) == 1
    assert len(store.reads) == 1


def test_waiters_for_a_failed_download_fail_with_the_same_error(local: FilesystemStore, tmp_path: Path) -> None:
    entries = packed(local, {"a": b"a" * 100})
    local.delete(entries[0].source.removeprefix("store:"))
    store = RecordingStore(local, pause=0.5, on_read=lambda: wait_for_all_callers())
    cache = NodeCache(tmp_path / "cache", store)
    failures: list[BaseException] = []
    numbers = iter(range(10))

    def wait_for_all_callers() -> None:
        """Let the first download fail only when all callers wait for it."""
        if len(store.reads) == 1:
            until(lambda: pin_count(tmp_path / "cache") == 10)

    def request() -> Path:
        try:
            return staged(cache, entries, f"sim-{next(numbers)}")
        except OriginFailed as error:
            failures.append(error)
            return Path()

    run_concurrently(10, request)
    assert len(failures) == 10 and len(store.reads) < 5
    assert all(entries[0].source.removeprefix("store:") in str(failure) for failure in failures)


def test_waiters_for_a_download_receive_its_progress(local: FilesystemStore, tmp_path: Path) -> None:
    entries = packed(local, {f"{number}": b"a" * 1000 for number in range(16)}, target=1000)
    reports: list[list[DownloadProgress]] = [[], []]

    def both_report() -> bool:
        return all(any(0 < progress.files < 16 for progress in received) for received in reports)

    # The last files are read only when both threads have had a report.
    store = RecordingStore(local, on_read=lambda: len(store.reads) < 8 or until(both_report))
    cache = NodeCache(tmp_path / "cache", store)

    def stage(received: list[DownloadProgress]) -> None:
        cache.tree(digest_of(entries), lambda: iter(entries), holder="sim", on_progress=received.append)

    threads = [threading.Thread(target=stage, args=(received,)) for received in reports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(progress.total_files == 16 for received in reports for progress in received)


def test_a_manifest_with_a_wrong_digest_downloads_nothing(local: FilesystemStore, tmp_path: Path) -> None:
    entries = packed(local, {"a": b"1", "b": b"2"})
    cache = NodeCache(tmp_path / "cache", local)
    with pytest.raises(Corrupt, match="manifest"):
        cache.tree(digest_of(entries), lambda: iter(entries[:1]), holder="sim")
    assert cache.ready(digest_of(entries)) is None


@pytest.mark.parametrize(
    "names",
    [
        ["../out"],
        ["/etc/out"],
        ["a/../../out"],
        ["a//b"],
        ["./a"],
        [""],
        ["a\0b"],
        ["a\nb"],
        ["a\\b"],
        ["a", "a/b"],
        ["x" * 256],
        ["a/" * 600 + "b"],
    ],
    ids=ascii,
)
def test_a_file_name_that_leads_out_of_the_folder_is_refused(
    names: list[str], local: FilesystemStore, tmp_path: Path
) -> None:
    local.put("packs/x", [b"content"])
    entries = [ManifestEntry(name, 7, digest(b"content"), "store:packs/x") for name in names]
    before = sorted(path for path in tmp_path.rglob("*") if "cache" not in path.parts)
    with pytest.raises(BadName):
        staged(NodeCache(tmp_path / "cache", local), entries)
    assert sorted(path for path in tmp_path.rglob("*") if "cache" not in path.parts) == before
    assert not list((tmp_path / "cache").glob("trees/*"))


def test_files_with_overlaps_and_gaps_in_a_pack_are_extracted_correctly(local: FilesystemStore, tmp_path: Path) -> None:
    content = random.Random(5).randbytes(300_000)
    local.put("packs/x", [content])
    locations = {
        "a": (0, 1000),
        "b": (500, 2000),
        "c": (10_000, 0),
        "d": (10_000, 90_000),
        "e": (299_999, 1),
        "f": (0, 0),
    }
    entries = [
        ManifestEntry(
            path=name, size=size, digest=digest(content[offset : offset + size]), source="store:packs/x", offset=offset
        )
        for name, (offset, size) in locations.items()
    ]
    tree = staged(NodeCache(tmp_path / "cache", local), entries)
    assert contents(tree) == {name: content[offset : offset + size] for name, (offset, size) in locations.items()}


# -- pins and capacity


def version(store: ObjectStore, name: str, size: int) -> list[ManifestEntry]:
    """Store a file; return the manifest of a version with this file."""
    content = name.encode() * size
    store.put(f"packs/{name}", [content])
    return [ManifestEntry(name, len(content), digest(content), f"store:packs/{name}")]


def wait_for_clock_tick(folder: Path) -> None:
    """Wait until the clock of the file system, which orders the uses of entries, has advanced."""
    probe = folder / "probe"
    probe.touch()
    before = probe.stat().st_mtime_ns

    def advanced() -> bool:
        probe.touch()
        return probe.stat().st_mtime_ns > before

    until(advanced)


def test_unpinned_entries_are_evicted_least_recently_used_first(local: FilesystemStore, tmp_path: Path) -> None:
    cache = NodeCache(tmp_path / "cache", local, capacity=3000)
    old, pinned, fresh, new = (version(local, name, 1000) for name in "abcd")
    for entries, holder in ((old, "one"), (pinned, "two"), (fresh, "three")):
        staged(cache, entries, holder)
        wait_for_clock_tick(tmp_path)
    cache.release("one")
    cache.release("three")
    staged(cache, old, "again")
    cache.release("again")
    tree = staged(cache, new, "four")
    assert contents(tree) == {"d": b"d" * 1000}
    assert [cache.ready(digest_of(entries)) is not None for entries in (old, pinned, fresh, new)] == [
        True,
        True,
        False,
        True,
    ]


def test_pinned_entries_are_never_evicted_and_the_error_names_the_setting(
    local: FilesystemStore, tmp_path: Path
) -> None:
    cache = NodeCache(tmp_path / "cache", local, capacity=2500)
    first, second, third = (version(local, name, 1000) for name in "abc")
    staged(cache, first, "one")
    staged(cache, second, "two")
    with pytest.raises(NodeFull, match="WINDTUNNEL_CACHE_CAPACITY"):
        staged(cache, third, "three")
    with pytest.raises(NodeFull, match="WINDTUNNEL_CACHE_CAPACITY"):
        staged(cache, version(local, "d", 9000), "four")
    assert cache.ready(digest_of(first)) and cache.ready(digest_of(second))
    cache.release("one")
    assert contents(staged(cache, third, "three")) == {"c": b"c" * 1000}
    assert cache.ready(digest_of(first)) is None


def test_models_are_counted_and_evicted_too(local: FilesystemStore, tmp_path: Path) -> None:
    cache = NodeCache(tmp_path / "cache", local, capacity=2500)
    local.put("models/m", [b"m" * 1000])
    model = cache.object("models/m", digest(b"m" * 1000), holder="one")
    first, second = version(local, "a", 1000), version(local, "b", 1000)
    staged(cache, first, "one")
    with pytest.raises(NodeFull):
        staged(cache, second, "two")
    cache.release("one")
    cache.hold(digest_of(first), "three")
    staged(cache, second, "two")
    assert not model.exists() and cache.ready(digest_of(first)) is not None


def test_pins_of_dead_processes_are_removed_by_a_sweep(local: FilesystemStore, tmp_path: Path) -> None:
    cache = NodeCache(tmp_path / "cache", local, capacity=1500)
    first, second = version(local, "a", 1000), version(local, "b", 1000)
    staged(cache, first, "sim/1 of:us")
    calls: list[set[str]] = []

    def alive(holders: set[str]) -> set[str]:
        calls.append(holders)
        return holders - {"sim/1 of:us"}

    with pytest.raises(NodeFull):
        staged(cache, second, "living")
    NodeCache(tmp_path / "cache", local).sweep(alive)
    assert calls == [{"sim/1 of:us", "living"}]
    staged(cache, second, "living")
    assert cache.ready(digest_of(first)) is None


def test_concurrent_downloads_do_not_reserve_the_same_space(local: FilesystemStore, tmp_path: Path) -> None:
    refused = threading.Event()
    store = RecordingStore(local, on_read=lambda: refused.wait(TIMEOUT))
    first, second = version(local, "a", 1000), version(local, "b", 1000)
    cache = NodeCache(tmp_path / "cache", store, capacity=1500)
    download = threading.Thread(target=lambda: staged(cache, first, "one"))
    download.start()
    until(lambda: store.reads)
    with pytest.raises(NodeFull):
        staged(cache, second, "two")
    refused.set()
    download.join()
    assert cache.ready(digest_of(first)) is not None


def test_a_full_disk_is_a_clear_error_and_leaves_nothing_visible(local: FilesystemStore, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=30m", "tmpfs", disk], check=True)
    try:
        small, large = version(local, "a", 1000), version(local, "b", 30_000_000)
        cache = NodeCache(disk / "cache", local)
        staged(cache, small)
        with pytest.raises(NodeFull):
            staged(cache, large)
        fitting = version(local, "d", 8_000_000)
        with pytest.raises(NodeFull, match="disk is full"):
            staged(NodeCache(disk / "cache", DiskFillingStore(local, disk)), fitting)
        (disk / "other-program").unlink()
        assert cache.ready(digest_of(large)) is None and cache.ready(digest_of(fitting)) is None
        assert not list(disk.glob("cache/partial/*.tree"))
        assert contents(staged(cache, small)) == {"a": b"a" * 1000}
        cache.release("sim")
        staged(cache, version(local, "c", 1000))
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


# -- damage


def test_a_flipped_bit_is_detected_reported_and_repaired(store: ObjectStore, tmp_path: Path) -> None:
    files = some_files(30)
    entries = packed(store, files)
    cache = NodeCache(tmp_path / "cache", store)
    tree = staged(cache, entries)
    assert cache.verify(digest_of(entries)) == []
    damaged = next(entry.path for entry in entries if entry.size == 16_384)
    path = tree / damaged
    path.chmod(0o644)
    content = bytearray(path.read_bytes())
    content[77] ^= 1
    path.write_bytes(content)
    missing = next(entry.path for entry in entries if entry.size == 500)
    (tree / missing).unlink()
    assert sorted(cache.verify(digest_of(entries))) == sorted([damaged, missing])
    assert contents(tree) == files and path.stat().st_mode & 0o777 == 0o444
    assert cache.ready(digest_of(entries)) == tree


def test_damage_that_cannot_be_repaired_is_not_used(local: FilesystemStore, tmp_path: Path) -> None:
    entries = version(local, "a", 1000)
    cache = NodeCache(tmp_path / "cache", local)
    tree = staged(cache, entries)
    local.delete("packs/a")
    (tree / "a").chmod(0o644)
    (tree / "a").write_bytes(b"b" * 1000)
    with pytest.raises(OriginFailed):
        cache.verify(digest_of(entries))
    assert cache.ready(digest_of(entries)) is None
    local.put("packs/a", [b"a" * 1000])
    assert contents(staged(cache, entries)) == {"a": b"a" * 1000}


def test_a_damaged_model_is_fetched_again(local: FilesystemStore, tmp_path: Path) -> None:
    local.put("models/m", [b"m" * 1000])
    cache = NodeCache(tmp_path / "cache", local)
    model = cache.object("models/m", digest(b"m" * 1000))
    model.chmod(0o644)
    model.write_bytes(b"n" * 1000)
    assert cache.verify(digest(b"m" * 1000)) == [digest(b"m" * 1000)]
    assert cache.object("models/m", digest(b"m" * 1000)).read_bytes() == b"m" * 1000


def test_links_of_a_derived_folder_are_kept_and_are_no_damage(local: FilesystemStore, tmp_path: Path) -> None:
    """Debian's packages have links to what a maintainer script would have made, and to files of other packages."""

    def unpack(folder: Path, _: object) -> None:
        (folder / "etc").mkdir()
        (folder / "etc/real").write_bytes(b"1")
        for name, target in {"nowhere": "made/by/postinst", "real.link": "real", "up": ".."}.items():
            (folder / "etc" / name).symlink_to(target)

    cache, name = NodeCache(tmp_path / "node", local), digest(b"a lock")
    folder = cache.derived(name, unpack, size=0, holder="a")
    assert sorted(os.listdir(folder / "etc")) == ["nowhere", "real", "real.link", "up"]
    assert cache.verify(name) == [] and cache.ready(name) == folder
    (folder / "etc/real").chmod(0o644)
    (folder / "etc/real").write_bytes(b"2")
    assert cache.verify(name) == ["etc/real"] and cache.ready(name) is None


def test_entries_unread_for_long_are_verified_again_one_at_a_time(local: FilesystemStore, tmp_path: Path) -> None:
    cache = NodeCache(tmp_path / "cache", local)
    local.put("models/m", [b"m" * 1000])
    model = cache.object("models/m", digest(b"m" * 1000))
    trees = [staged(cache, version(local, name, 1000)) for name in "ab"]
    for path in (model, trees[0] / "a", trees[1] / "b"):
        path.chmod(0o644)
        path.write_bytes(b"damaged")
    assert cache.scrub(3600.0) == [], "the entries were verified when they were downloaded"
    damaged = [cache.scrub(0.0) for _ in range(3)]
    assert sorted(damaged) == [["a"], ["b"], [digest(b"m" * 1000)]]
    assert not model.exists() and (trees[0] / "a").read_bytes() == b"a" * 1000
    cache.sweep(lambda holders: holders)
    assert cache.scrub(0.0) == []


def test_a_dataset_staged_before_the_last_boot_is_verified_before_use(local: FilesystemStore, tmp_path: Path) -> None:
    entries = packed(local, {"a": b"a" * 1000, "b": b"b" * 1000}, target=500)
    store = RecordingStore(local)
    cache = NodeCache(tmp_path / "cache", store)
    tree = staged(cache, entries)
    marker = next((tmp_path / "cache" / "trees").glob("*.json"))
    marker.write_text(json.dumps(json.loads(marker.read_text()) | {"boot": "another"}))
    (tree / "b").chmod(0o644)
    (tree / "b").write_bytes(b"b" * 500 + b"\0" * 500)  # as a power cut leaves it
    store.reads.clear()
    assert cache.ready(digest_of(entries)) is None
    assert contents(staged(cache, entries)) == {"a": b"a" * 1000, "b": b"b" * 1000}
    assert len(store.reads) == 1, "an undamaged file was downloaded again"
    cache.sweep(lambda holders: holders)
    assert json.loads(marker.read_text())["boot"] == "", "after a sync to disk the entry does not depend on the boot"
    assert cache.ready(digest_of(entries)) == tree


# -- the cache service between node and origin


def test_a_second_node_reads_from_the_cache_service_the_files_that_the_first_downloaded(
    servers: list[CacheServiceProcess], open_cache: Callable[..., SimpleCache], local: FilesystemStore, tmp_path: Path
) -> None:
    files = some_files(60, seed=int.from_bytes(tmp_path.name.encode()))
    entries = packed(local, files, target=1)
    store = RecordingStore(local)
    cache_client = open_cache(*(server.url for server in servers))
    assert contents(staged(NodeCache(tmp_path / "first", store, cache_client=cache_client), entries)) == files
    reads_of_first = len(store.reads)
    reports: list[DownloadProgress] = []
    second = NodeCache(tmp_path / "second", store, cache_client=cache_client)
    tree = second.tree(digest_of(entries), lambda: iter(entries), holder="sim", on_progress=reports.append)
    assert contents(tree) == files
    empty = sum(not content for content in files.values())
    assert all(length == 0 for _, _, length in store.reads[reads_of_first:]) and empty
    assert reports[-1].cached == reports[-1].bytes == sum(map(len, files.values()))


def test_with_the_cache_service_down_a_dataset_is_read_from_the_origin(
    open_cache: Callable[..., SimpleCache], local: FilesystemStore, tmp_path: Path
) -> None:
    files = some_files(20)
    cache_client = open_cache(*(f"http://127.0.0.1:{port}" for port in free_ports(2)))
    assert (
        contents(
            staged(NodeCache(tmp_path / "cache", local, cache_client=cache_client), packed(local, files, target=1))
        )
        == files
    )


class WrongBytesCache:
    """Cache that answers every request with wrong bytes."""

    def __init__(self) -> None:
        self.put_digests: list[str] = []

    def get(self, digest: str, size: int, target: BinaryIO) -> bool:
        target.write(b"w" * size)
        return True

    def put(self, digest: str, path: Path) -> None:
        self.put_digests.append(digest)


def test_wrong_bytes_from_the_cache_are_replaced_from_the_origin(local: FilesystemStore, tmp_path: Path) -> None:
    files = {name: name.encode() * 1000 for name in "abc"}
    entries = packed(local, files, target=1)
    cache_client = WrongBytesCache()
    assert contents(staged(NodeCache(tmp_path / "cache", local, cache_client=cache_client), entries)) == files
    assert sorted(cache_client.put_digests) == sorted(entry.digest for entry in entries)


def test_small_files_of_one_pack_are_not_requested_from_the_cache(local: FilesystemStore, tmp_path: Path) -> None:
    files = {f"{number:03}": b"%d" % number for number in range(500)}
    cache_client = WrongBytesCache()
    assert (
        contents(staged(NodeCache(tmp_path / "cache", local, cache_client=cache_client), packed(local, files))) == files
    )
    assert cache_client.put_digests == [], "one request per file would cost more than one request for the pack"


# -- killed processes

#: Stages the manifest of a folder; prints when it begins and when it is done.
STAGING_PROGRAM = """
import sys
from pathlib import Path
from datasets.versions import manifest
from datasets.nodecache.node_cache import NodeCache
from datasets.objectstore.filesystem import FilesystemStore
entries = [manifest.decode(line) for line in Path(sys.argv[2], "manifest").read_bytes().splitlines()]
print("begins", flush=True)
cache = NodeCache(Path(sys.argv[2], "cache"), FilesystemStore(sys.argv[1]))
cache.tree(manifest.digest_of(entries), lambda: iter(entries), holder="killed")
print("done", flush=True)
"""


def count_files(folder: Path) -> int:
    """Return the number of files below a folder."""
    return sum(len(files) for _, _, files in os.walk(folder))


def wait_for_files(process: "subprocess.Popen[str]", folder: Path, goal: int) -> None:
    """Wait until a number of files are below a folder, or the process has ended."""
    until(lambda: count_files(folder) >= goal or process.poll() is not None, every=0.001)


def test_staging_killed_at_any_moment_leaves_no_incomplete_dataset_marked_complete(
    local: FilesystemStore, tmp_path: Path
) -> None:
    files = some_files(700)
    entries = packed(local, files)
    (tmp_path / "manifest").write_bytes(b"".join(map(encode, entries)))
    rng = random.Random(9)
    cache = NodeCache(tmp_path / "cache", local)
    killed = 0
    for _ in range(8):
        command = [sys.executable, "-c", STAGING_PROGRAM, str(local.root), str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "begins\n"
            wait_for_files(process, tmp_path / "cache", count_files(tmp_path / "cache") + rng.randrange(len(files)))
            process.kill()
            killed += process.stdout.read() == ""
        if (tree := cache.ready(digest_of(entries))) is not None:
            assert contents(tree) == files
            for path in (tmp_path / "cache" / "trees").glob("*.json"):
                path.unlink()  # stage again, with the downloaded files in place
    assert killed
    assert contents(staged(cache, entries)) == files
    cache.sweep(lambda holders: set())
    assert not list((tmp_path / "cache" / "partial").iterdir())


def test_a_process_that_died_does_not_block_waiters(local: FilesystemStore, tmp_path: Path) -> None:
    entries = packed(local, some_files(300))
    (tmp_path / "manifest").write_bytes(b"".join(map(encode, entries)))
    command = [sys.executable, "-c", STAGING_PROGRAM, str(local.root), str(tmp_path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "begins\n"
        processes[0].kill()
        assert [process.wait(timeout=120) for process in processes[1:]] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert NodeCache(tmp_path / "cache", local).ready(digest_of(entries)) is not None


def test_datasets_pinned_by_another_process_stay_complete_after_a_kill(local: FilesystemStore, tmp_path: Path) -> None:
    for number in range(staging_process.VERSIONS):
        for file in range(staging_process.FILES):
            local.put(f"p/{number}-{file}", [staging_process.content(number, file)])
    rng = random.Random(11)
    seeds = iter(range(100))

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.contracts.staging_process", str(tmp_path), str(next(seeds)), "150"]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    processes = [start() for _ in range(3)]
    try:
        for _ in range(6):
            # Six times at most 40: no process has done its 150 rounds before the last is killed.
            goal = staging_process.rounds(tmp_path) + rng.randrange(5, 40)
            until(lambda goal=goal: staging_process.rounds(tmp_path) >= goal)  # type: ignore[misc]
            victim = processes.pop(rng.randrange(3))
            victim.kill()
            stderr = victim.communicate()[1]
            assert victim.returncode in {0, -signal.SIGKILL}, stderr
            processes.append(start())
        for process in processes:
            assert process.communicate(timeout=240)[1] == "" and process.returncode == 0
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    cache = NodeCache(tmp_path / "cache", local)
    for path in (tmp_path / "cache" / "trees").glob("*.json"):
        assert cache.verify(f"sha256:{path.stem}") == []
    cache.sweep(staging_process.living)
    assert not list((tmp_path / "cache" / "pins").glob("*/*"))
