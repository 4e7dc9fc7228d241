"""Registered datasets, on each database engine: version numbers, claims of registrations, and garbage collection."""

import hashlib
import json
import random
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from minio import Minio
from minio.commonconfig import CopySource
from sqlalchemy import update

from benchmarks import registering as benchmark
from common.errors import InUse, NotFound, PlatformError, StoreUnavailable, UnknownDataset
from core.domain.access.scopes import LOCAL_CALLER, PLATFORM
from core.domain.scheduling.states import State
from core.notifications.local_notifier import LocalNotifier
from core.services.datasets import bucket_objects, dataset_sources
from core.services.datasets.dataset_garbage import GRACE
from core.services.datasets.dataset_registration import DatasetRegistration, RegistrationLimits
from core.services.datasets.environment_registration import EnvironmentRegistration
from core.services.datasets.file_sources import Sources
from core.services.due_jobs import DueJobs
from core.services.platform import Platform, PlatformOptions, build
from core.store import datasets as store
from core.store import simulations
from core.store.claims import HeldClaim
from core.store.database import Database
from core.store.tables import dataset_versions
from datasets.nodecache.node_cache import NodeCache
from datasets.objectstore.bucket_reader import BucketReader
from datasets.objectstore.connections import Connection
from datasets.objectstore.filesystem import FilesystemStore
from runtimes.dependencies.installer import Installer, InstallerOptions
from tests.archives import LINES, MINE, tar, zipped
from tests.conftest import Clock
from tests.databases import sqlite_database
from tests.executor_configs import LOCAL
from tests.faulty_s3_proxy import PASSING, Proxy, flips_a_bit
from tests.plants import PLANT, description
from tests.s3_servers import S3Server, fresh_bucket

#: The start of a shared library for x86-64.
SHARED_LIBRARY = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\x3e\x00" + bytes(44)


@pytest.fixture
def platform(database: Database, tmp_path: Path) -> Platform:
    return build(
        database,
        FilesystemStore(tmp_path / "objects"),
        LocalNotifier(),
        PlatformOptions(
            home=tmp_path,
            executor_configs=[LOCAL],
            sandbox={},
        ),
    )


def request_version(platform: Platform, name: str, body: bytes) -> str:
    """Request a version from an archive; return its id."""
    upload = platform.files.uploads.create(LOCAL_CALLER, len(body))
    platform.files.uploads.append(LOCAL_CALLER, upload.id, 0, iter([body]))
    return str(platform.catalogue.datasets.register(LOCAL_CALLER, name, {"upload": upload.id})["id"])


def register(platform: Platform, name: str, files: dict[str, bytes]) -> dict[str, Any]:
    """Register files and return the version when it has ended."""
    id = request_version(platform, name, tar(files, "w"))
    platform.jobs.dataset_registration.register(id)
    return platform.catalogue.datasets.get(LOCAL_CALLER, id)


def objects(platform: Platform) -> set[str]:
    """Return the keys of the objects of datasets."""
    return {*platform.store.list("packs/"), *platform.store.list("manifests/")}


def test_version_numbers_have_no_gaps_and_are_not_reused(platform: Platform) -> None:
    assert register(platform, "d", {"a": b"1"})["version"] == "1"
    assert register(platform, "d", {"../a": b"1"})["state"] == "failed"
    assert register(platform, "d", {"a": b"1"})["version"] == "1"
    assert register(platform, "d", {"a": b"2"})["version"] == "2"
    platform.catalogue.datasets.delete(LOCAL_CALLER, "d@2")
    assert register(platform, "d", {"a": b"3"})["version"] == "3"
    assert register(platform, "d", {"a": b"2"})["version"] == "4"


@pytest.mark.parametrize("source", ["{", "{}", '{"upload": 1}', '{"of_a_later_version": "x"}'])
def test_a_version_whose_source_cannot_be_read_has_failed_with_the_reason(platform: Platform, source: str) -> None:
    id = request_version(platform, "d", tar({"a": b"1"}, "w"))
    corrupting = update(dataset_versions).where(dataset_versions.c.id == id).values(source=source)
    platform.database.write(lambda c: c.execute(corrupting))
    platform.jobs.dataset_registration.register(id)
    with platform.database.read() as c:
        row = store.by_id(c, PLATFORM, id)
    assert row is not None and row.reason is not None
    assert row.state == "failed" and row.reason.startswith("The database has a ")


def test_a_registration_that_loses_its_claim_leaves_one_version(platform: Platform, clock: Clock) -> None:
    """The first holder loses its claim while it still writes: it can neither finish nor leave objects."""
    id = request_version(platform, "d", tar({"a": b"x" * 1000}, "w"))
    write = platform.store.put
    written: list[str] = []

    def put_and_steal(key: str, chunks: Any) -> int:
        size = write(key, chunks)
        if not written:
            written.append(key)
            clock.now += 100.0
            platform.jobs.dataset_registration.register(id)
        return size

    platform.store.put = put_and_steal  # type: ignore[method-assign]
    platform.jobs.dataset_registration.register(id)
    dataset = platform.catalogue.datasets.get(LOCAL_CALLER, id)
    assert (dataset["state"], dataset["version"]) == ("ready", "1")
    assert b"".join(platform.catalogue.datasets.file(LOCAL_CALLER, "d", "a").read(0, 1000)) == b"x" * 1000
    clock.now += GRACE * 2
    platform.catalogue.datasets.garbage.collect()
    platform.catalogue.datasets.garbage.remove_orphans()
    with platform.database.read() as c:
        assert objects(platform) == set(store.objects_of(c, id))


def test_a_registration_that_dies_repeatedly_is_given_up(platform: Platform, clock: Clock) -> None:
    id = request_version(platform, "d", tar({"a": b"1"}, "w"))
    for attempt in range(6):
        dead = HeldClaim(id, f"dead-{attempt}")
        platform.database.write(lambda c, dead=dead: store.CLAIMS.take(c, dead, 9.0, clock.now))  # type: ignore[misc]
        assert DueJobs(platform.database).of("register") == []
        clock.now += 10.0
        assert DueJobs(platform.database).of("register") == [id]
    platform.jobs.dataset_registration.register(id)
    assert platform.catalogue.datasets.get(LOCAL_CALLER, id)["state"] == "failed"


def test_a_registration_waits_for_an_unavailable_store(platform: Platform, clock: Clock) -> None:
    id = request_version(platform, "d", tar({"a": b"1"}, "w"))
    put = platform.store.put

    def unavailable(key: str, chunks: Any) -> int:
        raise StoreUnavailable()

    platform.store.put = unavailable  # type: ignore[method-assign]
    for _ in range(10):
        platform.jobs.dataset_registration.register(id)
        assert platform.catalogue.datasets.get(LOCAL_CALLER, id)["state"] == "registering"
        clock.now += 10.0
    platform.store.put = put  # type: ignore[method-assign]
    clock.now += 10.0
    platform.jobs.dataset_registration.register(id)
    assert platform.catalogue.datasets.get(LOCAL_CALLER, id)["state"] == "ready"


DEFECTS = [KeyError("name"), OverflowError("too large"), RecursionError("too deep"), AttributeError("x"), MemoryError()]


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: type(defect).__name__)
@pytest.mark.parametrize(
    ("reader", "place"),
    [
        ("core.services.datasets.source_kinds.archive_source.is_clutter", "The source"),
        ("datasets.versions.scenarios.parse_description", "dataset.json"),
        ("datasets.versions.scenarios.validated", "The file 'lines.ndjson' of the scenarios"),
    ],
)
def test_a_version_whose_files_meet_a_defect_of_what_reads_them_fails_at_once_and_names_the_file(
    platform: Platform,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    reader: str,
    place: str,
    defect: Exception,
) -> None:
    def defective(*_: Any) -> None:
        raise defect

    monkeypatch.setattr(reader, defective)
    version = register(platform, "d", {"dataset.json": json.dumps(MINE).encode(), "lines.ndjson": LINES})
    assert version["state"] == "failed" and version["reason"].startswith(f"{place} "), version
    assert isinstance(defect, MemoryError) or type(defect).__name__ in version["reason"]
    assert any(record.exc_info and record.exc_info[1] is defect for record in caplog.records)


def test_an_outage_while_files_are_read_is_no_reason_to_refuse_them(
    platform: Platform, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = request_version(platform, "d", tar({"dataset.json": json.dumps(MINE).encode(), "lines.ndjson": LINES}, "w"))

    def away(*_: Any) -> None:
        raise ConnectionResetError

    with monkeypatch.context() as broken:
        broken.setattr(platform.store, "get", away)
        with pytest.raises(ConnectionResetError):  # the queue of jobs tries it again
            platform.jobs.dataset_registration.register(id)
    clock.now += 10.0
    platform.jobs.dataset_registration.register(id)
    assert platform.catalogue.datasets.get(LOCAL_CALLER, id)["state"] == "ready"


def test_a_plant_with_an_endless_scenario_fails_at_once(platform: Platform) -> None:
    plant = PLANT | {"step": 0.5, "duration": 1e308}
    described = {"extends": "fmu", "scenarios": "lines.ndjson", "plant": plant}
    fmu = zipped({"modelDescription.xml": description("2"), "binaries/linux64/room.so": SHARED_LIBRARY})
    files = {"dataset.json": json.dumps(described).encode(), "lines.ndjson": LINES, str(PLANT["file"]): fmu}
    version = register(platform, "d", files)
    assert version["state"] == "failed" and "1 to 1,000,000 whole steps" in version["reason"], version


def request_versions(platform: Platform, upload: str, *names: str) -> list[str]:
    """Request versions from one upload; return their ids."""
    return [str(platform.catalogue.datasets.register(LOCAL_CALLER, name, {"upload": upload})["id"]) for name in names]


def upload_bytes(platform: Platform, body: bytes) -> str:
    """Upload bytes; return the id of the upload."""
    upload = platform.files.uploads.create(LOCAL_CALLER, len(body))
    return platform.files.uploads.append(LOCAL_CALLER, upload.id, 0, iter([body])).id


@pytest.mark.parametrize("files", [{"a": b"1"}, {"../a": b"1"}])
def test_an_upload_is_kept_until_every_registration_of_it_has_ended(
    platform: Platform, files: dict[str, bytes]
) -> None:
    upload = upload_bytes(platform, tar(files, "w"))
    first, second, third = request_versions(platform, upload, "d1", "d2", "d3")
    platform.jobs.dataset_registration.register(first)
    with pytest.raises(InUse):
        platform.files.uploads.delete(LOCAL_CALLER, upload)
    platform.catalogue.datasets.delete(LOCAL_CALLER, third)
    with pytest.raises(InUse):
        platform.files.uploads.delete(LOCAL_CALLER, upload)
    platform.jobs.dataset_registration.register(second)
    states = {platform.catalogue.datasets.get(LOCAL_CALLER, id)["state"] for id in (first, second)}
    assert len(states) == 1 and states != {"registering"}
    platform.files.uploads.delete(LOCAL_CALLER, upload)


def test_an_upload_is_kept_for_a_registration_that_is_requested_during_its_release(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = upload_bytes(platform, tar({"a": b"1"}, "w"))
    release = threading.Thread(target=platform.files.uploads.let_go, args=(LOCAL_CALLER, upload))
    hold = dataset_sources.hold

    def hold_and_release(*arguments: Any) -> None:
        hold(*arguments)
        release.start()
        release.join(0.5)  # the release waits for this transaction to end

    monkeypatch.setattr(dataset_sources, "hold", hold_and_release)
    [id] = request_versions(platform, upload, "d")
    release.join()
    with pytest.raises(InUse):
        platform.files.uploads.delete(LOCAL_CALLER, upload)
    monkeypatch.setattr(dataset_sources, "hold", hold)
    platform.jobs.dataset_registration.register(id)
    assert platform.catalogue.datasets.get(LOCAL_CALLER, id)["state"] == "ready"


@pytest.mark.parametrize("connection", [5, {}, ["lab"], True])
def test_a_manifest_with_an_invalid_connection_name_fails_at_once_with_the_line(
    platform: Platform, connection: object
) -> None:
    line = {"path": "drives/x.bin", "digest": "sha256:" + "0" * 64, "size": 3, "source": "s3://fleet/x"}
    upload = upload_bytes(platform, json.dumps(line | {"connection": connection}).encode())
    id = platform.catalogue.datasets.register(LOCAL_CALLER, "d", {"manifest": {"upload": upload}})["id"]
    platform.jobs.dataset_registration.register(id)
    dataset = platform.catalogue.datasets.get(LOCAL_CALLER, id)
    assert dataset["state"] == "failed" and "drives/x.bin" in dataset["reason"], dataset
    platform.files.uploads.delete(LOCAL_CALLER, upload)


def simulation(platform: Platform, ref: str, number: int, clock: Clock) -> str:
    """Insert a simulation on a dataset, as a submission does."""
    dataset = platform.catalogue.datasets.find(LOCAL_CALLER, ref)
    id = f"s{number}"
    row = {
        "id": id,
        "project": "default",
        "state": "queued",
        "spec": "{}",
        "provenance": json.dumps({"dataset": msgspec.to_builtins(platform.catalogue.datasets.frozen(dataset))}),
        "dataset": dataset.name,
        "dataset_digest": dataset.digest if number % 2 else "",  # as a process from before the column writes it
        "runtime": "python",
        "model": "zero",
        "digest": "d",
        "created_at": clock.now,
    }
    stage = {"id": f"{id}.0", "simulation_id": id, "ordinal": 0, "total": 1, "state": "open"}

    def write(c: Any) -> None:
        platform.catalogue.datasets.keep(c, PLATFORM, dataset)
        simulations.add(c, row, stage)

    platform.database.write(write)
    return id


class DatasetLifecycle:
    """Random steps in the life of datasets, and the invariants after each step."""

    def __init__(self, platform: Platform, clock: Clock, rng: random.Random) -> None:
        self.platform = platform
        self.clock = clock
        self.rng = rng
        self.running: dict[str, tuple[str, str]] = {}  # simulation -> name@version, digest
        self.count = 0
        self.contents: dict[str, dict[str, bytes]] = {}  # digest -> files

    def names(self) -> list[str]:
        page, _ = self.platform.catalogue.datasets.page(LOCAL_CALLER, limit=200)
        return [dataset["name"] for dataset in page if dataset["registered"]]

    def versions(self) -> list[dict[str, Any]]:
        return [
            version
            for name in self.names()
            for version in self.platform.catalogue.datasets.versions(LOCAL_CALLER, name, limit=200)[0]
            if version["state"] == "ready"
        ]

    def register(self) -> None:
        kind = self.rng.randrange(4)
        description = json.dumps(MINE | {"title": f"t{kind}"}).encode()
        files = {"dataset.json": description, "lines.ndjson": LINES, f"f{kind}": b"y" * kind}
        new = register(self.platform, f"d{self.rng.randrange(3)}", files)
        assert new["state"] == "ready"
        self.contents[new["digest"]] = files

    def register_from_manifest(self) -> None:
        for version in self.versions()[:1]:
            files, _ = self.platform.catalogue.datasets.files(LOCAL_CALLER, version["digest"])
            lines = [{name: file[name] for name in ("path", "digest", "size")} for file in files]
            name = f"d{self.rng.randrange(3)}"
            id = self.platform.catalogue.datasets.register(LOCAL_CALLER, name, {"manifest": lines})["id"]
            self.platform.jobs.dataset_registration.register(id)
            assert self.platform.catalogue.datasets.get(LOCAL_CALLER, id)["state"] == "ready"

    def register_invalid(self) -> None:
        assert register(self.platform, "d0", {"fine": b"z", "../x": b""})["state"] == "failed"

    def delete(self) -> None:
        for version in self.versions():
            if self.rng.random() < 0.5:
                ref = f"{version['name']}@{version['version']}"
                try:
                    self.platform.catalogue.datasets.delete(LOCAL_CALLER, ref)
                    assert ref not in {running_ref for running_ref, _ in self.running.values()}
                except InUse:
                    assert ref in {running_ref for running_ref, _ in self.running.values()}

    def start_simulation(self) -> None:
        for version in self.versions()[-1:]:
            self.count += 1
            ref = f"{version['name']}@{version['version']}"
            self.running[simulation(self.platform, ref, self.count, self.clock)] = (ref, version["digest"])

    def end_simulation(self) -> None:
        for id in list(self.running)[:1]:
            del self.running[id]
            cancel = partial(simulations.move, id=id, current=State.QUEUED, following=State.CANCELLED)
            self.platform.database.write(partial(cancel, now=self.clock.now, summary="{}"))

    def collect_garbage(self) -> None:
        self.clock.now += self.rng.choice([1.0, GRACE * 2])
        self.platform.catalogue.datasets.garbage.collect()
        if self.rng.random() < 0.3:
            self.platform.catalogue.datasets.garbage.remove_orphans()

    def check(self) -> None:
        alive = {version["digest"] for version in self.versions()} | {digest for _, digest in self.running.values()}
        for digest in alive:
            for path, body in self.contents[digest].items():
                assert (
                    b"".join(self.platform.catalogue.datasets.file(LOCAL_CALLER, digest, path).read(0, len(body)))
                    == body
                )

    def delete_everything(self) -> None:
        """Delete everything and check that no object remains."""
        while self.running:
            self.end_simulation()
        for name in self.names():
            self.platform.catalogue.datasets.delete(LOCAL_CALLER, name)
        self.clock.now += GRACE * 2
        self.platform.catalogue.datasets.garbage.collect()
        assert objects(self.platform) == set()


@pytest.mark.parametrize("seed", range(4))
def test_referenced_objects_are_kept_and_all_others_are_deleted(platform: Platform, clock: Clock, seed: int) -> None:
    rng = random.Random(seed)
    lifecycle = DatasetLifecycle(platform, clock, rng)
    steps: list[Callable[[], None]] = [
        *(lifecycle.register, lifecycle.register, lifecycle.register_from_manifest, lifecycle.register_invalid),
        *(lifecycle.delete, lifecycle.start_simulation, lifecycle.end_simulation, lifecycle.collect_garbage),
    ]
    lifecycle.register()
    for _ in range(30):
        rng.choice(steps)()
        lifecycle.check()
    lifecycle.delete_everything()


def test_an_object_without_a_reference_is_deleted(platform: Platform, clock: Clock) -> None:
    dataset = register(platform, "d", {"a": b"1"})
    platform.store.put(f"packs/{dataset['id']}/orphan", [b"x"])
    platform.store.put("packs/0123456789abcdefghjkmnpqrs/orphan", [b"x"])
    clock.now += GRACE * 2
    assert (
        platform.catalogue.datasets.garbage.remove_orphans() == 2
        and platform.catalogue.datasets.garbage.remove_orphans() == 0
    )
    assert b"".join(platform.catalogue.datasets.file(LOCAL_CALLER, "d", "a").read(0, 1)) == b"1"


# -- buckets


@pytest.fixture
def bucket(minio: S3Server) -> Iterator[tuple[Connection, Any, str]]:
    """A bucket with forty objects, its connection and a client."""
    name = fresh_bucket()
    client = Minio(f"127.0.0.1:{minio.port}", minio.access_key, minio.secret_key, secure=False)
    client.make_bucket(name)
    for number in range(40):
        client.put_object(
            name, f"drives/{number % 4}/{number:03}.bin", BytesIO(b"%d" % number * 50), len(b"%d" % number * 50)
        )
    client.put_object(name, "elsewhere/x", BytesIO(b"x"), 1)
    yield (
        Connection(
            name="lab",
            endpoint=minio.endpoint,
            access_key=minio.access_key,
            secret_key=minio.secret_key,
            buckets=(name,),
        ),
        client,
        name,
    )


@pytest.fixture
def connected(bucket: tuple[Connection, Any, str], tmp_path: Path, clock: Clock) -> Iterator[Platform]:
    database = sqlite_database(tmp_path / "test.db", clock=clock)
    objects = FilesystemStore(tmp_path / "objects")
    yield build(
        database,
        objects,
        LocalNotifier(),
        PlatformOptions(
            home=tmp_path,
            executor_configs=[LOCAL],
            sandbox={},
            connections={"lab": bucket[0]},
        ),
    )
    database.close()


def register_prefix(platform: Platform, bucket: str, prefix: str = "drives/") -> dict[str, Any]:
    """Register a prefix of a bucket."""
    id = platform.catalogue.datasets.register(
        LOCAL_CALLER, "d", {"s3": f"s3://{bucket}/{prefix}", "connection": "lab"}
    )["id"]
    platform.jobs.dataset_registration.register(id)
    return platform.catalogue.datasets.get(LOCAL_CALLER, id)


def test_a_prefix_is_registered_by_reference_to_its_bucket(
    connected: Platform, bucket: tuple[Connection, Any, str]
) -> None:
    dataset = register_prefix(connected, bucket[2])
    assert (dataset["state"], dataset["file_count"]) == ("ready", 40), dataset
    files, _ = connected.catalogue.datasets.files(LOCAL_CALLER, "d")
    assert files[0]["path"] == "0/000.bin" and files[0]["source"] == f"s3://{bucket[2]}/drives/0/000.bin"
    assert b"".join(connected.catalogue.datasets.file(LOCAL_CALLER, "d", "3/039.bin").read(1, 5)) == b"9393"
    assert list(connected.store.list("packs/")) == []
    connected.catalogue.prefetches.request(LOCAL_CALLER, "d")
    connected.catalogue.prefetches.download(dataset["id"])
    assert connected.catalogue.prefetches.progress(LOCAL_CALLER, "d")["state"] == "ready"


def test_the_next_version_reads_only_changed_objects(
    connected: Platform, bucket: tuple[Connection, Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    register_prefix(connected, bucket[2])
    _, client, name = bucket
    client.put_object(name, "drives/1/001.bin", BytesIO(b"new"), 3)
    client.put_object(name, "drives/9", BytesIO(b"nine"), 4)
    client.remove_object(name, "drives/2/002.bin")
    read: list[str] = []
    original = BucketReader.read

    def recorded(self: BucketReader, bucket: str, key: str, *rest: Any) -> Iterator[bytes]:
        read.append(key)
        return original(self, bucket, key, *rest)

    monkeypatch.setattr(BucketReader, "read", recorded)
    dataset = register_prefix(connected, name)
    assert (dataset["version"], dataset["file_count"]) == ("2", 40)
    assert sorted(read) == ["drives/1/001.bin", "drives/9"]
    changes = {
        change["path"]: change["change"] for change in connected.catalogue.datasets.diff(LOCAL_CALLER, "d", "1", "2")
    }
    assert changes == {"1/001.bin": "changed", "2/002.bin": "removed", "9": "added"}
    with pytest.raises(PlatformError):
        b"".join(connected.catalogue.datasets.file(LOCAL_CALLER, "d@1", "1/001.bin").read(0, 50))


def test_a_prefix_is_a_folder_and_not_every_key_that_begins_with_it(
    connected: Platform, bucket: tuple[Connection, Any, str]
) -> None:
    for key in ("drives-old/x", "drives.csv", "drives2/y"):
        bucket[1].put_object(bucket[2], key, BytesIO(b"x"), 1)
    with_slash, without = register_prefix(connected, bucket[2]), register_prefix(connected, bucket[2], "drives")
    assert (without["state"], without["file_count"], without["id"]) == ("ready", 40, with_slash["id"]), without


def test_a_prefix_that_is_the_key_of_an_object_registers_one_file(
    connected: Platform, bucket: tuple[Connection, Any, str]
) -> None:
    dataset = register_prefix(connected, bucket[2], "drives/3/007.bin")
    assert (dataset["state"], dataset["file_count"]) == ("ready", 1), dataset
    assert b"".join(connected.catalogue.datasets.file(LOCAL_CALLER, "d", "007.bin").read(0, 50)) == b"7" * 50
    assert register_prefix(connected, bucket[2], "drives/3/007")["state"] == "failed"


def test_moved_content_is_read_from_its_new_location_after_another_registration(
    connected: Platform, bucket: tuple[Connection, Any, str], clock: Clock
) -> None:
    first = register_prefix(connected, bucket[2])
    _, client, name = bucket
    for entry in list(client.list_objects(name, "drives/", recursive=True)):
        moved = entry.object_name.replace("drives/", "moved/")
        client.copy_object(name, moved, CopySource(name, entry.object_name))
        client.remove_object(name, entry.object_name)
    with pytest.raises(PlatformError):
        b"".join(connected.catalogue.datasets.file(LOCAL_CALLER, "d", "3/039.bin").read(0, 5))
    second = register_prefix(connected, name, "moved/")
    assert (second["id"], second["version"], second["source"]["s3"]) == (first["id"], "1", f"s3://{name}/moved/")
    assert b"".join(connected.catalogue.datasets.file(LOCAL_CALLER, "d", "3/039.bin").read(0, 5)) == b"39393"
    clock.now += GRACE * 2
    assert connected.catalogue.datasets.garbage.collect() == 2  # the former manifest and its index
    assert b"".join(connected.catalogue.datasets.file(LOCAL_CALLER, "d@1", "3/039.bin").read(0, 5)) == b"39393"
    assert register_prefix(connected, name, "moved/")["id"] == first["id"]
    assert len(list(connected.store.list("manifests/"))) == 2


def test_content_in_the_platforms_store_is_not_replaced_by_a_reference_to_a_bucket(
    connected: Platform, bucket: tuple[Connection, Any, str]
) -> None:
    files = {f"{number % 4}/{number:03}.bin": b"%d" % number * 50 for number in range(40)}
    dataset = register(connected, "d", files)
    assert register_prefix(connected, bucket[2])["id"] == dataset["id"]
    bucket[1].remove_object(bucket[2], "drives/3/039.bin")
    assert b"".join(connected.catalogue.datasets.file(LOCAL_CALLER, "d", "3/039.bin").read(0, 5)) == b"39393"


@pytest.fixture
def proxied(bucket: tuple[Connection, Any, str], tmp_path: Path, clock: Clock) -> Iterator[tuple[Platform, Proxy]]:
    """A platform that reaches the bucket through a proxy."""
    proxy = Proxy(bucket[0].endpoint)
    database = sqlite_database(tmp_path / "test.db", clock=clock)
    objects, connections = FilesystemStore(tmp_path / "objects"), {"lab": replace(bucket[0], endpoint=proxy.endpoint)}
    yield (
        build(
            database,
            objects,
            LocalNotifier(),
            PlatformOptions(home=tmp_path, executor_configs=[LOCAL], sandbox={}, connections=connections),
        ),
        proxy,
    )
    proxy.close()
    database.close()


def test_bytes_changed_in_transit_are_not_registered(
    proxied: tuple[Platform, Proxy], bucket: tuple[Connection, Any, str]
) -> None:
    platform, proxy = proxied
    proxy.next.extend([None, None, flips_a_bit])  # requests: lookup as a folder, lookup as an object, content
    dataset = register_prefix(platform, bucket[2], "drives/3/007.bin")
    assert dataset["state"] == "ready" and len(proxy.requests) == 4
    (file,), _ = platform.catalogue.datasets.files(LOCAL_CALLER, "d")
    assert file["digest"] == "sha256:" + hashlib.sha256(b"7" * 50).hexdigest()


def test_an_etag_that_is_not_a_hash_of_the_bytes_costs_a_second_read(
    proxied: tuple[Platform, Proxy], bucket: tuple[Connection, Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        bucket_objects, "_md5", lambda: hashlib.blake2b(digest_size=16)
    )  # as if the store computed another hash
    platform, proxy = proxied
    assert register_prefix(platform, bucket[2], "drives/3/007.bin")["state"] == "ready" and len(proxy.requests) == 4


@pytest.mark.parametrize("name", ["truncated", "announces less", "reset at once", "hangs up", "babbles"])
def test_the_reason_why_a_bucket_is_unreadable_is_a_sentence(
    proxied: tuple[Platform, Proxy], bucket: tuple[Connection, Any, str], name: str
) -> None:
    platform, proxy = proxied
    proxy.next.extend([None, None])
    proxy.always = PASSING[name]
    dataset = register_prefix(platform, bucket[2], "drives/3/007.bin")
    assert dataset["state"] == "failed" and f"s3://{bucket[2]}/drives/3/007.bin" in dataset["reason"]
    assert "Error" not in dataset["reason"] and "_" not in dataset["reason"], dataset["reason"]


def test_a_manifest_may_name_objects_of_a_bucket(connected: Platform, bucket: tuple[Connection, Any, str]) -> None:
    body = b"7" * 50
    line = {
        "path": "seven",
        "digest": "sha256:" + hashlib.sha256(body).hexdigest(),
        "size": 50,
        "source": f"s3://{bucket[2]}/drives/3/007.bin",
        "connection": "lab",
    }
    id = connected.catalogue.datasets.register(LOCAL_CALLER, "m", {"manifest": [line]})["id"]
    connected.jobs.dataset_registration.register(id)
    assert connected.catalogue.datasets.get(LOCAL_CALLER, id)["state"] == "ready", connected.catalogue.datasets.get(
        LOCAL_CALLER, id
    )
    assert b"".join(connected.catalogue.datasets.file(LOCAL_CALLER, "m", "seven").read(0, 50)) == body
    id = connected.catalogue.datasets.register(LOCAL_CALLER, "m", {"manifest": [line | {"size": 49}]})["id"]
    connected.jobs.dataset_registration.register(id)
    assert connected.catalogue.datasets.get(LOCAL_CALLER, id)["state"] == "failed"


def test_a_missing_bucket_is_named_at_once(
    connected: Platform, bucket: tuple[Connection, Any, str], tmp_path: Path
) -> None:
    for entry in bucket[1].list_objects(bucket[2], recursive=True):
        bucket[1].remove_object(bucket[2], entry.object_name)
    bucket[1].remove_bucket(bucket[2])
    dataset = register_prefix(connected, bucket[2])
    assert dataset["state"] == "failed" and bucket[2] in dataset["reason"], dataset


def test_no_secret_is_in_any_answer_event_or_log(
    connected: Platform, bucket: tuple[Connection, Any, str], caplog: pytest.LogCaptureFixture
) -> None:
    failed = register_prefix(connected, bucket[2], "nothing-there/")
    assert failed["state"] == "failed"
    dataset = register_prefix(connected, bucket[2])
    bucket[1].remove_object(bucket[2], "drives/0/000.bin")
    with pytest.raises((PlatformError, NotFound)) as raised:
        b"".join(connected.catalogue.datasets.file(LOCAL_CALLER, dataset["id"], "0/000.bin").read(0, 50))
    output = f"{failed} {dataset} {raised.value} {raised.value.__dict__} {caplog.text}"
    assert bucket[0].secret_key not in output and bucket[2] in str(raised.value)
    with pytest.raises(UnknownDataset):
        connected.catalogue.datasets.get(LOCAL_CALLER, bucket[0].secret_key)


@pytest.mark.parametrize("count", [2_000, 20_000])
def test_memory_use_does_not_grow_with_the_number_of_files(tmp_path: Path, clock: Clock, count: int) -> None:
    class BenchmarkSources(Sources):
        def reader(self, connection: Connection) -> Any:
            return benchmark.Bucket(count)

    database = sqlite_database(tmp_path / "test.db", clock=clock)
    lab = Connection(name="lab", endpoint="http://127.0.0.1:9", access_key="a", secret_key="b")
    objects = FilesystemStore(tmp_path / "objects")
    platform = build(
        database,
        objects,
        LocalNotifier(),
        PlatformOptions(home=tmp_path, executor_configs=[LOCAL], sandbox={}, connections={"lab": lab}),
    )
    sources = BenchmarkSources(objects, {"lab": lab})
    job = DatasetRegistration(
        database,
        objects,
        platform.files.uploads,
        sources,
        platform.catalogue.datasets,
        EnvironmentRegistration(
            Installer(tmp_path / "packages", InstallerOptions(indexes=())),
            NodeCache(tmp_path / "cache", objects, {}),
            tmp_path / "sorting",
        ),
        RegistrationLimits(sort_memory=1 << 20),
    )
    id = platform.catalogue.datasets.register(LOCAL_CALLER, "many", {"s3": "s3://bench/all/", "connection": "lab"})[
        "id"
    ]
    tracemalloc.start()
    job.register(id)
    cursor, files = None, 0
    while True:
        page, cursor = platform.catalogue.datasets.files(LOCAL_CALLER, "many", after=cursor, limit=1000)
        files += len(page)
        if cursor is None:
            break
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    database.close()
    assert files == count
    assert peak < 24 << 20
