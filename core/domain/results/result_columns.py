"""Columns of results: nested members under dotted names, and the kind of each column, block by block.

A column's kind fits all its values: `bool`, `int` (64 bits), `float` or `str`.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

FIXED_COLUMNS = ("task", "status", "error")
NESTED_COLUMNS = ("scenario", "metrics", "timing")
#: Kinds of the fixed columns.
FIXED_KINDS: Mapping[str, str] = {"task": "int", "status": "str", "error": "str"}
#: Most columns whose kinds are recorded.
MOST_COLUMNS = 1000

_NO_MEMBERS: Mapping[str, object] = {}


class TaskResult(msgspec.Struct, gc=False):
    """The result of a task, as its line has it."""

    task: int
    status: str
    scenario: dict[str, object]
    metrics: dict[str, object]
    error: str | None = None
    timing: dict[str, object] = {}


#: A column of a block: the path of its name, its values (None if a row has none), and their types.
BlockColumn = tuple[tuple[str, ...], list[object], set[type]]


def kind_of(value: object) -> str:
    """Return the kind of a column for a value."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return "int"
        return "float" if abs(value) <= sys.float_info.max else "str"
    return "float" if isinstance(value, float) else "str"


def common_kind(kind: str, other: str) -> str:
    """Return the kind of a column for values of both kinds."""
    if kind == other:
        return kind
    return "float" if {kind, other} == {"int", "float"} else "str"


def columns_of(rows: Sequence[Mapping[str, object]], prefix: tuple[str, ...] = ()) -> Iterator[BlockColumn]:
    """Yield the columns of a block of rows; members of objects are columns of their own."""
    for name, values in _members(rows):
        types = set(map(type, values))
        if dict not in types:
            yield (*prefix, name), values, types
            continue
        if any(type(row[name]) is not dict for row in rows if name in row):
            leaves = [None if type(value) is dict else value for value in values]
            yield (*prefix, name), leaves, set(map(type, leaves))
        yield from columns_of([value if type(value) is dict else _NO_MEMBERS for value in values], (*prefix, name))


def _members(rows: Sequence[Mapping[str, object]]) -> Iterator[tuple[str, list[object]]]:
    """Yield names and values. Most rows have equal names, which is faster."""
    shapes = set(map(tuple, rows))
    shapes.discard(())
    if len(shapes) != 1:
        for name in dict.fromkeys(chain.from_iterable(rows)):
            yield name, [row.get(name) for row in rows]
        return
    (names,) = shapes
    filled = [row for row in rows if row]
    for name in names:
        column = [row[name] for row in filled]
        if len(column) == len(rows):
            yield name, column
        else:
            values = iter(column)
            yield name, [next(values) if row else None for row in rows]


def kind_of_column(values: Sequence[Any], types: set[type]) -> str | None:
    """Return the kind of a column for all these values; None if all are None."""
    kinds = {"bool"} if bool in types else set()
    if types - {bool, int, float, type(None)}:
        kinds.add("str")
    if float in types:
        kinds.add("float")
    if int in types:
        whole = [value for value in values if type(value) is int] if len(types) > 1 else values
        kinds |= {kind_of(min(whole)), kind_of(max(whole))}
    return _common(kinds)


def _common(kinds: Iterable[str]) -> str | None:
    common: str | None = None
    for kind in kinds:
        common = kind if common is None else common_kind(common, kind)
    return common


class ColumnKinds:
    """Kinds of all columns of results, added block by block in task order."""

    def __init__(self) -> None:
        self._kinds: dict[str, str | None] = dict(FIXED_KINDS)

    def add(self, rows: Sequence[Mapping[str, object]], prefix: str, columns: Iterable[BlockColumn]) -> None:
        """Add a block's rows of one nested member, and their columns."""
        if len(self._kinds) > MOST_COLUMNS:
            return
        kinds = self._kinds
        found: dict[str, str | None] = {}
        for path, values, types in columns:
            name = ".".join((prefix, *path))
            kind = kind_of_column(values, types)
            found[name] = kind if (other := found.get(name)) is None else _common({other, kind} - {None})  # type: ignore[arg-type]
        if new := found.keys() - kinds.keys():
            for name in paths_of(rows, prefix):
                if name in new:
                    kinds[name] = None
                    new.discard(name)
                    if not new:
                        break
        for name, kind in found.items():
            if kind is not None:
                known = kinds[name]
                kinds[name] = kind if known is None else common_kind(known, kind)

    def by_name(self) -> dict[str, str] | None:
        """Return the kinds by name, in the order of a table; None if there are more than MOST_COLUMNS."""
        return ordered_kinds(self._kinds) if len(self._kinds) <= MOST_COLUMNS else None


def paths_of(rows: Iterable[Mapping[str, object]], prefix: str) -> Iterator[str]:
    """Yield the dotted names of all members, row by row."""
    for row in rows:
        for name, value in row.items():
            path = f"{prefix}.{name}"
            if isinstance(value, dict):
                yield from paths_of((value,), path)
            else:
                yield path


def ordered_kinds(kinds: Mapping[str, str | None]) -> dict[str, str]:
    """Return kinds in the order of a table: fixed columns, then nested columns in order of first appearance."""
    names = sorted(
        kinds, key=lambda name: -1 if name in FIXED_COLUMNS else NESTED_COLUMNS.index(name.partition(".")[0])
    )
    return {name: kinds[name] or "str" for name in names}
