"""Selections of results: by conditions, sorted by a column, a page at a time, in memory that is bounded by the page."""

import base64
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import msgspec

from common.errors import Invalid
from common.near_names import name_list
from core.domain.results.line_values import decode_head, is_column, reader_of
from core.domain.results.result_conditions import Condition, ResultFilter
from core.domain.results.score import Score, number_of
from core.domain.submissions.task_parameters import Parameter, find_parameter, label_of

#: Most results of a page, and the bytes of lines at which a page ends early.
PAGE, PAGE_BYTES = 10_000, 64 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """A selection of results. ``statuses``: empty for all. ``where``: conditions, all of which a result meets.

    ``start``: first task. ``sort``: WORST, or the name of a column or a parameter, with ``-`` in front to descend.
    ``limit``: most results, None for all. ``after``: cursor of the previous page. ``count``: whether a page says how
    many results are selected, on all pages.
    """

    start: int = 0
    statuses: frozenset[str] = frozenset()
    where: tuple[Condition, ...] = ()
    sort: str | None = None
    limit: int | None = None
    after: str | None = None
    count: bool = False

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


def filtered(
    lines: Iterable[bytes], statuses: frozenset[str], conditions: ResultFilter | None = None
) -> Iterator[bytes]:
    """Yield the result lines with one of these statuses, if there are any, that meet the conditions, in chunks.

    ``lines``: chunks of whole lines, each of consecutive tasks.
    """
    for chunk in lines:
        if not statuses and conditions is None:
            yield chunk
            continue
        chosen = chunk.splitlines(keepends=True)
        if conditions is not None:
            chosen = conditions.chosen(chosen)
        if statuses:
            chosen = [line for line in chosen if decode_head(line).status in statuses]
        if chosen:
            yield b"".join(chosen)


class Page(NamedTuple):
    """A page of result lines. ``cursor``: of the next page, None after the last. ``total``: selected on all pages."""

    lines: list[bytes]
    cursor: str | None
    total: int | None = None


class _Counted:
    """Lines, counted as they pass."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.count = 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            for line in chunk.splitlines(keepends=True):
                self.count += 1
                yield line


def page_of(
    lines: Iterable[bytes],
    selection: Selection,
    conditions: ResultFilter | None = None,
    key_of: "Callable[[bytes], SortKey] | None" = None,
) -> Page:
    """Return a page. One pass, in bounded memory, which ends with the page if it is neither sorted nor counted.

    ``lines``: chunks of lines in task order, from ``first_task`` on; from ``start`` on to count. ``key_of``: the sort
    key of a line, if it is sorted.
    """
    limit = selection.limit or PAGE
    each = _Counted(filtered(lines, selection.statuses, conditions))
    if selection.sort is None:
        page: list[bytes] = []
        size, cursor = 0, None
        first = first_task(selection)
        for line in each:
            if cursor is not None or (selection.count and decode_head(line).task < first):
                continue
            if len(page) == limit or size >= PAGE_BYTES:
                cursor = _cursor(decode_head(line).task)
                if not selection.count:
                    break
                continue
            page.append(line)
            size += len(line)
        return Page(page, cursor, each.count if selection.count else None)
    key_of = key_of or sort_key(selection.sort)
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
    cursor = None if bound is None else _cursor(_plain(best[-1][0]))
    return Page([line for _, line in best], cursor, each.count if selection.count else None)


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


#: The order of the worst tasks: those that are not ``ok`` in task order, then the worst scores, then those without one.
WORST = "worst"
#: Sorts numbers, then texts, then results without the value; equals by task. In the order WORST, -1 is not ``ok``.
SortKey = tuple[int, int | float | str | _Descending, int]


def worst_key(score: Score) -> Callable[[bytes], SortKey]:
    """Return the function that returns the sort key of a line in the order WORST."""
    read = reader_of(f"metrics.{score.metric}" if score.metric else "error")

    def key_of(line: bytes) -> SortKey:
        task, status, value = read(line)
        if status != "ok":
            return -1, 0, task
        number = number_of(value)
        return (2, 0, task) if number is None else (0, score.sign * number, task)

    return key_of


def parameter_key(sort: str, parameters: Mapping[str, Parameter]) -> Callable[[bytes], SortKey]:
    """Return the function that returns the sort key of a line by a parameter. Raise Invalid for an unknown one."""
    descending, parameter = sort.startswith("-"), find_parameter(parameters, sort.removeprefix("-"))

    def key_of(line: bytes) -> SortKey:
        task = decode_head(line).task
        return _key(parameter.value(task), task, descending)

    return key_of


def names_parameter(sort: str) -> bool:
    """Return whether ``sort`` can only be the name of a parameter; those of a sweep also begin as columns do not."""
    return sort != WORST and not is_column(sort.removeprefix("-"))


def check_sort(sort: str, columns: Mapping[str, str] | None) -> None:
    """Raise Invalid if ``sort`` names no column; ``columns``: those of the tables, if they are known."""
    sort_key(sort)
    if columns is not None and sort.removeprefix("-") not in columns:
        known = [name for name in columns if name.startswith("metrics.")] or list(columns)
        raise Invalid(f"`sort` names no column of these results: {sort!r}. There are: {name_list(known)}.")


def sort_key(sort: str) -> Callable[[bytes], SortKey]:
    """Return the function that returns the sort key of a line. Raise Invalid if ``sort`` cannot name a column."""
    descending, column = sort.startswith("-"), sort.removeprefix("-")
    if not is_column(column):
        raise Invalid(
            f"`sort` names a column of the tables, such as `metrics.score` or `-timing.seconds`; not {sort!r}."
        )
    read = reader_of(column)

    def key_of(line: bytes) -> SortKey:
        task, _, value = read(line)
        return _key(value, task, descending)

    return key_of


def _key(value: object, task: int, descending: bool) -> SortKey:
    if value is None:
        return 2, 0, task
    if isinstance(value, int | float):
        return 0, -value if descending else value, task
    text = label_of(value)
    return 1, _Descending(text) if descending else text, task


def _plain(key: SortKey) -> list[object]:
    rank, value, task = key
    return [rank, value.text if isinstance(value, _Descending) else value, task]


def _sorted_position(sort: str, cursor: str) -> SortKey:
    try:
        rank, value, task = msgspec.convert(_decoded(cursor), tuple[int, int | float | str, int])
    except msgspec.ValidationError:
        rank, value, task = 0, "", 0
    if rank not in (-1, 0, 1, 2) or isinstance(value, str) != (rank == 1):
        raise Invalid("`after` is the cursor of another selection; use the address in `Link`.")
    return rank, _Descending(value) if isinstance(value, str) and sort.startswith("-") else value, task


def _cursor(position: object) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def _decoded(cursor: str) -> object:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except ValueError:
        raise Invalid("`after` is not a cursor of a page of results; use the address in `Link`.") from None
