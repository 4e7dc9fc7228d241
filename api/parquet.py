"""Results as Parquet. A separate module, because pyarrow is large and is imported only at the first such request."""

import hashlib
import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from api.tabular import PARQUET, Lines, columns, fitted, rows
from core.domain.downloads import Download

#: Most rows of a record batch.
ROWS = 20_000
_KINDS: Mapping[str, pa.DataType] = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(), "str": pa.string()}


def batches(table_rows: Iterable[Mapping[str, Any]], kinds: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Yield rows as record batches of at most ROWS rows."""
    schema = pa.schema([(name, _KINDS[kind]) for name, kind in kinds.items()])
    buffered: list[Mapping[str, Any]] = []

    def batch() -> pa.RecordBatch:
        arrays = [
            pa.array([fitted(row.get(name), kind) for row in buffered], type=_KINDS[kind])
            for name, kind in kinds.items()
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    for row in table_rows:
        buffered.append(row)
        if len(buffered) == ROWS:
            yield batch()
            buffered.clear()
    if buffered:
        yield batch()


def as_parquet(lines: Lines, folder: Path | None) -> Download:
    """Write the results to an unlinked Parquet file in ``folder``; its disk space is freed with its last reader."""
    kinds = columns(rows(lines()))
    schema = pa.schema([(name, _KINDS[kind]) for name, kind in kinds.items()])
    with tempfile.TemporaryFile("w+b", dir=folder) as file:
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for batch in batches(rows(lines()), kinds):
                writer.write_batch(batch)
        file.flush()
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:32]
        size = os.fstat(file.fileno()).st_size
        return Download(size, PARQUET, f'"{digest}"', UnlinkedFile(os.dup(file.fileno())).read)


class UnlinkedFile:
    """File without a directory entry; its descriptor is closed when this object is garbage-collected."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes [start, stop)."""
        while start < stop and (piece := os.pread(self._descriptor, min(1 << 20, stop - start), start)):
            start += len(piece)
            yield piece
