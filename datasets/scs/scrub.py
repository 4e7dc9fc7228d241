"""Whole reads of objects: compares them with their SHA-256, and adds the checksums of blocks that are absent.

The scrub reads every object. An object that an earlier version has stored, without checksums, is read when it is first
requested.
"""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from datasets.scs.block_checksums import BlockHasher, Damaged
from datasets.scs.object_index import ObjectIndex, Row
from datasets.scs.store import Store, StoredObject, etag_of, is_unreadable, try_lock

_CHUNK = 1 << 20


class Content(NamedTuple):
    """What a whole read computes: the SHA-256 of a file's bytes, and the checksums of its blocks."""

    digest: bytes
    checksums: bytes


class Stopped(Exception):
    """The service ends before the file was read."""


def scrub(store: Store, stop: threading.Event, *, rate: int = 0, start: bytes = b"") -> Iterator[bool]:
    """Read every object, from ``start`` on and wrapping around, and check its digest; yield whether it is intact.

    Damaged objects are dropped. ``rate`` in bytes per second; 0: unlimited.
    """
    at = time.monotonic()

    def stops(count: int) -> bool:
        nonlocal at
        at = max(at, time.monotonic() - 1.0) + (count / rate if rate else 0.0)
        return stop.wait(max(0.0, at - time.monotonic()))

    for row in _all_rows(store.index, start):
        digest, reason = b"", "its digest differs"
        try:
            digest, checksums = _read_whole(store.folder / row.file, stops)
        except Stopped:
            return
        except FileNotFoundError:
            continue  # replaced or evicted meanwhile; a missing file is found by its next reader
        except OSError as error:
            if not is_unreadable(error):
                raise
            reason = f"its file cannot be read: {error.strerror}"
        if digest == row.digest:
            if checksums != row.checksums:  # absent, or damaged themselves
                store.index.set_checksums(row.name, row.file, checksums)
            yield True
        elif (present := store.index.get_row(row.name)) is not None and present.file == row.file:
            store.drop_damaged(row, reason)
            yield False


def with_checksums(store: Store, stored: StoredObject, stop: threading.Event) -> StoredObject:
    """Return an object with the checksums of its blocks, which its row lacks; raise Damaged, Stopped or OSError."""
    content = _read_whole(Path(stored.path), lambda _: stop.is_set())
    if etag_of(content.digest) != stored.etag:
        raise Damaged("its digest differs")
    store.index.set_checksums(stored.name, str(Path(stored.path).relative_to(store.folder)), content.checksums)
    return replace(stored, checksums=content.checksums)


def acquire_scrub_lock(folder: Path) -> int | None:
    """Return a descriptor that holds the folder's scrub lock, None while another process has it."""
    descriptor = os.open(folder / "scrub", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if try_lock(descriptor):
        return descriptor
    os.close(descriptor)
    return None


def _read_whole(path: Path, stops: Callable[[int], bool]) -> Content:
    """Read a file; ``stops`` is called with the bytes of each piece, and ends the reading by returning true."""
    hasher, blocks = hashlib.sha256(), BlockHasher()
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            hasher.update(chunk)
            blocks.update(chunk)
            if stops(len(chunk)):
                raise Stopped
    return Content(hasher.digest(), blocks.checksums())


def _all_rows(index: ObjectIndex, start: bytes) -> Iterator[Row]:
    """Yield all rows by name from ``start`` on, wrapping around: interrupted rounds still cover every object."""
    name = start
    while rows := index.rows_after(name, 100):
        yield from rows
        name = rows[-1].name
    name = b""
    while rows := index.rows_after(name, 100):
        for row in rows:
            if row.name > start:
                return
            yield row
        name = rows[-1].name
