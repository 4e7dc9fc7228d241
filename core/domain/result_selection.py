"""Selections of results: by status, sorted by a column, a page at a time, in memory that is bounded by the page."""

import base64
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import msgspec

from core.domain.result_columns import FIXED_COLUMNS, NESTED_COLUMNS
from errors import Invalid

#: Most results of a page, and the bytes of lines at which a page ends early.
PAGE, PAGE_BYTES = 10_000, 64 << 20


class _Head(msgspec.Struct):
    task: int
    status: str
    error: str | None = None


_decode_head = msgspec.json.Decoder(_Head).decode
_readers: Mapping[str, Callable[[bytes], Any]] = {
    member: msgspec.json.Decoder(msgspec.defstruct("_Member", [("task", int), ("status", str), (member, dict)])).decode
    for member in NESTED_COLUMNS
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """A selection of results. ``statuses``: empty for all. ``sort``: a column's name, with ``-`` in front to descend.

    ``start``: first task. ``limit``: most results, None for all. ``after``: cursor of the previous page.
    """

    start: int = 0
    statuses: frozenset[str] = frozenset()
    sort: str | None = None
    limit: int | None = None
    after: str | None = None

    @property
    def pages(self) -> bool:
        """Whether the result is a page, which is kept in memory."""
        return self.limit is not None or self.sort is not None

    def may_hold(self, failed: int, count: int) -> bool:
        """Return whether ``count`` results of which ``failed`` are not ``ok`` may have a selected one."""
        if not self.statuses:
            return True
        return (failed < count and "ok" in self.statuses) or (failed > 0 and bool(self.statuses - {"ok"}))


#: All results.
ALL = Selection()


def filtered(lines: Iterable[bytes], statuses: frozenset[str]) -> Iterator[bytes]:
    """Yield the result lines with one of these statuses, in chunks of whole lines; all if there are none."""
    for chunk in lines:
        if not statuses:
            yield chunk
            continue
        chosen = [line for line in chunk.splitlines(keepends=True) if _decode_head(line).status in statuses]
        if chosen:
            yield b"".join(chosen)


def page_of(lines: Iterable[bytes], selection: Selection) -> tuple[list[bytes], str | None]:
    """Return the lines of a page and the cursor of the next page, None after the last. One pass, in bounded memory.

    ``lines``: chunks of lines in task order, from ``first_task`` on.
    """
    limit = selection.limit or PAGE
    each = (line for chunk in filtered(lines, selection.statuses) for line in chunk.splitlines(keepends=True))
    if selection.sort is None:
        page: list[bytes] = []
        size = 0
        for line in each:
            if len(page) == limit or size >= PAGE_BYTES:
                return page, _cursor(_decode_head(line).task)
            page.append(line)
            size += len(line)
        return page, None
    key_of = sort_key(selection.sort)
    last = None if selection.after is None else _sorted_position(selection.sort, selection.after)
    best: list[tuple[SortKey, bytes]] = []  # sorted; the least of all lines so far
    bound: SortKey | None = None  # lines from here on are not on this page
    size = 0
    for line in each:
        key = key_of(line)
        if (bound is not None and not key < bound) or (last is not None and not last < key):
            continue
        insort(best, (key, line), key=itemgetter(0))
        size += len(line)
        while len(best) > limit or (size > PAGE_BYTES and len(best) > 1):
            bound, dropped = best.pop()
            size -= len(dropped)
    return [line for _, line in best], None if bound is None else _cursor(_plain(best[-1][0]))


def first_task(selection: Selection) -> int:
    """Return the first task that a page without sorting reads."""
    if selection.after is None or selection.sort is not None:
        return selection.start
    position = _decoded(selection.after)
    if not isinstance(position, int):
        raise Invalid("`after` is the cursor of another selection; use the address in `Link`.")
    return max(selection.start, position)


# -- sorting


@dataclass(frozen=True, slots=True)
class _Descending:
    """A text that sorts in reverse."""

    text: str

    def __lt__(self, other: "_Descending") -> bool:
        return other.text < self.text


#: Sorts numbers, then texts, then results without the value; equals by task.
SortKey = tuple[int, Any, int]


def check_sort(sort: str, columns: Mapping[str, str] | None) -> None:
    """Raise Invalid if ``sort`` names no column; ``columns``: those of the tables, if they are known."""
    sort_key(sort)
    if columns is not None and sort.removeprefix("-") not in columns:
        known = [name for name in columns if name.startswith("metrics.")] or list(columns)
        raise Invalid(f"`sort` names no column of these results: {sort!r}. There are {', '.join(known[:20])}.")


def sort_key(sort: str) -> Callable[[bytes], SortKey]:
    """Return the function that returns the sort key of a line. Raise Invalid if ``sort`` cannot name a column."""
    descending, column = sort.startswith("-"), sort.removeprefix("-")
    member, _, path = column.partition(".")
    if column in FIXED_COLUMNS:

        def key_of_fixed(line: bytes) -> SortKey:
            head = _decode_head(line)
            return _key(getattr(head, column), head.task, descending)

        return key_of_fixed
    if member not in NESTED_COLUMNS or not path:
        raise Invalid(
            f"`sort` names a column of the tables, such as `metrics.score` or `-timing.seconds`; not {sort!r}."
        )
    read = _readers[member]

    def key_of_member(line: bytes) -> SortKey:
        result = read(line)
        return _key(_value_at(getattr(result, member), path), result.task, descending)

    return key_of_member


def _value_at(members: Mapping[str, Any], path: str) -> Any:
    """Return the value of a dotted name; a name may itself have dots."""
    if path in members and not isinstance(members[path], dict):
        return members[path]
    for at, character in enumerate(path):
        if character == "." and isinstance(inner := members.get(path[:at]), dict):
            value = _value_at(inner, path[at + 1 :])
            if value is not None:
                return value
    return None


def _key(value: Any, task: int, descending: bool) -> SortKey:
    if value is None:
        return 2, 0, task
    if isinstance(value, int | float):
        return 0, -value if descending else value, task
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return 1, _Descending(text) if descending else text, task


def _plain(key: SortKey) -> list[Any]:
    rank, value, task = key
    return [rank, value.text if isinstance(value, _Descending) else value, task]


def _sorted_position(sort: str, cursor: str) -> SortKey:
    try:
        rank, value, task = msgspec.convert(_decoded(cursor), tuple[int, int | float | str, int])
    except msgspec.ValidationError:
        rank, value, task = -1, "", 0
    if rank not in (0, 1, 2) or isinstance(value, str) != (rank == 1):
        raise Invalid("`after` is the cursor of another selection; use the address in `Link`.")
    return rank, _Descending(value) if isinstance(value, str) and sort.startswith("-") else value, task


def _cursor(position: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def _decoded(cursor: str) -> Any:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except ValueError:
        raise Invalid("`after` is not a cursor of a page of results; use the address in `Link`.") from None
