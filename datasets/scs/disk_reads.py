"""Reads from the disk, in threads: parts of objects that are not in memory, and whole objects without checksums."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from datasets.scs.block_checksums import Damaged, verify, verify_on_disk
from datasets.scs.open_files import OpenFile
from datasets.scs.scrub import Stopped, with_checksums
from datasets.scs.store import Store, StoredObject

#: Called with an object that has checksums, with the reason why it is damaged, or with None: the service ends.
ChecksumsAdded = Callable[[StoredObject | str | None], None]


class DiskReads:
    """Threads that read and verify. ``call`` schedules a function on the loop; so every ``done`` is called there."""

    def __init__(self, store: Store, call: Callable[[Callable[[], None]], None], stopping: threading.Event) -> None:
        self._store, self._call, self._stopping = store, call, stopping
        self._readers = ThreadPoolExecutor(4, "read")
        # a large object takes minutes; no other read waits for it
        self._whole_readers = ThreadPoolExecutor(2, "read-whole")
        self._awaiting_checksums: dict[str, list[ChecksumsAdded]] = {}

    def read(self, stored: StoredObject, done: Callable[[bytes | str], None]) -> None:
        """Read a small object; ``done`` is called with its bytes, or with the reason why it is damaged."""
        self._readers.submit(self._read, stored, done)

    def verify(self, file: OpenFile, start: int, end: int, done: Callable[[str], None]) -> None:
        """Read and verify a part of a file; ``done`` is called with the reason why it is damaged, or an empty text."""
        self._readers.submit(self._verify, file, start, end, done)

    def add_checksums(self, stored: StoredObject, done: ChecksumsAdded) -> None:
        """Verify an object of an earlier version as a whole, once for all requests that wait for it."""
        waiting = self._awaiting_checksums.setdefault(stored.path, [])
        waiting.append(done)
        if len(waiting) == 1:
            self._whole_readers.submit(self._add_checksums, stored)

    def close(self) -> None:
        """Wait for the reads in progress; drop the others."""
        for pool in (self._readers, self._whole_readers):
            pool.shutdown(cancel_futures=True)

    def _read(self, stored: StoredObject, done: Callable[[bytes | str], None]) -> None:
        result: bytes | str
        try:
            with open(stored.path, "rb", buffering=0) as file:
                result = os.pread(file.fileno(), stored.size, 0)
            if len(result) == stored.size:
                verify(result, stored.checksums, 0)
            else:
                result = "its file is too short"
        except (OSError, Damaged) as error:
            result = _reason(error)
        self._call(partial(done, result))

    def _verify(self, file: OpenFile, start: int, end: int, done: Callable[[str], None]) -> None:
        reason = ""
        try:
            verify_on_disk(file.descriptor, file.stored.checksums, file.stored.size, start, end)
        except (OSError, Damaged) as error:
            reason = _reason(error)
        self._call(partial(done, reason))

    def _add_checksums(self, stored: StoredObject) -> None:
        result: StoredObject | str | None = None
        try:
            result = with_checksums(self._store, stored, self._stopping)
        except (OSError, Damaged) as error:
            result = _reason(error)
        except Stopped:
            pass
        self._call(partial(self._checksums_added, stored.path, result))

    def _checksums_added(self, path: str, result: StoredObject | str | None) -> None:
        for done in self._awaiting_checksums.pop(path):
            done(result)


def _reason(error: OSError | Damaged) -> str:
    if isinstance(error, FileNotFoundError):  # replaced or evicted meanwhile
        return "its file is missing"
    return f"its file cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
