"""Resumable uploads: bytes become durable part by part; the offset is the exact number of durable bytes.

A part is an object of its own. Its row is inserted and the offset advanced in one transaction, by compare-and-set on
offset and writer. So a crash at any point loses and duplicates nothing, several processes can serve one upload, and no
locks are held: a later request takes the upload over, and the earlier one is refused at its next part.
"""

import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import NoReturn

from common.errors import (
    ChecksumMismatch,
    FinalUpload,
    Gone,
    InUse,
    Invalid,
    OffsetMismatch,
    QuotaExceeded,
    TooLarge,
    TooManyUploads,
    UnknownUpload,
    UploadsBusy,
    UploadUnfinished,
)
from common.ids import new_id
from core.domain.access.quotas import Charge
from core.domain.access.scopes import PLATFORM, Caller
from core.domain.submissions.uploads import PART, Checksum, Upload, UploadBuffer
from core.services.orphan_search import OrphanSearch
from core.services.uploads.disk_floor import DiskFloor
from core.store import quotas
from core.store import uploads as store
from core.store.database import Connection, Database
from datasets.objectstore.base import ObjectStore

FOLDER = "uploads"
#: Maximum of partial uploads in a concatenation.
MOST_SOURCES = 10_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """Limits and timings of the upload service."""

    #: Maximum of unfinished uploads of a caller (common/client_addresses.py).
    per_caller: int = 500
    #: Maximum of unfinished uploads of a project; a caller without an unfinished upload may still create one.
    per_project: int = 10_000
    #: Seconds that an upload without bytes is kept, unless a request is writing to it.
    empty_ttl: float = 600.0
    #: Maximum of seconds after which a refused creation is told to be repeated: others may finish at any time.
    retry: float = 60.0
    #: Maximum of requests that write in one process: each occupies a thread for as long as its client sends.
    writers: int = 256
    #: Bytes per part.
    part: int = PART
    #: Seconds without progress after which a writer is removed when a client requests the offset.
    stalled: float = 0.5
    #: Maximum seconds that a request for the offset waits for a writer that makes progress.
    moving: float = 3.0


class Uploads:
    """Service of the uploads API (tus 1.0), and access to finished uploads for other services."""

    def __init__(
        self,
        database: Database,
        objects: ObjectStore,
        *,
        ttl: float = 86_400.0,
        largest: int = 64 << 30,
        limits: UploadLimits | None = None,
        floor: DiskFloor | None = None,
    ) -> None:
        self._database = database
        self._objects = objects
        self._ttl = ttl
        self.largest = largest
        self._limits = limits or UploadLimits()
        self._floor = floor or DiskFloor()
        self._busy: dict[str, str] = {}  # upload -> its writer in this process
        self._lock = threading.Lock()
        self._orphan_search = OrphanSearch()

    # -- create

    def create(self, caller: Caller, length: int | None, metadata: str = "", *, partial: bool = False) -> Upload:
        """Create an upload of ``length`` bytes; None: the length is sent later.

        Raise TooManyUploads if the caller, or all callers of the project together, have too many unfinished uploads.
        """
        self._fits(length)
        self._floor.check(length or 0)
        kind = "partial" if partial else "whole"
        return self._add(caller, kind, length, [], metadata=metadata)

    def concatenate(self, caller: Caller, ids: Sequence[str], metadata: str, sources: str) -> Upload:
        """Create a finished upload from partial uploads, in order; it refers to their bytes and outlives them."""
        if not 1 <= len(ids) <= MOST_SOURCES:
            raise Invalid(f"A final upload is made of 1 to {MOST_SOURCES:,} partial ones.")
        if (repeated := next((id for id, count in Counter(ids).items() if count > 1), None)) is not None:
            # A few sent bytes would become as many as an upload may have, in every model and dataset made from it.
            raise Invalid(f"Upload {repeated} is named more than once. Name each partial upload once.")
        self._floor.check()
        return self._add(caller, "final", None, ids, metadata=metadata, sources=sources)

    def _add(
        self,
        caller: Caller,
        kind: str,
        length: int | None,
        ids: Sequence[str],
        *,
        metadata: str,
        sources: str | None = None,
    ) -> Upload:
        """Create an upload; ``ids``: of the partial uploads that a final one consists of."""
        moment = datetime.now(UTC)
        id = new_id(moment)
        final = kind == "final"

        def write(c: Connection) -> store.UploadRow:
            now = self._database.now(c)
            known = self._refer(c, caller, id, ids, now) if final else length
            if length:
                quotas.room(c, caller.scope.owner, caller.name, Charge(stored_bytes=length))
            if not final and length != 0:
                self._admit(c, caller, now)
            offset = known if final else 0
            ttl = self._ttl if known == offset else min(self._ttl, self._limits.empty_ttl)
            row = {"id": id, "project": caller.scope.owner, "kind": kind, "length": known, "offset": offset}
            row |= {"metadata": metadata, "sources": sources, "caller": caller.name}
            return store.add(c, row | {"created_at": now, "expires_at": now + ttl})

        # An empty upload may be lost in a power failure; the write of the first bytes makes it durable.
        return _record(self._database.write(write, durable=final or length == 0))

    def _admit(self, c: Connection, caller: Caller, now: float) -> None:
        """Raise TooManyUploads if a caller may not create another upload that lacks bytes."""
        limits = self._limits
        own, next_expiry = store.unfinished_of(c, caller.scope, caller.name, now)
        detail = None
        if own >= limits.per_caller:
            detail = f"{own:,} of your uploads are unfinished, and a caller may have {limits.per_caller:,}."
        elif own and store.unfinished(c, caller.scope, now) >= limits.per_project:
            detail = f"{limits.per_project:,} uploads of the project are unfinished, and it may have no more."
        if detail is not None:
            wait = max(1.0, min(next_expiry - now, limits.retry))
            raise TooManyUploads(
                f"{detail} Finish or delete some of them, or wait until they expire.", retry_after=wait
            )

    def _refer(self, c: Connection, caller: Caller, id: str, ids: Sequence[str], now: float) -> int:
        rows = store.lock(c, caller.scope, set(ids))
        start = 0
        for source in ids:
            row = rows.get(source)
            if row is None or not self._is_alive(row, now):
                raise Invalid(f"There is no upload {source[:100]!r} to concatenate.")
            if row.kind != "partial":
                raise Invalid(f"Upload {source} was not created as a partial upload (`Upload-Concat: partial`).")
            if row.length != row.offset:
                raise UploadUnfinished(f"Upload {source} still waits for bytes; finish it first.")
            store.refer(c, id, source, start)
            start += row.offset
        self._fits(start)
        return start

    def _fits(self, length: int | None) -> None:
        if length is not None and length > self.largest:
            raise TooLarge(f"An upload has at most {self.largest:,} bytes.")

    # -- queries

    def get(self, caller: Caller, id: str) -> Upload:
        """Return an upload. Raise UnknownUpload, or Gone if it has expired."""
        return _record(self._find(caller, id))

    def _find(self, caller: Caller, id: str) -> store.UploadRow:
        with self._database.read() as c:
            row = store.find(c, caller.scope, id)
            now = self._database.now(c)
        if row is None:
            raise UnknownUpload()
        self._alive(row, now)
        return row

    @property
    def _grace(self) -> float:
        """Seconds by which a writer extends an upload's life; a process that was killed stays its writer for ever."""
        return max(0.0, self._ttl)

    def _is_alive(self, row: store.UploadRow, now: float) -> bool:
        grace = self._grace if row.writer is not None else 0.0
        return row.expires_at + grace > now or row.held_until > now

    def _alive(self, row: store.UploadRow, now: float) -> None:
        if not self._is_alive(row, now):
            raise Gone("This upload has expired and is being deleted. Create a new one.")

    def settled(self, caller: Caller, id: str) -> Upload:
        """Return an upload with a stable offset, from which a client can resume.

        A request whose connection was cut may still be storing received bytes: this waits for it. A request that
        makes no progress (a half-open connection) is removed as writer, so it can no longer advance the offset.
        """
        began = still_since = time.monotonic()
        before = None
        while (row := self._find(caller, id)).writer is not None:
            now = time.monotonic()
            if (position := (row.writer, row.offset)) != before:
                before, still_since = position, now
            elif now - still_since > self._limits.stalled:
                self._release(caller, id, row.writer, row.offset)
                continue
            if now - began > self._limits.moving:
                break  # the writer is alive, and the client only asks for the progress
            time.sleep(0.02)
        return _record(row)

    def list(self, caller: Caller, *, after: str | None = None, limit: int = 50) -> tuple[list[Upload], str | None]:
        """Return a page, newest first, and the cursor of the next."""
        with self._database.read() as c:
            rows = store.page(c, caller.scope, after=after, limit=limit + 1)
        page = [_record(row) for row in rows[:limit]]
        return page, page[-1].id if len(rows) > limit else None

    # -- append

    def append(
        self,
        caller: Caller,
        id: str,
        offset: int,
        chunks: Iterable[bytes],
        *,
        announced: int | None = None,
        length: int | None = None,
        checksum: Checksum | None = None,
    ) -> Upload:
        """Append bytes at the offset and return the upload; bytes received before a disconnection are kept.

        ``announced``: bytes of this request, if known. ``length``: the upload's length, if it was deferred. With a
        ``checksum`` all bytes are stored or none.
        """
        self._floor.check(announced or 0)
        writer = secrets.token_hex(8)
        with self._at_work(id, writer):
            upload = taken = self._take(caller, id, offset, writer, announced, length)
            try:
                room = (self.largest if upload.length is None else upload.length) - offset
                algorithm = checksum.algorithm if checksum else None
                intake = UploadBuffer(chunks, room, algorithm=algorithm, pace=checksum is None, part=self._limits.part)
                if checksum is not None:
                    upload = self._all_or_nothing(caller, upload, writer, intake, checksum)
                else:
                    upload = self._part_by_part(caller, upload, writer, intake)
                return upload
            finally:
                if upload is taken or not upload.finished:  # the write of the last bytes removes the writer
                    self._release(caller, id, writer)

    @contextmanager
    def _at_work(self, id: str, writer: str) -> Iterator[None]:
        """Limit the requests that write; a request whose upload another has taken over no longer counts."""
        with self._lock:
            if id not in self._busy and len(self._busy) >= self._limits.writers:
                raise UploadsBusy()
            self._busy[id] = writer
        try:
            yield
        finally:
            with self._lock:
                if self._busy.get(id) == writer:
                    del self._busy[id]

    def _take(
        self, caller: Caller, id: str, offset: int, writer: str, announced: int | None, length: int | None
    ) -> Upload:
        def write(c: Connection) -> store.UploadRow | None:
            before = store.find(c, caller.scope, id)
            if before is not None:
                caller.require_change(before.caller)
            if before is not None:
                self._alive(before, self._database.now(c))  # before it has this writer, which extends its life
            row = store.take(c, caller.scope, id, offset, writer, length)
            if row is not None:
                self._has_room(row, offset, announced, length)
            return row

        self._fits(length)
        taken = self._database.write(write, durable=length is not None)
        if taken is None:
            self._refuse(caller, id, offset, announced, length)
        return _record(taken)

    def _refuse(self, caller: Caller, id: str, offset: int, announced: int | None, length: int | None) -> NoReturn:
        """Raise the error for an upload that cannot be written at an offset."""
        row = self._find(caller, id)
        if row.kind == "final":
            raise FinalUpload()
        self._has_room(row, offset, announced if row.offset == offset else None, length)
        raise OffsetMismatch(
            f"The upload's offset is {row.offset}, not {offset}. Ask for it with HEAD, then resume.",
            offset=row.offset,
        )

    def _has_room(self, row: store.UploadRow, offset: int, announced: int | None, length: int | None) -> None:
        total = row.length if row.length is not None else length
        self._fits(total)
        if length is not None and (total != length or length < offset):
            raise Invalid(f"The upload has another length than {length}.")
        if announced is not None and offset + announced > (self.largest if total is None else total):
            raise TooLarge(f"{announced} bytes from offset {offset} on exceed the length of the upload.")

    def _part_by_part(self, caller: Caller, upload: Upload, writer: str, intake: UploadBuffer) -> Upload:
        for chunks in intake.parts():
            start = upload.offset
            part = self._keep(upload.id, start, chunks)
            upload = self._advance(caller, upload, writer, [part], over=intake.ended)
        return upload

    def _all_or_nothing(
        self, caller: Caller, upload: Upload, writer: str, intake: UploadBuffer, checksum: Checksum
    ) -> Upload:
        stored: list[tuple[int, int, str]] = []
        to = upload.offset
        try:
            for chunks in intake.parts():
                stored.append(self._keep(upload.id, to, chunks))
                to += stored[-1][1]
            if intake.digest() != checksum.digest:
                raise ChecksumMismatch()
        except BaseException:
            self._discard(stored)
            raise
        return self._advance(caller, upload, writer, stored, over=True)

    def _keep(self, id: str, start: int, chunks: Iterator[bytes]) -> tuple[int, int, str]:
        key = f"{FOLDER}/{id}/{start:014}-{secrets.token_hex(8)}"
        return start, self._objects.put(key, self._floor.watched(chunks)), key

    def _advance(
        self, caller: Caller, upload: Upload, writer: str, stored: Sequence[tuple[int, int, str]], *, over: bool
    ) -> Upload:
        over = over or upload.offset + sum(size for _, size, _ in stored) == upload.length

        def write(c: Connection) -> store.UploadRow | None:
            until = self._database.now(c) + self._ttl
            return store.advance(c, upload.id, writer, stored, since=upload.offset, expires_at=until, over=over)

        try:
            row = self._database.write(write)
        except QuotaExceeded:
            self._discard(stored)
            raise
        if row is None:
            self._discard(stored)
            at = self._find(caller, upload.id).offset
            raise OffsetMismatch("Another request has taken this upload over; this request ends.", offset=at)
        return _record(row)

    def _discard(self, stored: Iterable[tuple[int, int, str]]) -> None:
        """Delete objects without rows; if that fails, the next search for orphans deletes them."""
        for _, _, key in stored:
            with suppress(OSError):
                self._objects.delete(key)

    def _release(self, caller: Caller, id: str, writer: str, offset: int | None = None) -> None:
        with self._database.read() as c:
            row = store.find(c, caller.scope, id)
        if row is not None and row.writer == writer:
            self._database.write(lambda c: store.release(c, id, writer, offset), durable=False)

    # -- content

    def content(self, caller: Caller, id: str) -> Iterator[bytes]:
        """Yield the bytes of an upload. Raise UploadUnfinished before the first byte if it is not finished."""
        return self._pieces(id, 0, self._whole(caller, id))

    def read(self, caller: Caller, id: str, start: int, length: int) -> bytes:
        """Return up to ``length`` bytes of a finished upload from ``start`` on."""
        return b"".join(self._pieces(id, start, min(start + length, self._whole(caller, id))))

    def _whole(self, caller: Caller, id: str) -> int:
        row = self._find(caller, id)
        if row.length != row.offset:
            raise UploadUnfinished(f"Upload {id} has {row.offset} of its bytes; finish it first.", offset=row.offset)
        return row.offset

    def _pieces(self, id: str, position: int, stop: int) -> Iterator[bytes]:
        while position < stop:
            with self._database.read() as c:
                parts = store.parts_from(c, id, position)
            if not parts:
                raise Gone("This upload was deleted while it was read.")
            for part in parts:
                skip = position - part.start
                take = min(part.bytes - skip, stop - position)
                if take <= 0:
                    return
                yield from self._objects.get(part.object, skip, take)
                position += take

    def hold(self, caller: Caller, id: str, seconds: float = 3600.0) -> Upload:
        """Protect a finished upload from expiry and deletion for ``seconds``; may be renewed."""
        self._whole(caller, id)

        def write(c: Connection) -> bool:
            return store.hold(c, caller.scope, id, self._database.now(c) + seconds)

        if not self._database.write(write):
            raise UnknownUpload()
        return self.get(caller, id)

    def let_go(self, caller: Caller, id: str) -> None:
        """End the protection, unless a dataset is being registered from the upload; harmless if it is deleted."""
        self._database.write(lambda c: store.let_go(c, caller.scope, id), durable=False)

    # -- deletion

    def delete(self, caller: Caller, id: str) -> None:
        """Delete an upload; bytes that a final upload refers to stay until that is deleted too."""
        caller.require_change(self._find(caller, id).caller)

        def write(c: Connection) -> list[str] | None:
            row = store.lock(c, caller.scope, [id]).get(id)
            if row is not None and row.held_until > self._database.now(c):
                raise InUse("A dataset is being registered from this upload. Try again when that has ended.")
            return store.remove(c, caller.scope, id)

        objects = self._database.write(write)
        if objects is None:
            raise UnknownUpload()
        self._clear(id, objects)

    def sweep(self) -> int:
        """Delete expired uploads, and once an hour orphans; return the number of deleted uploads."""
        deleted = 0
        while ids := self._expired():
            for id in ids:
                objects = self._database.write(lambda c, id=id: self._remove_expired(c, id))  # type: ignore[misc]
                if objects is not None:
                    self._clear(id, objects)
                    deleted += 1
        if self._orphan_search.begin():
            self.remove_orphans()
        return deleted

    def _expired(self) -> Sequence[str]:
        with self._database.read() as c:
            return store.expired(c, self._database.now(c), self._grace)

    def _remove_expired(self, c: Connection, id: str) -> Sequence[str] | None:
        row = store.lock(c, PLATFORM, [id]).get(id)
        now = self._database.now(c)
        if row is None or self._is_alive(row, now):
            return None  # a client has resumed it meanwhile
        return store.remove(c, PLATFORM, id)

    def remove_orphans(self) -> None:
        """Delete objects that no upload refers to, which a crash between object and row leaves.

        Objects of an unfinished upload stay, because a running request may be about to insert the row.
        """
        for id, group in groupby(self._objects.list(f"{FOLDER}/"), lambda key: key.split("/")[1]):
            keys = list(group)
            with self._database.read() as c:
                row = store.find(c, PLATFORM, id)
            if row is None or row.length == row.offset:
                self._clear(id, keys)

    def _clear(self, id: str, objects: Sequence[str]) -> None:
        keys = sorted({*objects, *self._objects.list(f"{FOLDER}/{id}/")})
        with self._database.read() as c:
            orphans = store.unreferenced(c, keys)
        for key in orphans:
            self._objects.delete(key)


def _record(row: store.UploadRow) -> Upload:
    return Upload(
        id=row.id,
        kind=row.kind,
        length=row.length,
        offset=row.offset,
        metadata=row.metadata,
        sources=row.sources,
        created_at=datetime.fromtimestamp(row.created_at, UTC),
        expires_at=datetime.fromtimestamp(row.expires_at, UTC),
    )
