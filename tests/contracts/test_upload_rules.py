"""Rules of uploads, on each database: compare-and-set, takeover by a later writer, shared bytes, deletion."""

import hashlib
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from common.errors import (
    Conflict,
    Gone,
    InUse,
    NotFound,
    OffsetMismatch,
    TooManyUploads,
    UnknownUpload,
    UploadUnfinished,
)
from core.domain.access.scopes import LOCAL_CALLER
from core.domain.submissions.uploads import Checksum, Upload
from core.services.uploads.uploads import UploadLimits, Uploads
from core.store.database import Database
from datasets.objectstore import ObjectStore, open_store
from tests.conftest import Clock


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(f"file://{tmp_path / 'objects'}")


@pytest.fixture
def uploads(database: Database, store: ObjectStore) -> Uploads:
    return Uploads(database, store, ttl=100.0, largest=1000)


def finished_upload(uploads: Uploads, data: bytes, *, partial: bool = False) -> Upload:
    upload = uploads.create(LOCAL_CALLER, len(data), partial=partial)
    return uploads.append(LOCAL_CALLER, upload.id, 0, [data])


def keys(store: ObjectStore) -> list[str]:
    return list(store.list("uploads/"))


def test_every_part_is_durable_before_the_next_is_read(database: Database, store: ObjectStore) -> None:
    uploads = Uploads(database, store, ttl=100.0, largest=1000, limits=UploadLimits(part=4))
    upload = uploads.create(LOCAL_CALLER, 10)
    offsets: list[int] = []

    def body() -> Iterator[bytes]:
        for piece in (b"0123", b"4567", b"89"):
            yield piece
            offsets.append(uploads.get(LOCAL_CALLER, upload.id).offset)

    assert uploads.append(LOCAL_CALLER, upload.id, 0, body()).offset == 10
    assert offsets[:2] == [0, 4] and len(keys(store)) == 3
    assert b"".join(uploads.content(LOCAL_CALLER, upload.id)) == b"0123456789"
    for start in range(11):
        for length in range(12 - start):
            assert uploads.read(LOCAL_CALLER, upload.id, start, length) == b"0123456789"[start : start + length]


def test_a_later_writer_takes_over_and_the_earlier_writer_advances_nothing(
    uploads: Uploads, store: ObjectStore
) -> None:
    upload = uploads.create(LOCAL_CALLER, 10)

    def body() -> Iterator[bytes]:
        yield b"old"
        assert uploads.append(LOCAL_CALLER, upload.id, 0, [b"fresh"]).offset == 5

    with pytest.raises(OffsetMismatch) as late:
        uploads.append(LOCAL_CALLER, upload.id, 0, body())
    assert late.value.members["offset"] == 5
    uploads.append(LOCAL_CALLER, upload.id, 5, [b"bytes"])
    assert b"".join(uploads.content(LOCAL_CALLER, upload.id)) == b"freshbytes"
    assert len(keys(store)) == 2  # the parts of the earlier writer are deleted


def test_one_of_two_processes_at_the_same_offset_succeeds(database: Database, store: ObjectStore) -> None:
    first, second = (Uploads(database, store) for _ in range(2))
    upload = first.create(LOCAL_CALLER, 4000)
    barrier = threading.Barrier(2)
    outcomes: list[str] = []

    def race(uploads: Uploads, byte: bytes) -> None:
        for _ in range(10):
            offset = uploads.get(LOCAL_CALLER, upload.id).offset
            barrier.wait(30.0)
            try:
                uploads.append(LOCAL_CALLER, upload.id, offset, [byte * 100])
                outcomes.append("accepted")
            except Conflict:
                outcomes.append("late")
            barrier.wait(30.0)

    threads = [threading.Thread(target=race, args=pair) for pair in ((first, b"a"), (second, b"b"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    size = first.get(LOCAL_CALLER, upload.id).offset
    assert size == 100 * outcomes.count("accepted") and 10 <= outcomes.count("accepted") <= 20
    first.append(LOCAL_CALLER, upload.id, size, [b"c" * (4000 - size)])
    whole = b"".join(first.content(LOCAL_CALLER, upload.id))
    assert all(len(set(whole[offset : offset + 100])) == 1 for offset in range(0, 4000, 100)), (
        "bytes of the two writers are mixed"
    )


def test_a_stalled_writer_is_fenced(database: Database, store: ObjectStore) -> None:
    uploads = Uploads(database, store, ttl=100.0, largest=1000, limits=UploadLimits(stalled=0.05))
    upload = uploads.create(LOCAL_CALLER, 10)
    stalled, resumed = threading.Event(), threading.Event()
    outcomes: list[str] = []

    def body() -> Iterator[bytes]:
        yield b"abc"
        stalled.set()
        resumed.wait(30.0)

    def append() -> None:
        try:
            uploads.append(LOCAL_CALLER, upload.id, 0, body())
        except OffsetMismatch:
            outcomes.append("late")

    thread = threading.Thread(target=append)
    thread.start()
    assert stalled.wait(30.0)
    assert uploads.settled(LOCAL_CALLER, upload.id).offset == 0
    assert uploads.append(LOCAL_CALLER, upload.id, 0, [b"0123456789"]).finished
    resumed.set()
    thread.join(30.0)
    assert outcomes == ["late"]
    assert b"".join(uploads.content(LOCAL_CALLER, upload.id)) == b"0123456789"


class Killed(BaseException):
    """Raised where the process dies; none of its code continues."""


class DyingStore:
    """Store that passes calls on until an object is stored; there the process dies and no later call has an effect."""

    def __init__(self, target: object, killed: threading.Event) -> None:
        self._target = target
        self._killed = killed

    def __getattr__(self, name: str) -> Any:
        if self._killed.is_set():
            raise Killed
        return getattr(self._target, name)

    def put(self, key: str, chunks: Iterable[bytes]) -> int:
        self.__getattr__("put")(key, chunks)
        self._killed.set()
        raise Killed


def test_an_upload_of_a_dead_process_resumes_at_its_offset(database: Database, store: ObjectStore) -> None:
    killed = threading.Event()
    dying_database: Any = DyingStore(database, killed)
    dying_store: Any = DyingStore(store, killed)
    uploads = Uploads(dying_database, dying_store, ttl=100.0)
    upload = uploads.create(LOCAL_CALLER, 10)
    with pytest.raises(Killed):
        uploads.append(LOCAL_CALLER, upload.id, 0, [b"01234"])
    other = Uploads(database, store, ttl=100.0, limits=UploadLimits(stalled=0.05))
    assert other.settled(LOCAL_CALLER, upload.id).offset == 0
    other.append(LOCAL_CALLER, upload.id, 0, [b"0123456789"])
    assert len(keys(store)) == 2
    other.remove_orphans()
    assert len(keys(store)) == 1
    assert b"".join(other.content(LOCAL_CALLER, upload.id)) == b"0123456789"


def test_the_search_for_unreferenced_objects_skips_recent_objects(uploads: Uploads, store: ObjectStore) -> None:
    upload = uploads.create(LOCAL_CALLER, 10)

    def body() -> Iterator[bytes]:
        yield b"01234"
        store.put(f"uploads/{upload.id}/00000000000005-aaaaaaaaaaaaaaaa", [b"56789"])
        uploads.remove_orphans()
        assert len(keys(store)) == 1

    uploads.append(LOCAL_CALLER, upload.id, 0, body())
    store.put("uploads/00000000000000000000000000/00000000000000-aaaaaaaaaaaaaaaa", [b"unreferenced"])
    uploads.remove_orphans()
    assert len(keys(store)) == 2
    uploads.append(LOCAL_CALLER, upload.id, 5, [b"56789"])
    uploads.remove_orphans()
    assert b"".join(uploads.content(LOCAL_CALLER, upload.id)) == b"0123456789" and len(keys(store)) == 2


def test_shared_bytes_stay_until_their_last_upload_is_deleted(uploads: Uploads, store: ObjectStore) -> None:
    parts = [finished_upload(uploads, data, partial=True).id for data in (b"ab", b"cd")]
    first = uploads.concatenate(LOCAL_CALLER, parts, "", "").id
    second = uploads.concatenate(LOCAL_CALLER, [parts[1], parts[0]], "", "").id
    for id in (*parts, first):
        uploads.delete(LOCAL_CALLER, id)
    uploads.remove_orphans()
    assert b"".join(uploads.content(LOCAL_CALLER, second)) == b"cdab"
    uploads.delete(LOCAL_CALLER, second)
    assert keys(store) == []


def test_an_unfinished_upload_has_no_content(uploads: Uploads) -> None:
    upload = uploads.create(LOCAL_CALLER, 10)
    uploads.append(LOCAL_CALLER, upload.id, 0, [b"01234"])
    for call in (
        lambda: uploads.content(LOCAL_CALLER, upload.id),
        lambda: uploads.read(LOCAL_CALLER, upload.id, 0, 1),
        lambda: uploads.hold(LOCAL_CALLER, upload.id),
    ):
        with pytest.raises(UploadUnfinished):
            call()


def test_an_idle_upload_expires_and_each_append_extends_its_time(uploads: Uploads, clock: Clock) -> None:
    upload = uploads.create(LOCAL_CALLER, 10)
    clock.now += 99.0
    uploads.append(LOCAL_CALLER, upload.id, 0, [b"01234"])
    clock.now += 99.0
    assert uploads.sweep() == 0 and uploads.get(LOCAL_CALLER, upload.id).offset == 5
    clock.now += 2.0
    with pytest.raises(Gone):
        uploads.get(LOCAL_CALLER, upload.id)
    assert uploads.sweep() == 1
    with pytest.raises(UnknownUpload):
        uploads.get(LOCAL_CALLER, upload.id)


def test_an_upload_without_bytes_expires_early(database: Database, store: ObjectStore, clock: Clock) -> None:
    uploads = Uploads(database, store, ttl=86_400.0, largest=1000)
    empty, begun = uploads.create(LOCAL_CALLER, 10), uploads.create(LOCAL_CALLER, 10)
    uploads.append(LOCAL_CALLER, begun.id, 0, [b"0"])
    assert uploads.create(LOCAL_CALLER, 0).expires_at > empty.expires_at, "it is finished"
    clock.now += 601.0
    with pytest.raises(Gone):
        uploads.append(LOCAL_CALLER, empty.id, 0, [b"0"])
    assert uploads.sweep() == 1
    assert uploads.get(LOCAL_CALLER, begun.id).offset == 1


def test_an_upload_that_is_being_written_does_not_expire(database: Database, store: ObjectStore, clock: Clock) -> None:
    uploads = Uploads(database, store, ttl=86_400.0, largest=1000)
    id = uploads.create(LOCAL_CALLER, 10).id

    def body() -> Iterator[bytes]:
        yield b"01234"
        clock.now += 3600.0
        assert uploads.sweep() == 0
        yield b"56789"

    checksum = Checksum("sha1", hashlib.sha1(b"0123456789").digest())
    assert uploads.append(LOCAL_CALLER, id, 0, body(), checksum=checksum).finished
    clock.now += 90_000.0
    assert uploads.sweep() == 1


def test_unfinished_uploads_of_a_caller_are_limited_until_they_expire(
    database: Database, store: ObjectStore, clock: Clock
) -> None:
    uploads = Uploads(database, store, limits=UploadLimits(per_caller=2, empty_ttl=30.0))
    for _ in range(2):
        uploads.create(replace(LOCAL_CALLER, address="a"), 1)
    clock.now += 20.0
    with pytest.raises(TooManyUploads) as refused:
        uploads.create(replace(LOCAL_CALLER, address="a"), 1)
    assert refused.value.members["retry_after"] == pytest.approx(10.0)
    uploads.create(replace(LOCAL_CALLER, address="b"), 1)
    clock.now += 10.0
    uploads.create(replace(LOCAL_CALLER, address="a"), 1)


def test_a_pinned_upload_neither_expires_nor_is_deleted(uploads: Uploads, store: ObjectStore, clock: Clock) -> None:
    upload = finished_upload(uploads, b"x")
    uploads.hold(LOCAL_CALLER, upload.id, 500.0)
    clock.now += 200.0
    assert uploads.sweep() == 0 and b"".join(uploads.content(LOCAL_CALLER, upload.id)) == b"x"
    with pytest.raises(InUse):
        uploads.delete(LOCAL_CALLER, upload.id)
    uploads.let_go(LOCAL_CALLER, upload.id)
    assert uploads.sweep() == 1
    assert keys(store) == []


def test_an_upload_deleted_during_an_append_keeps_no_bytes(uploads: Uploads, store: ObjectStore) -> None:
    upload = uploads.create(LOCAL_CALLER, 10)

    def body() -> Iterator[bytes]:
        yield b"01234"
        uploads.delete(LOCAL_CALLER, upload.id)

    with pytest.raises((NotFound, UnknownUpload)):
        uploads.append(LOCAL_CALLER, upload.id, 0, body())
    assert keys(store) == []
