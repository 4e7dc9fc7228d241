"""Sorting more than memory holds: sorted runs on disk, merged as they are read."""

import heapq
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO

#: Bytes of records that are held before they go to disk as one run.
HELD = 16 << 20
#: Runs that are merged at once; more are merged into one first, so that files stay few.
RUNS = 64


class Sorter:
    """Takes records (key, value) in any order and gives them back by key. Neither holds a line break, keys no NUL."""

    def __init__(self, folder: Path, *, held: int = HELD) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._most = held
        self._records: list[bytes] = []
        self._bytes = 0
        self._runs: list[IO[bytes]] = []
        self._files = ExitStack()

    def __enter__(self) -> "Sorter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._files.close()

    def add(self, key: bytes, value: bytes) -> None:
        """Take a record."""
        record = key + b"\0" + value + b"\n"  # NUL is the least byte: whole records sort as their keys do
        self._records.append(record)
        self._bytes += len(record) + 60  # what Python keeps for each
        if self._bytes > self._most:
            self._spill(iter(sorted(self._records)))
            self._records = []
            self._bytes = 0

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield every record by key, as often as asked."""
        self._records.sort()
        for run in self._runs:
            run.seek(0)
        for record in heapq.merge(*self._runs, self._records):
            key, _, value = record.rstrip(b"\n").partition(b"\0")
            yield key, value

    def _spill(self, records: Iterator[bytes]) -> None:
        run = self._files.enter_context(tempfile.TemporaryFile(dir=self._folder))
        run.writelines(records)
        self._runs.append(run)
        if len(self._runs) >= RUNS:
            whole, self._runs = self._runs, []
            for one in whole:
                one.seek(0)
            self._spill(heapq.merge(*whole))
            for one in whole:
                one.close()
