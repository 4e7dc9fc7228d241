"""External merge sort: sorted runs on disk, merged as they are read, for more records than fit into memory."""

import heapq
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO

#: Bytes of records that are held in memory before they are written to disk as a run.
HELD = 16 << 20
#: Runs that are merged at once; at this number all runs are merged into one, to limit the open files.
RUNS = 64


class Sorter:
    """Accepts records (key, value) in any order and yields them sorted. No line breaks; keys contain no NUL."""

    def __init__(self, folder: Path, *, held: int = HELD) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._memory_limit = held
        self._records: list[bytes] = []
        self._bytes = 0
        self._runs: list[IO[bytes]] = []
        self._files = ExitStack()

    def __enter__(self) -> "Sorter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._files.close()

    def add(self, key: bytes, value: bytes) -> None:
        """Add a record."""
        record = key + b"\0" + value + b"\n"  # NUL is the least byte: whole records sort by their keys
        self._records.append(record)
        self._bytes += len(record) + 60  # Python's overhead per record
        if self._bytes > self._memory_limit:
            self._write_run(iter(sorted(self._records)))
            self._records = []
            self._bytes = 0

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield every record sorted by key; may be called repeatedly."""
        self._records.sort()
        for run in self._runs:
            run.seek(0)
        for record in heapq.merge(*self._runs, self._records):
            key, _, value = record.rstrip(b"\n").partition(b"\0")
            yield key, value

    def _write_run(self, records: Iterator[bytes]) -> None:
        run = self._files.enter_context(tempfile.TemporaryFile(dir=self._folder))
        run.writelines(records)
        self._runs.append(run)
        if len(self._runs) >= RUNS:
            merged_runs, self._runs = self._runs, []
            for merged_run in merged_runs:
                merged_run.seek(0)
            self._write_run(heapq.merge(*merged_runs))
            for merged_run in merged_runs:
                merged_run.close()
