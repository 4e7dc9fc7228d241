"""Results as Parquet; apart from other tables, because its large library is loaded only when the first is asked for."""

import hashlib
import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from api.tables import PARQUET, Lines, columns, fitted, rows
from core.domain.downloads import Download

ROWS = 20_000
_KINDS: Mapping[str, pa.DataType] = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(), "str": pa.string()}


def batches(found: Iterable[Mapping[str, Any]], kinds: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Yield rows as record batches."""
    schema = pa.schema([(name, _KINDS[kind]) for name, kind in kinds.items()])
    held: list[Mapping[str, Any]] = []

    def batch() -> pa.RecordBatch:
        arrays = [
            pa.array([fitted(row.get(name), kind) for row in held], type=_KINDS[kind]) for name, kind in kinds.items()
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    for row in found:
        held.append(row)
        if len(held) == ROWS:
            yield batch()
            held.clear()
    if held:
        yield batch()


def as_parquet(lines: Lines, folder: Path | None) -> Download:
    """Write the results as a Parquet file without a name in ``folder``; it goes when the last reader does."""
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
        return Download(size, PARQUET, f'"{digest}"', Nameless(os.dup(file.fileno())).read)


class Nameless:
    """A file without a name; its descriptor is closed when nobody can read it any more."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes [start, stop)."""
        while start < stop and (piece := os.pread(self._descriptor, min(1 << 20, stop - start), start)):
            start += len(piece)
            yield piece
