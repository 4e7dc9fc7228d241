"""Results as Parquet. A separate module, because pyarrow is large and is imported only at the first such request.

Lines are parsed by pyarrow's JSON reader, which releases the interpreter lock; a chunk of lines that does not fit its
schema (mixed kinds, lists, names with dots) is parsed by Python, with the same table as result.
"""

import hashlib
import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json
import pyarrow.parquet as pq

from api.tabular import PARQUET, Lines, columns, fitted, rows
from common.downloads import Download

#: Rows of a row group.
ROWS = 20_000
#: Bytes of lines that are parsed together, if that many are there.
PARSED = 1 << 20
_KINDS: Mapping[str, pa.DataType] = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(), "str": pa.string()}
#: Members of a line that no table has.
_OMITTED = {"artifacts": pa.list_(pa.struct([("name", pa.string()), ("bytes", pa.int64())]))}


class LineParser:
    """Parses result lines to tables with the columns of ``kinds``, a kind by name."""

    def __init__(self, kinds: Mapping[str, str]) -> None:
        self._kinds = kinds
        self.schema = schema_of(kinds)
        members: dict[str, Any] = {}
        for name, kind in kinds.items():
            *parents, last = name.split(".")
            level = members
            for parent in parents:
                # A member that is an object in some lines may be null in others, and then has a column of its own.
                if not isinstance(level.get(parent), dict):
                    level[parent] = {}
                level = level[parent]
            level.setdefault(last, _KINDS[kind])
        self._members = members
        fields = [(name, _type_of(member)) for name, member in (members | _OMITTED).items()]
        self._options = arrow_json.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="error")

    def parse(self, lines: bytes) -> pa.Table:
        """Return whole lines as a table."""
        try:
            return self.parse_fast(lines)
        except pa.ArrowException:
            return self.parse_slowly(lines)

    def parse_fast(self, lines: bytes) -> pa.Table:
        """Return lines that fit the schema as a table; raise ArrowException if they do not."""
        options = arrow_json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
        parsed = arrow_json.read_json(pa.BufferReader(lines), read_options=options, parse_options=self._options)
        arrays = [self._column(parsed, name) for name in self._kinds]
        for array in arrays:
            if pa.types.is_floating(array.type) and pc.any(pc.is_inf(array)).as_py():
                raise pa.ArrowInvalid("an integer beyond every float")
        return pa.table(arrays, schema=self.schema)

    def _column(self, parsed: pa.Table, name: str) -> pa.ChunkedArray:
        first, *path = name.split(".")
        column, member = parsed[first], self._members[first]
        for step in path:
            column, member = pc.struct_field(column, [step]), member[step]
        if isinstance(member, dict):  # an object, or null: in these lines it has no value of its own
            return pa.chunked_array([pa.nulls(len(column), _KINDS[self._kinds[name]])])
        return column

    def parse_slowly(self, lines: bytes) -> pa.Table:
        """Return any lines as a table; a value that does not fit its column is null."""
        return table_of(list(rows([lines])), self._kinds)


def schema_of(kinds: Mapping[str, str]) -> pa.Schema:
    """Return the schema of a table."""
    return pa.schema([(name, _KINDS[kind]) for name, kind in kinds.items()])


def table_of(table_rows: Sequence[Mapping[str, Any]], kinds: Mapping[str, str]) -> pa.Table:
    """Return rows as a table."""
    arrays = [
        pa.array([fitted(row.get(name), kind) for row in table_rows], type=_KINDS[kind]) for name, kind in kinds.items()
    ]
    return pa.table(arrays, schema=schema_of(kinds))


def _type_of(member: Any) -> pa.DataType:
    if isinstance(member, dict):
        return pa.struct([(name, _type_of(inner)) for name, inner in member.items()])
    return member


def row_groups(lines: Iterable[bytes], parser: LineParser) -> Iterator[pa.Table]:
    """Yield tables of ROWS rows, the last of fewer, however the lines are divided into chunks."""
    pending: list[pa.Table] = []
    count = 0
    for chunk in _gathered(lines):
        pending.append(parser.parse(chunk))
        count += len(pending[-1])
        while count >= ROWS:
            table = pa.concat_tables(pending).combine_chunks()
            yield table.slice(0, ROWS)
            pending, count = [table.slice(ROWS)], count - ROWS
    if count:
        yield pa.concat_tables(pending).combine_chunks()


def _gathered(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield chunks of lines that have at least PARSED bytes, except the last."""
    gathered: list[bytes] = []
    size = 0
    for chunk in lines:
        gathered.append(chunk)
        size += len(chunk)
        if size >= PARSED:
            yield b"".join(gathered)
            gathered, size = [], 0
    if size:
        yield b"".join(gathered)


class _Pieces:
    """File that is written to, and whose bytes are taken as they come."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.closed = False

    def write(self, piece: bytes) -> int:
        self._pieces.append(bytes(piece))
        return len(piece)

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        self.closed = True

    def take(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def stream_parquet(lines: Iterable[bytes], kinds: Mapping[str, str]) -> Iterator[bytes]:
    """Yield a Parquet file, a row group at a time, in one pass and constant memory."""
    return written(row_groups(lines, LineParser(kinds)), schema_of(kinds))


def written(tables: Iterable[pa.Table], schema: pa.Schema) -> Iterator[bytes]:
    """Yield the Parquet file of tables of at most ROWS rows, a table at a time."""
    pieces = _Pieces()
    with pq.ParquetWriter(pieces, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table, row_group_size=ROWS)
            yield pieces.take()
    yield pieces.take()


def etag_of(version: str, kinds: Mapping[str, str]) -> str:
    """Return the ETag of the Parquet file of results that will not change; ``version``: of the results."""
    described = msgspec.json.encode([version, dict(kinds), pa.__version__, ROWS])
    return f'"{hashlib.sha256(described).hexdigest()[:32]}"'


def as_parquet(
    lines: Lines, folder: Path | None, kinds: Mapping[str, str] | None = None, etag: str | None = None
) -> Download:
    """Write results to an unlinked Parquet file in ``folder``; its disk space is freed with its last reader.

    ``kinds``: of the columns; None to find them by a pass over all lines. ``etag``: None for the digest of the file.
    """
    if kinds is None:
        kinds = columns(rows(lines()))
    with tempfile.TemporaryFile("w+b", dir=folder) as file:
        for piece in stream_parquet(lines(), kinds):
            file.write(piece)
        file.flush()
        file.seek(0)
        etag = etag or f'"{hashlib.file_digest(file, "sha256").hexdigest()[:32]}"'
        size = os.fstat(file.fileno()).st_size
        return Download(size, PARQUET, etag, UnlinkedFile(os.dup(file.fileno())).read)


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
