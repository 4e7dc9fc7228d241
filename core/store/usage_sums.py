"""Sums of usage in SQL: one statement, by any groupings. An interval that crosses midnight (UTC) counts on each day.

All arithmetic is of whole numbers, so that sums by anything are the same number.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime

from sqlalchemy import Connection, text

from core.domain.access.scopes import Scope
from core.domain.usage.usage_sums import UsageDimension, UsageGrouping, UsageSum, UsedResources
from core.store.owned import within_text

#: Milliseconds of a day.
DAY = 86_400_000
#: A time before all others, and one after them, in milliseconds since the epoch.
FIRST_MOMENT, LAST_MOMENT = 0, 1 << 52

_COLUMNS = {
    UsageDimension.DAY: "day",
    UsageDimension.PROJECT: "project",
    UsageDimension.USER: '"user"',
    UsageDimension.SIMULATION: "simulation_id",
    UsageDimension.KIND: "kind",
    UsageDimension.EXECUTOR: "executor",
    UsageDimension.LABEL: "labels",
}
#: The value of a label, whatever characters its key has.
_LABEL = {
    "sqlite": "(SELECT value FROM json_each(labels) WHERE key=:key{at})",
    "postgresql": "(CAST(labels AS json)->>:key{at})",
}
_KEPT_COLUMNS = (
    'project, "user", simulation_id, kind, labels, executor, workers, millicores, mebibytes, gpus, estimated, lost'
)
_STOP = "CAST(round(until_at*1000) AS BIGINT)"
#: The intervals of a scope within the bounds, each with its first millisecond and that after its last.
_WITHIN = (
    f"SELECT {_KEPT_COLUMNS}, CASE WHEN start<:since THEN :since ELSE start END AS start,"
    " CASE WHEN stop>:until THEN :until ELSE stop END AS stop"
    f" FROM (SELECT {_KEPT_COLUMNS}, {_STOP}-milliseconds AS start, {_STOP} AS stop FROM usage_intervals"
    " WHERE until_at>=:from_seconds AND milliseconds>0{owned}) AS bounded WHERE start<:until AND stop>:since"
)
#: The same, cut at each midnight; few intervals are.
_BY_DAY = (
    f"SELECT {_KEPT_COLUMNS}, start, stop, start/{DAY} AS day FROM clipped WHERE start/{DAY}=(stop-1)/{DAY}"
    f" UNION ALL SELECT {_KEPT_COLUMNS}, CASE WHEN start<d.number*{DAY} THEN d.number*{DAY} ELSE start END,"
    f" CASE WHEN stop>(d.number+1)*{DAY} THEN (d.number+1)*{DAY} ELSE stop END, d.number"
    f" FROM clipped JOIN days d ON d.number>=start/{DAY} AND d.number<=(stop-1)/{DAY}"
    f" WHERE start/{DAY}<>(stop-1)/{DAY}"
)
_DAYS = (
    f"days(number) AS (SELECT min(start)/{DAY} FROM clipped UNION ALL"
    f" SELECT number+1 FROM days WHERE number<(SELECT (max(stop)-1)/{DAY} FROM clipped))"
)


def _sums(condition: str) -> str:
    duration = f"(stop-start)*workers{condition}"
    factors = ("", "*millicores", "*mebibytes", "*gpus")
    return ", ".join(f"coalesce(sum({duration}{factor}), 0)" for factor in factors)


_SUMS = ", ".join(_sums(condition) for condition in ("", "*lost", "*estimated"))


def sums(
    c: Connection,
    scope: Scope,
    by: Sequence[UsageGrouping],
    *,
    since: float | None = None,
    until: float | None = None,
    most: int = 1 << 31,
) -> list[UsageSum]:
    """Return the sums of a scope by groupings, in the order of their values; at most ``most``.

    ``since``, ``until``: seconds since the epoch; what lies outside does not count. Without groupings, one sum.
    """
    owned, values = within_text(scope)
    bounds = (
        FIRST_MOMENT if since is None else round(since * 1000),
        LAST_MOMENT if until is None else round(until * 1000),
    )
    values |= {"since": bounds[0], "until": bounds[1], "from_seconds": bounds[0] / 1000 - 1.0, "most": most}
    columns = []
    for at, grouping in enumerate(by):
        column = _COLUMNS[grouping.dimension]
        if grouping.key:
            column, values[f"key{at}"] = _LABEL[c.dialect.name].format(at=at), grouping.key
        columns.append(f"coalesce({column}, '')" if grouping.dimension is not UsageDimension.DAY else column)
    within = _WITHIN.format(owned="".join(f" AND {condition}" for condition in owned))
    source, more = "clipped", ""
    if any(grouping.dimension is UsageDimension.DAY for grouping in by):
        source, more = "pieces", f", {_DAYS}, pieces AS ({_BY_DAY})"
    names = "".join(f"{column} AS g{at}, " for at, column in enumerate(columns))
    groups = ", ".join(str(at + 1) for at in range(len(columns)))
    grouped = f" GROUP BY {groups} ORDER BY {groups}" if groups else ""
    statement = f"WITH RECURSIVE clipped AS ({within}){more} SELECT {names}{_SUMS} FROM {source}{grouped} LIMIT :most"
    return [_sum(by, row) for row in c.execute(text(statement), values)]


def _sum(by: Sequence[UsageGrouping], row: Sequence[object]) -> UsageSum:
    group = tuple(
        _day(value) if grouping.dimension is UsageDimension.DAY else str(value)
        for grouping, value in zip(by, row, strict=False)
    )
    numbers = [int(str(number)) for number in row[len(by) :]]
    used, lost, estimated = (UsedResources(*numbers[at : at + 4]) for at in (0, 4, 8))
    return UsageSum(group, used, lost, estimated)


def _day(number: object) -> str:
    return str(date.fromordinal(datetime.fromtimestamp(0, UTC).toordinal() + int(str(number))))
