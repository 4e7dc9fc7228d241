"""Limits and use of projects, and of users in them, in SQL: a charge is one statement on one row for each of the two.

The use changes in the transaction that changes what is counted, and a charge that is refused undoes both. The row of a
project is locked before that of a user, by all transactions: none waits for another in a circle.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    bindparam,
    delete,
    insert,
    or_,
    select,
    text,
    union_all,
    update,
)

from core.domain.access.quota_marks import quota_marks
from core.domain.access.quota_shares import QuotaShare
from core.domain.access.quotas import EVERY_PROJECT, WHOLE_PROJECT, Charge, Quota, check
from core.domain.access.scopes import Scope
from core.domain.scheduling.states import WAITING_STATES
from core.domain.scheduling.worker_limits import WorkLimits, WorkOwner
from core.domain.scheduling.worker_resources import counted_amount
from core.store import webhook_events
from core.store.rows import StoredRow, columns_of, read_rows
from core.store.tables import quota_limits, quota_use, resource_limits


class LimitRow(StoredRow, frozen=True, gc=False):
    """A limit; of no project: of all that have none of their own; of no user: of the project as a whole."""

    limited: str
    user: str
    quota: str
    amount: int


class ResourceLimitRow(StoredRow, frozen=True, gc=False):
    """A limit of a resource, or of workers, that run: whose as in `LimitRow`."""

    limited: str
    user: str
    resource: str
    amount: int


class UseRow(StoredRow, frozen=True, gc=False):
    """Use of quotas by a project, or by a user in it."""

    user: str
    queued_simulations: int
    tasks: int
    stored_bytes: int

    @property
    def used(self) -> dict[Quota, int]:
        """The same by quota."""
        return {
            Quota.QUEUED_SIMULATIONS: self.queued_simulations,
            Quota.TASKS: self.tasks,
            Quota.STORED_BYTES: self.stored_bytes,
        }


class ProjectUseRow(UseRow, frozen=True, gc=False):
    """Use, and the project whose it is."""

    charged: str


class ChargedRow(UseRow, frozen=True, gc=False):
    """Use after a charge. ``reached``: quotas that webhooks were told of. ``watched``: a webhook wants to be told."""

    reached: str
    watched: bool


#: Drift of a project that was there before anything was counted.
UNCOUNTED_DRIFT = -1
_COLUMNS = ("queued_simulations", "tasks", "stored_bytes")
_CHARGE = text(
    'INSERT INTO quota_use (charged, "user", queued_simulations, tasks, stored_bytes)'
    " VALUES (:charged, :user, :queued_simulations, :tasks, :stored_bytes)"
    ' ON CONFLICT (charged, "user") DO UPDATE SET '
    + ", ".join(f"{name}=quota_use.{name}+excluded.{name}" for name in _COLUMNS)
    + ' RETURNING "user", queued_simulations, tasks, stored_bytes, reached,'
    # in the same statement: a charge costs no further query where no webhook wants to be told
    " EXISTS(SELECT 1 FROM webhooks w WHERE w.project=:charged AND w.state='active' AND w.types LIKE '%quota.reached%')"
)
_LIMITS = select(*columns_of(quota_limits, LimitRow)).where(
    or_(quota_limits.c.limited == bindparam("project"), quota_limits.c.limited == EVERY_PROJECT)
)
_STATES = ", ".join(f"'{state.value}'" for state in sorted(WAITING_STATES))


def charge(
    c: Connection, project: str, user: str, change: Charge, *, of_user: Charge | None = None, refuse: bool = True
) -> None:
    """Count a change for a project and for a user in it; ``of_user``: if it is another one for the user.

    Raise QuotaExceeded if there is no room for it, which undoes the transaction. Not ``refuse``: it is counted all the
    same.
    """
    rows = read_rows(c.execute(_LIMITS, {"project": project}), LimitRow) if refuse else []
    for name, counted in _shares(user, change, of_user):
        if counted:
            row = _count(c, project, name, counted)
            check(project, name, _in_force(rows, project, name), row.used, counted)
            if row.watched or row.reached:
                _mark_reached(c, project, row, counted)


def charge_content(c: Connection, project: str, user: str, stored: int, others: "Select[str]") -> None:
    """Charge bytes, below 0 on their deletion, to who has them in no other row; raise QuotaExceeded as `charge` does.

    ``others``: a query of the users with such a row in the project.
    """
    users = set(c.scalars(others.distinct()))
    whole, own = (Charge(stored_bytes=0 if shared else stored) for shared in (users, user in users))
    charge(c, project, user, whole, of_user=own)


def _shares(user: str, change: Charge, of_user: Charge | None) -> list[tuple[str, Charge]]:
    own = [(user, change if of_user is None else of_user)] if user else []
    return [(WHOLE_PROJECT, change), *own]


def _count(c: Connection, project: str, user: str, change: Charge) -> ChargedRow:
    values = {name: getattr(change, name) for name in _COLUMNS}
    [row] = read_rows(c.execute(_CHARGE, {"charged": project, "user": user, **values}), ChargedRow)
    return row


def _mark_reached(c: Connection, project: str, row: ChargedRow, change: Charge) -> None:
    """Tell webhooks of the limits that a charge has come near to, once for each crossing."""
    _, in_force = limits(c, project, row.user)
    before = {Quota(name) for name in json.loads(row.reached or "[]")}
    marks = quota_marks(before, in_force, row.used, change)
    if marks.reached != before:
        of_row = (quota_use.c.charged == project, quota_use.c.user == row.user)
        c.execute(update(quota_use).where(*of_row).values(reached=_reached_text(marks.reached)))
    for quota in sorted(marks.new):
        now = datetime.now(UTC).timestamp()
        webhook_events.quota_reached(c, project, row.user, quota, in_force[quota], row.used[quota], now)


def _reached_text(quotas: Collection[Quota]) -> str:
    return json.dumps(sorted(quotas)) if quotas else ""


def room(c: Connection, project: str, user: str, change: Charge) -> None:
    """Raise QuotaExceeded if there is no room for a change at this moment; nothing is counted."""
    rows = read_rows(c.execute(_LIMITS, {"project": project}), LimitRow)
    for name, _ in _shares(user, change, None):
        if amounts := _in_force(rows, project, name):
            used = use(c, project, name)
            check(project, name, amounts, {quota: used[quota] + change.of(quota) for quota in used}, change)


def _own(rows: Sequence[LimitRow], project: str, user: str) -> dict[Quota, int]:
    return {Quota(row.quota): row.amount for row in rows if (row.limited, row.user) == (project, user)}


def _in_force(rows: Sequence[LimitRow], project: str, user: str) -> dict[Quota, int]:
    """Return the limits of a user; of a project as a whole its own, and for the others those of every project."""
    every = {} if user else _own(rows, EVERY_PROJECT, WHOLE_PROJECT)
    return every | _own(rows, project, user)


def limits(c: Connection, project: str, user: str = WHOLE_PROJECT) -> tuple[dict[Quota, int], dict[Quota, int]]:
    """Return the limits that were given to a project, or to a user in it, itself; and those that are in force."""
    rows = read_rows(c.execute(_LIMITS, {"project": project}), LimitRow)
    return _own(rows, project, user), _in_force(rows, project, user)


def use(c: Connection, project: str, user: str = WHOLE_PROJECT) -> dict[Quota, int]:
    """Return what a project, or a user in it, has of what is counted."""
    query = select(*columns_of(quota_use, UseRow)).where(quota_use.c.charged == project, quota_use.c.user == user)
    rows = read_rows(c.execute(query), UseRow)
    return (rows[0] if rows else UseRow(user, 0, 0, 0)).used


def limits_in_force(c: Connection) -> Iterator[QuotaShare]:
    """Yield the limits in force of all projects, and of users in them, with what is counted for each."""
    rows = read_rows(c.execute(select(*columns_of(quota_limits, LimitRow))), LimitRow)
    own: dict[tuple[str, str], dict[Quota, int]] = {}
    for row in rows:
        own.setdefault((row.limited, row.user), {})[Quota(row.quota)] = row.amount
    every = own.pop((EVERY_PROJECT, WHOLE_PROJECT), {})
    for used in read_rows(c.execute(select(*columns_of(quota_use, ProjectUseRow))), ProjectUseRow):
        given = own.get((used.charged, used.user), {})
        for quota, amount in (given if used.user else every | given).items():
            yield QuotaShare(used.charged, used.user, quota.value, amount, used.used.get(quota, 0))


def set_limits(
    c: Connection, project: str, user: str, amounts: Mapping[Quota, int], resources: Mapping[str, int] | None = None
) -> None:
    """Replace the limits of a project, of a user in it, or of every project.

    ``resources``: of what running workers have, by name: cores, bytes of memory, devices.
    """
    for table in (quota_limits, resource_limits):
        c.execute(delete(table).where(table.c.limited == project, table.c.user == user))
    if resources:
        limited = {"limited": project, "user": user}
        c.execute(
            insert(resource_limits), [{**limited, "resource": name, "amount": n} for name, n in resources.items()]
        )
    rows = [{"limited": project, "user": user, "quota": quota.value, "amount": n} for quota, n in amounts.items()]
    if rows:
        c.execute(insert(quota_limits), rows)


def resource_amounts(c: Connection, project: str, user: str = WHOLE_PROJECT) -> tuple[dict[str, int], dict[str, int]]:
    """Return the limits of resources that were given to a project, or a user in it, itself; and those in force."""
    known = select(*columns_of(resource_limits, ResourceLimitRow)).where(
        or_(resource_limits.c.limited == project, resource_limits.c.limited == EVERY_PROJECT)
    )
    rows = read_rows(c.execute(known), ResourceLimitRow)
    own = {row.resource: row.amount for row in rows if (row.limited, row.user) == (project, user)}
    every = {row.resource: row.amount for row in rows if not user and (row.limited, row.user) == (EVERY_PROJECT, "")}
    return own, every | own


#: Limits of what runs: of workers, and of what they have.
_WORK_LIMITS = union_all(
    select(*columns_of(quota_limits, ResourceLimitRow, resource=quota_limits.c.quota)).where(
        quota_limits.c.quota == Quota.RUNNING_WORKERS.value
    ),
    select(*columns_of(resource_limits, ResourceLimitRow)),
)


def worker_limits(c: Connection) -> WorkLimits:
    """Return the limits of what runs, by whose they are; one query, because each pass of the dispatcher reads them."""
    amounts: dict[WorkOwner, dict[str, int]] = {}
    for row in read_rows(c.execute(_WORK_LIMITS), ResourceLimitRow):
        counted = counted_amount(row.resource, row.amount)
        amounts.setdefault(WorkOwner(row.limited, row.user), {})[row.resource] = counted
    return WorkLimits(amounts)


# -- what is counted

_TASKS_OF = text("SELECT coalesce(sum(total), 0) FROM stages WHERE simulation_id=:i")
_STORED_OF = text(
    "SELECT coalesce(sum(size), 0) FROM ("
    ' SELECT max(g."offset"+g.bytes) AS size FROM segments g JOIN stages t ON t.id=g.stage_id'
    " WHERE t.simulation_id=:i GROUP BY g.object"
    ' UNION ALL SELECT max("offset"+bytes) FROM artifacts WHERE simulation_id=:i GROUP BY object'
    " UNION ALL SELECT bytes FROM logs WHERE simulation_id=:i) AS extents"
)


def tasks_of(c: Connection, simulation: str) -> int:
    """Return the number of a simulation's tasks."""
    return int(c.scalar(_TASKS_OF, {"i": simulation}) or 0)


def stored_of(c: Connection, simulation: str) -> int:
    """Return the bytes of the objects that a simulation refers to: its results, artifacts and logs."""
    return int(c.scalar(_STORED_OF, {"i": simulation}) or 0)


#: What processes of an earlier version leave out: the bytes of what they end or register. Files of versions whose
#: source names a bucket or a manifest may be in a bucket, and cost nothing.
_SIZING_STATEMENTS = (
    "UPDATE simulations SET stored_bytes=(" + _STORED_OF.text.replace(":i", "simulations.id") + ")"
    " WHERE project=:p AND ended_at IS NOT NULL AND deleted_at IS NULL AND stored_bytes=0",
    "UPDATE dataset_versions SET stored_bytes=bytes WHERE project=:p AND state='ready' AND stored_bytes=0 AND bytes>0"
    " AND source NOT LIKE '%\"s3\"%' AND source NOT LIKE '%\"manifest\"%'",
)

#: Queries of the use of one project: user, simulations that are queued, tasks, bytes. For the project as a whole what
#: users have in common counts once: models and datasets by their digests, uploads by their objects.
_QUEUE_QUERY = (
    f"SELECT {{user}}, sum(CASE WHEN state IN ({_STATES}) THEN 1 ELSE 0 END), "
    "sum((SELECT sum(total) FROM stages WHERE simulation_id=simulations.id)), 0"
    " FROM simulations WHERE project=:p AND ended_at IS NULL AND deleted_at IS NULL GROUP BY 1"
)
_RESULTS_QUERY = (
    "SELECT {user}, 0, 0, sum(stored_bytes) FROM simulations"
    " WHERE project=:p AND stored_bytes>0 AND (deleted_at IS NULL OR binned=1) GROUP BY 1"
)
_CONTENTS_QUERY = (
    "SELECT who, 0, 0, sum(size) FROM (SELECT {user} AS who, max({size}) AS size FROM {table}"
    " WHERE project=:p{where} GROUP BY 1, digest) AS contents GROUP BY who"
)
_MODELS = (
    "(SELECT project, made_by, digest, size FROM models UNION ALL"
    " SELECT project, made_by, digest, bytes FROM bin_items WHERE kind='models') AS m"
)
_KEPT_VERSION = " AND (state='ready' OR id IN (SELECT id FROM bin_items WHERE kind='datasets'))"
_UPLOADS_QUERY = (
    "SELECT who, 0, 0, sum(bytes) FROM (SELECT DISTINCT {user} AS who, p.object, p.bytes FROM upload_parts p"
    " JOIN uploads u ON u.id=p.upload_id WHERE u.project=:p) AS parts GROUP BY who"
)


def _queries(whole: bool) -> list[str]:
    def by(column: str) -> str:
        return "''" if whole else column

    return [
        _QUEUE_QUERY.format(user=by("submitted_by")),
        _RESULTS_QUERY.format(user=by("submitted_by")),
        _CONTENTS_QUERY.format(user=by("made_by"), size="size", table=_MODELS, where=""),
        _CONTENTS_QUERY.format(user=by("made_by"), size="stored_bytes", table="dataset_versions", where=_KEPT_VERSION),
        _UPLOADS_QUERY.format(user=by("u.caller")),
    ]


def recount(c: Connection, scope: Scope) -> int:
    """Count the use of a project again; return by how much it had drifted, summed over quotas and users."""
    project = scope.owner
    charge_nothing = {"charged": project, "user": WHOLE_PROJECT, **dict.fromkeys(_COLUMNS, 0)}
    for sizing in _SIZING_STATEMENTS:  # before the row of the project is locked, as all transactions do
        c.execute(text(sizing), {"p": project})
    c.execute(_CHARGE, charge_nothing)  # locks the row: who changes what is counted waits, or has committed
    counted: dict[str, list[int]] = {WHOLE_PROJECT: [0, 0, 0]}
    for whole in (True, False):
        for query in _queries(whole):
            for user, *numbers in c.execute(text(query), {"p": project}):
                if whole or user:
                    row = counted.setdefault(user, [0, 0, 0])
                    counted[user] = [total + int(number or 0) for total, number in zip(row, numbers, strict=True)]
    stored = read_rows(c.execute(select(*columns_of(quota_use, UseRow)).where(quota_use.c.charged == project)), UseRow)
    before = {row.user: [row.queued_simulations, row.tasks, row.stored_bytes] for row in stored}
    drift = sum(
        abs(one - other)
        for user in counted.keys() | before.keys()
        for one, other in zip(counted.get(user, [0, 0, 0]), before.get(user, [0, 0, 0]), strict=True)
    )
    if c.scalar(select(quota_use.c.drift).where(*_whole(project))) == UNCOUNTED_DRIFT:
        drift = 0
    marks = select(quota_use.c.user, quota_use.c.reached).where(quota_use.c.charged == project)
    told = {user: reached for user, reached in c.execute(marks)}
    c.execute(delete(quota_use).where(quota_use.c.charged == project))
    rows: list[dict[str, object]] = [
        {"charged": project, "user": user, "reached": told.get(user, "")} | dict(zip(_COLUMNS, row, strict=True))
        for user, row in counted.items()
    ]
    c.execute(insert(quota_use), rows)
    c.execute(update(quota_use).where(*_whole(project)).values(drift=drift))
    return drift


def last_drift(c: Connection) -> int:
    """Return by how much the use of all projects had drifted when it was last counted again."""
    return int(c.scalar(text("SELECT coalesce(sum(drift), 0) FROM quota_use WHERE drift>0")) or 0)


def _whole(project: str) -> tuple[ColumnElement[bool], ...]:
    return quota_use.c.charged == project, quota_use.c.user == WHOLE_PROJECT


def counted_projects(c: Connection) -> list[str]:
    """Return the projects that have anything that is counted, or had."""
    return list(c.scalars(text("SELECT charged FROM quota_use WHERE \"user\"='' ORDER BY charged")))
