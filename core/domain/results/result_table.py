"""Result table: status and metrics of many results as compact columns, in any order, sampled by task beyond a limit.

A number is kept in the narrowest float that holds all numbers of its column exactly. Which tasks a sample has depends
on their numbers alone, not on the order in which their results arrive.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from core.domain.results.result_columns import columns_of
from core.domain.results.result_groups import OTHERS, OUTCOMES
from core.domain.results.result_tally import METRICS, floats

Floats = NDArray[np.float64]

#: Most results of a table, and most bytes of its columns: an API process has 1 GiB in the chart's defaults.
ROWS, BYTES = 1_000_000, 128 << 20
#: Most characters of a text metric's value that tell it from others.
DISTINCT_CHARACTERS = 200
#: Bytes of a row without its metrics: task and status.
_ROW = 5
#: Types of values that are numbers.
NUMBERS = frozenset({int, float, bool})
_FLOATS = (np.float16, np.float32, np.float64)


class MeasuredResult(msgspec.Struct, gc=False):
    """The members of a result line that a table has."""

    task: int
    status: str
    metrics: dict[str, object]


_decoder = msgspec.json.Decoder(MeasuredResult)


#: Numbers of tasks, of tables and of selections.
TaskNumbers = NDArray[np.int32] | NDArray[np.int64]


def mixed(tasks: TaskNumbers) -> NDArray[np.uint64]:
    """Return a number for each task that looks random and is the same every time (splitmix64's finalizer)."""
    values = tasks.astype(np.uint64)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def sampled(tasks: TaskNumbers, level: int) -> NDArray[np.bool_]:
    """Return which tasks are in the sample of every 2 to the ``level``-th task; a higher level's sample is a part."""
    chosen: NDArray[np.bool_] = (mixed(tasks) & np.uint64((1 << level) - 1)) == 0
    return chosen


@dataclass(frozen=True, slots=True)
class TextValues:
    """A text metric: for each row a position in ``names``, -1 for no text."""

    codes: NDArray[np.int16]
    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of a table at one moment. ``statuses``: positions in ``status_names``, whose first is `ok`.

    ``numbers`` (NaN for none) and ``texts`` are those of ``ok`` tasks, as in summaries. ``booleans``: metrics whose
    values are all true or false.
    """

    tasks: NDArray[np.int32]
    statuses: NDArray[np.uint8]
    status_names: Sequence[str]
    numbers: Mapping[str, NDArray[Any]]
    texts: Mapping[str, TextValues]
    booleans: Set[str]

    @property
    def ok(self) -> NDArray[np.bool_]:
        """Which tasks are ``ok``."""
        ok: NDArray[np.bool_] = self.statuses == 0
        return ok

    def since(self, position: int) -> "TableRows":
        """Return the rows from a position on."""
        return TableRows(
            self.tasks[position:],
            self.statuses[position:],
            self.status_names,
            {name: column[position:] for name, column in self.numbers.items()},
            {name: TextValues(texts.codes[position:], texts.names) for name, texts in self.texts.items()},
            self.booleans,
        )


class _GrowingArray:
    """An array that grows; new elements are ``fill``. Earlier views keep their values when it grows."""

    def __init__(self, type: Any, fill: Any) -> None:
        self._buffer: NDArray[Any] = np.zeros(0, type)
        self._fill = fill
        self._count = 0

    @property
    def view(self) -> NDArray[Any]:
        return self._buffer[: self._count]

    @property
    def type(self) -> Any:
        return self._buffer.dtype.type

    @property
    def allocated(self) -> int:
        """Bytes."""
        return self._buffer.nbytes

    def grow(self, count: int) -> None:
        if count > len(self._buffer):
            buffer = np.full(max(count, len(self._buffer) * 5 // 4), self._fill, self._buffer.dtype)
            buffer[: self._count] = self.view
            self._buffer = buffer
        self._count = count

    def convert(self, type: Any) -> None:
        self._buffer = self._buffer.astype(type)

    def keep(self, kept: NDArray[np.bool_]) -> None:
        self._buffer = self.view[kept]
        self._count = len(self._buffer)


class ResultTable:
    """The results of a simulation that have been read, or a sample of them beyond ``most_rows`` or ``most_bytes``."""

    def __init__(self, most_rows: int = ROWS, most_bytes: int = BYTES) -> None:
        self._most_rows, self._most_bytes = most_rows, most_bytes
        #: Number of results added, of which a sample may be left.
        self.read = 0
        #: The sample is every 2 to the level-th task.
        self.level = 0
        self._tasks = _GrowingArray(np.int32, 0)
        self._statuses = _GrowingArray(np.uint8, 0)
        self._status_names = ["ok"]
        self._numbers: dict[str, _GrowingArray] = {}
        self._codes: dict[str, _GrowingArray] = {}
        self._names: dict[str, dict[str, int]] = {}
        self._not_boolean: set[str] = set()

    def __len__(self) -> int:
        return len(self._tasks.view)

    @property
    def size(self) -> int:
        """Bytes of memory, about."""
        columns = (self._tasks, self._statuses, *self._numbers.values(), *self._codes.values())
        names = sum(map(len, self._names.values())) * DISTINCT_CHARACTERS
        return sum(column.allocated for column in columns) + names

    def rows(self) -> TableRows:
        """Return the rows so far; they do not change when results are added."""
        return TableRows(
            self._tasks.view,
            self._statuses.view,
            tuple(self._status_names),
            {name: column.view for name, column in self._numbers.items()},
            {name: TextValues(column.view, tuple(self._names[name])) for name, column in self._codes.items()},
            frozenset(self._numbers.keys() - self._not_boolean),
        )

    def add(self, body: bytes) -> None:
        """Add the result lines of consecutive tasks."""
        if self.level == 0:
            results = _decoder.decode_lines(body)
            self.read += len(results)
        else:
            lines = body.splitlines()
            start = _decoder.decode(lines[0]).task if lines else 0
            kept = np.flatnonzero(sampled(np.arange(start, start + len(lines)), self.level))
            results = [_decoder.decode(lines[position]) for position in kept.tolist()]
            self.read += len(lines)
        if results:
            self._append(results)
            while len(self) > min(self._most_rows, self._most_bytes // self._row_bytes):
                self._thin()

    @property
    def _row_bytes(self) -> int:
        return _ROW + sum(column.view.itemsize for column in (*self._numbers.values(), *self._codes.values()))

    def _append(self, results: Sequence[MeasuredResult]) -> None:
        since = len(self)
        to = since + len(results)
        for column in (self._tasks, self._statuses, *self._numbers.values(), *self._codes.values()):
            column.grow(to)
        self._tasks.view[since:] = [result.task for result in results]
        self._statuses.view[since:] = self._status_codes([result.status for result in results])
        ok = [position for position, result in enumerate(results) if result.status == "ok"]
        positions = since + np.array(ok, np.int64)
        for path, values, types in columns_of([results[position].metrics for position in ok]):
            if len(path) > 1:
                continue
            [name] = path
            numbers = self._column(self._numbers, name, to, np.float16, np.nan) if types & NUMBERS else None
            if numbers is not None:
                self._set_numbers(numbers, positions, floats(values, types))
                if not types <= {bool, type(None)}:
                    self._not_boolean.add(name)
            codes = self._column(self._codes, name, to, np.int16, -1) if str in types else None
            if codes is not None:
                codes.view[positions] = self._text_codes(name, values)

    def _column(
        self, columns: dict[str, _GrowingArray], name: str, count: int, type: Any, fill: Any
    ) -> _GrowingArray | None:
        """Return a metric's column, which is made at its first value; None for a metric beyond the limit."""
        column = columns.get(name)
        if column is None and len(columns) < METRICS:
            column = columns[name] = _GrowingArray(type, fill)
            column.grow(count)
        return column

    def _status_codes(self, statuses: Sequence[str]) -> list[int]:
        for status in dict.fromkeys(statuses):
            if status not in self._status_names:
                self._status_names.append(status)
        codes = {status: code for code, status in enumerate(self._status_names)}
        return [codes[status] for status in statuses]

    @staticmethod
    def _set_numbers(column: _GrowingArray, positions: NDArray[np.int64], values: Floats) -> None:
        values = np.where(np.isfinite(values), values, np.nan)
        for type in _FLOATS[_FLOATS.index(column.type) :]:
            with np.errstate(over="ignore"):
                narrow = values.astype(type)
            if bool(((narrow == values) | np.isnan(values)).all()):
                break
        if type is not column.type:
            column.convert(type)
        column.view[positions] = narrow

    def _text_codes(self, name: str, values: Sequence[object]) -> list[int]:
        names = self._names.setdefault(name, {})
        codes: dict[str, int] = {}
        for value in dict.fromkeys(value for value in values if type(value) is str):
            label = value[:DISTINCT_CHARACTERS]
            if label not in names and len(names) >= OUTCOMES:
                label = OTHERS
            codes[value] = names.setdefault(label, len(names))
        return [codes[value] if type(value) is str else -1 for value in values]

    def _thin(self) -> None:
        """Keep the sample of the next level."""
        self.level += 1
        kept = sampled(self._tasks.view, self.level)
        for column in (self._tasks, self._statuses, *self._numbers.values(), *self._codes.values()):
            column.keep(kept)
