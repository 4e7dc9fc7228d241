"""Groups of results: statuses, outcomes and statistics of metrics for each group, in bounded memory.

A group or an outcome beyond its limit is not listed.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from core.domain.results.grouped_column import Codes, Failures, Floats, GroupedColumn, sorted_by_group
from core.domain.results.intervals import Bounds
from core.domain.results.scenario_intervals import UnitSums

#: Most outcomes of a metric. Further outcomes count together, as OTHERS.
OUTCOMES = 1000
OTHERS = "(others)"


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive results. ``statuses``: positions in ``names``, whose first is `ok`. ``succeeded``: the ``ok`` tasks.

    ``numbers`` and ``texts``: metrics of the ``ok`` tasks; NaN or None for no value. ``units``: the scenarios of all
    tasks, where some scenarios have several; else None. ``never``: whether the value of an ``ok`` task stands for
    "never", by metric with such a value; ``numbers`` has NaN there.
    """

    names: Sequence[str]
    statuses: NDArray[np.int64]
    succeeded: NDArray[np.int64]
    numbers: Mapping[str, Floats]
    texts: "Mapping[str, NumberedTexts]"
    units: Codes | None = None
    never: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)


class OutcomeNames:
    """Numbers the values of a text metric, for all groups."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def numbered(self, values: Sequence[object]) -> "NumberedTexts":
        """Return the numbers of values; OUTCOMES for further ones, -1 for what is not a text."""
        numbers = self._numbers
        for value in dict.fromkeys(value for value in values if type(value) is str):
            if value not in numbers and len(numbers) < OUTCOMES:
                numbers[value] = len(numbers)
        codes = [numbers.get(value, OUTCOMES) if type(value) is str else -1 for value in values]
        return NumberedTexts(self, np.array(codes, np.int64))

    def counts(self, numbered: Mapping[int, int]) -> dict[str, int]:
        """Return counts by value, in alphabetical order, from counts by number."""
        counts = {name: numbered[number] for name, number in self._numbers.items() if number in numbered}
        if OUTCOMES in numbered:
            counts[OTHERS] = counts.get(OTHERS, 0) + numbered[OUTCOMES]
        return dict(sorted(counts.items()))


@dataclass(frozen=True, slots=True)
class NumberedTexts:
    """A block's values of a text metric."""

    names: OutcomeNames
    numbers: NDArray[np.int64]


class Grouping:
    """Results by group. ``limit``: most groups. ``scenarios``: their number, if some have several tasks."""

    def __init__(self, limit: int, scenarios: int | None = None) -> None:
        self._limit = limit
        self._scenarios = scenarios
        self._failures = None if scenarios is None else UnitSums(scenarios)
        #: Numbers of the groups by key, in order of first appearance.
        self.groups: dict[Hashable, int] = {}
        #: Results that belong to no listed group.
        self.unlisted = 0
        self._statuses: dict[int, dict[str, int]] = {}
        self._columns: dict[str, GroupedColumn] = {}
        self._never: dict[str, Counter[int]] = {}
        self._outcomes: dict[str, tuple[OutcomeNames, dict[int, dict[int, int]]]] = {}

    def add(self, block: Block, keys: Sequence[Hashable] | None, room: int) -> None:
        """Add a block. ``keys``: the group of each result, None for no group; None if all belong to one group.

        ``room``: most values that each metric keeps for quantiles, in all groups together.
        """
        codes = self._codes(keys) if keys is not None else np.zeros(len(block.statuses), np.int64)
        self._count_statuses(codes, block)
        if self._failures is not None and block.units is not None:
            failed = (codes >= 0) & (block.statuses != 0)
            self._failures.add(codes[failed], block.units[failed], np.zeros(int(failed.sum())), room)
        codes = codes[block.succeeded]
        units = None if block.units is None else block.units[block.succeeded]
        order, ordered = sorted_by_group(codes) if keys is not None else (slice(None), codes)
        units = None if units is None else units[order]
        for name, values in block.numbers.items():
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = GroupedColumn(self._scenarios)
            column.add(ordered, values[order], room, units)
        for name, never in block.never.items():
            self._never.setdefault(name, Counter()).update(codes[never & (codes >= 0)].tolist())
        for name, texts in block.texts.items():
            self._count_outcomes(name, codes, texts)

    def _codes(self, keys: Sequence[Hashable]) -> Codes:
        """Return the number of each result's group; -1 for the key None, and beyond the limit."""
        for key in dict.fromkeys(keys):
            if key is not None and key not in self.groups and len(self.groups) < self._limit:
                self.groups[key] = len(self.groups)
        get = self.groups.get
        codes = np.array([get(key, -1) for key in keys], np.int64)
        self.unlisted += int((codes < 0).sum()) - sum(key is None for key in keys)
        return codes

    def _count_outcomes(self, name: str, codes: Codes, texts: NumberedTexts) -> None:
        counted = (codes >= 0) & (texts.numbers >= 0)
        pairs = codes[counted] * (OUTCOMES + 1) + texts.numbers[counted]
        _, groups = self._outcomes.setdefault(name, (texts.names, {}))
        for pair, count in zip(*(array.tolist() for array in np.unique(pairs, return_counts=True)), strict=True):
            group, number = divmod(pair, OUTCOMES + 1)
            counts = groups.setdefault(group, {})
            counts[number] = counts.get(number, 0) + count

    def _count_statuses(self, codes: Codes, block: Block) -> None:
        listed = codes >= 0
        kinds = len(block.names)
        keys, counts = np.unique(codes[listed] * kinds + block.statuses[listed], return_counts=True)
        for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
            statuses = self._statuses.setdefault(key // kinds, {})
            name = block.names[key % kinds]
            statuses[name] = statuses.get(name, 0) + count

    def statuses(self, group: int) -> dict[str, int]:
        """Return the number of a group's results by status, failures first."""
        statuses = self._statuses.get(group, {})
        return dict(sorted(statuses.items(), key=lambda item: (item[0] == "ok", item[0])))

    def rates(self, declared: Mapping[str, bool | None]) -> dict[str, bool]:
        """Return whether each metric is a rate, from its declaration and the values of all groups."""
        return {name: column.is_rate(declared.get(name)) for name, column in self._columns.items()}

    def summary(
        self,
        group: int,
        worst: Mapping[str, float | None],
        *,
        rates: Mapping[str, bool] | None = None,
        bounds: Mapping[str, Bounds] | None = None,
        bootstrap: bool = False,
    ) -> dict[str, object]:
        """Return a group's statuses, outcomes and statistics.

        ``worst``: by declared metric, the value that a task counts which is not ``ok``. ``rates``: whether each metric
        is a rate (`rates`), for the intervals of means; None for no intervals. ``bounds``: by metric with a declared
        range, its ends.
        """
        statuses = self.statuses(group)
        done = sum(statuses.values())
        failed = done - statuses.get("ok", 0)
        metrics = {}
        for name in dict.fromkeys((*worst, *self._columns)):
            column = self._columns.get(name) or GroupedColumn()
            never = self._never[name][group] if name in self._never else None
            if column.count(group) or never or (failed and name in worst):
                metrics[name] = column.summary(group, penalties=failed, worst=worst.get(name))
                if never is not None:
                    metrics[name]["never"] = never
                if rates is not None:
                    metrics[name] |= column.interval(
                        group,
                        rate=rates.get(name, False),
                        bounds=(bounds or {}).get(name),
                        bootstrap=bootstrap,
                        failures=Failures(failed, worst.get(name), self._failures) if failed else None,
                    )
        return {
            "tasks": {"total": done, "done": done, "failed": failed},
            "statuses": statuses,
            "outcomes": {
                name: names.counts(groups[group])
                for name, (names, groups) in sorted(self._outcomes.items())
                if group in groups
            },
            "metrics": metrics,
        }
