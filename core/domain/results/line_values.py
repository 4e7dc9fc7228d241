"""Values of result lines by the dotted name of their column, decoded without the rest of the line."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import defstruct

from core.domain.results.result_columns import FIXED_COLUMNS, NESTED_COLUMNS


class LineValue(NamedTuple):
    """A value of a line, None if it has none, with the line's task and status."""

    task: int
    status: str
    value: object


class _Head(msgspec.Struct):
    task: int
    status: str
    error: str | None = None


decode_head = msgspec.json.Decoder(_Head).decode


def is_column(name: str) -> bool:
    """Return whether a name can be that of a column of the tables, such as `metrics.score`."""
    member, _, path = name.partition(".")
    return name in FIXED_COLUMNS or (member in NESTED_COLUMNS and bool(path))


@lru_cache(maxsize=256)
def reader_of(column: str) -> Callable[[bytes], LineValue]:
    """Return the function that reads the value of a column (`is_column`) from a line."""
    member, _, path = column.partition(".")
    if column in FIXED_COLUMNS:

        def read_fixed(line: bytes) -> LineValue:
            head = decode_head(line)
            return LineValue(head.task, head.status, getattr(head, column))

        return read_fixed
    # Members that are not declared are skipped, which takes a third of the time that a dictionary of all takes.
    only = (
        dict[str, object]
        if "." in path
        else msgspec.defstruct("_Only", [("value", object, None)], rename={"value": path})
    )
    line_type = defstruct("_Line", [("task", int), ("status", str), ("member", only)], rename={"member": member})
    decode = msgspec.json.Decoder(line_type).decode

    def read_member(line: bytes) -> LineValue:
        result: Any = decode(line)
        value = value_at(result.member, path) if "." in path else result.member.value
        return LineValue(result.task, result.status, None if isinstance(value, dict) else value)

    return read_member


def value_at(members: Mapping[str, object], path: str) -> object:
    """Return the value of a dotted name; a name may itself have dots."""
    if path in members and not isinstance(members[path], dict):
        return members[path]
    for at, character in enumerate(path):
        if character == "." and isinstance(inner := members.get(path[:at]), dict):
            value = value_at(inner, path[at + 1 :])
            if value is not None:
                return value
    return None
