"""Results as tables: lines flattened to columns, written as CSV or Parquet in two passes and constant memory."""

import csv
import hashlib
import io
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from core.services.results import Blob

#: Yields chunks of whole result lines from the start; called once for each pass.
Lines = Callable[[], Iterable[bytes]]

FIXED = ("task", "status", "error")
NESTED = ("scenario", "metrics", "timing")
ROWS = 20_000
PARQUET = "application/vnd.apache.parquet"
_KINDS: Mapping[str, pa.DataType] = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(), "str": pa.string()}
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def flat(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result as one row: nested members by their dotted names, lists as JSON."""
    row = {name: result.get(name) for name in FIXED}
    for name in NESTED:
        _flatten(row, name, result.get(name) or {})
    return row


def _flatten(row: dict[str, Any], prefix: str, members: Mapping[str, Any]) -> None:
    for name, value in members.items():
        path = f"{prefix}.{name}"
        if isinstance(value, dict):
            _flatten(row, path, value)
        else:
            row[path] = msgspec.json.encode(value).decode() if isinstance(value, list) else value


def rows(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield a row for each line."""
    for chunk in lines:
        for line in chunk.splitlines():
            yield flat(_decode(line))


def kind_of(value: Any) -> str:
    """Name the kind of a column that holds a value."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int" if -(2**63) <= value < 2**63 else "float"
    return "float" if isinstance(value, float) else "str"


def joined(one: str, other: str) -> str:
    """Name the kind of a column that holds values of both kinds."""
    if one == other:
        return one
    return "float" if {one, other} == {"int", "float"} else "str"


def columns(found: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return every column with its kind: the fixed ones, then the nested ones in the order of their first sight."""
    kinds: dict[str, str | None] = {"task": "int", "status": "str", "error": "str"}
    for row in found:
        for name, value in row.items():
            if value is None:
                kinds.setdefault(name, None)
            else:
                seen = kinds.get(name)
                kinds[name] = kind_of(value) if seen is None else joined(seen, kind_of(value))
    ordered = sorted(kinds, key=lambda name: -1 if name in FIXED else NESTED.index(name.partition(".")[0]))
    return {name: kinds[name] or "str" for name in ordered}


def fitted(value: Any, kind: str) -> Any:
    """Return a value as its column holds it; what arrived after the first pass and does not fit is left out."""
    if value is None or kind == kind_of(value):
        return value
    if kind == "float" and kind_of(value) == "int":
        return float(value)
    return (value if isinstance(value, str) else msgspec.json.encode(value).decode()) if kind == "str" else None


def harmless(value: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula."""
    if isinstance(value, str) and value[:1] in {"=", "+", "-", "@", "\t", "\r"}:
        return "'" + value
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else value


def as_csv(lines: Lines) -> Iterator[bytes]:
    """Yield the results as CSV (RFC 4180)."""
    kinds = columns(rows(lines()))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(harmless(name) for name in kinds)
    for number, row in enumerate(rows(lines()), 1):
        writer.writerow(harmless(fitted(row.get(name), kind)) for name, kind in kinds.items())
        if number % 500 == 0:
            yield text.getvalue().encode()
            text.seek(0)
            text.truncate()
    yield text.getvalue().encode()


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


def as_parquet(lines: Lines, folder: Path | None) -> Blob:
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
        return Blob(size, PARQUET, f'"{digest}"', Nameless(os.dup(file.fileno())).read)


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
