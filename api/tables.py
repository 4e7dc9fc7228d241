"""Results as tables: lines flattened to columns, written in two passes and constant memory; here as CSV."""

import csv
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

#: Yields chunks of whole result lines from the start; called once for each pass.
Lines = Callable[[], Iterable[bytes]]

FIXED = ("task", "status", "error")
PARQUET = "application/vnd.apache.parquet"
NESTED = ("scenario", "metrics", "timing")
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
        if -(2**63) <= value < 2**63:
            return "int"
        return "float" if abs(value) <= sys.float_info.max else "str"
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
    if value is None:
        return None
    if kind == "str":
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()
    found = kind_of(value)
    if kind == "float" and found in {"int", "float"}:
        return float(value)
    return value if kind == found else None


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
