"""Results as tables: result lines flattened to columns, in constant memory; and CSV."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from api.escaping import spreadsheet_text
from core.domain.results.result_columns import (
    FIXED_COLUMNS,
    FIXED_KINDS,
    NESTED_COLUMNS,
    common_kind,
    kind_of,
    ordered_kinds,
)

#: Returns chunks of whole result lines from the first task on; called once for each pass.
Lines = Callable[[], Iterable[bytes]]

PARQUET = "application/vnd.apache.parquet"
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def flat(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result as a row: nested members have dotted names, lists become JSON."""
    row = {name: result.get(name) for name in FIXED_COLUMNS}
    for name in NESTED_COLUMNS:
        _flatten(row, name, result.get(name) or {})
    return row


def _flatten(row: dict[str, Any], prefix: str, members: Mapping[str, Any]) -> None:
    for name, value in members.items():
        path = f"{prefix}.{name}"
        if isinstance(value, dict):
            _flatten(row, path, value)
        else:
            row[path] = msgspec.json.encode(value).decode() if isinstance(value, list) else value


def flat_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return any document as a row: nested members have dotted names, lists become JSON."""
    row: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, dict):
            _flatten(row, name, value)
        else:
            row[name] = value
    return row


def rows(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield a row for each result line."""
    for chunk in lines:
        for line in chunk.splitlines():
            yield flat(_decode(line))


def columns(table_rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the kinds of all columns by name: fixed columns, then nested columns in order of first appearance."""
    return ordered_kinds(kinds_of(table_rows, FIXED_KINDS))


def kinds_of(table_rows: Iterable[Mapping[str, Any]], known: Mapping[str, str]) -> dict[str, str | None]:
    """Return the kinds of all columns by name in order of first appearance, after known ones; None without a value."""
    kinds: dict[str, str | None] = dict(known)
    for row in table_rows:
        for name, value in row.items():
            if value is None:
                kinds.setdefault(name, None)
            else:
                known_kind = kinds.get(name)
                kinds[name] = kind_of(value) if known_kind is None else common_kind(known_kind, kind_of(value))
    return kinds


def fitted(value: Any, kind: str) -> Any:
    """Return a value in the kind of its column, or None if it does not fit (a result from after the first pass)."""
    if value is None:
        return None
    if kind == "str":
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()
    value_kind = kind_of(value)
    if kind == "float" and value_kind in {"int", "float"}:
        return float(value)
    return value if kind == value_kind else None


def escape_formula(value: Any) -> Any:
    """Return a CSV cell that spreadsheets do not evaluate as a formula, without control characters for terminals."""
    if isinstance(value, str):
        return spreadsheet_text(value)
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else value


def as_csv(lines: Lines, kinds: Mapping[str, str] | None = None) -> Iterator[bytes]:
    """Yield the results as CSV (RFC 4180). ``kinds``: of the columns; None to find them by a pass over all lines."""
    if kinds is None:
        kinds = columns(rows(lines()))
    return csv_of(rows(lines()), kinds)


def csv_of(table_rows: Iterable[Mapping[str, Any]], kinds: Mapping[str, str]) -> Iterator[bytes]:
    """Yield rows as CSV."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(escape_formula(name) for name in kinds)
    for number, row in enumerate(table_rows, 1):
        writer.writerow(escape_formula(fitted(row.get(name), kind)) for name, kind in kinds.items())
        if number % 500 == 0:
            yield text.getvalue().encode()
            text.seek(0)
            text.truncate()
    yield text.getvalue().encode()
