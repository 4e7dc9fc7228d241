"""Simulations and their stages in SQL. `move` is the only function that changes a state."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import msgspec
from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Update,
    and_,
    bindparam,
    case,
    func,
    insert,
    or_,
    select,
    text,
    update,
)

from common.errors import Conflict, IllegalTransition, UnknownSimulation
from core.domain.access.quotas import Charge
from core.domain.access.scopes import Caller, ReadScope, Scope, work_of
from core.domain.access.shared_kinds import SharedKind
from core.domain.scheduling.preparation import Preparation
from core.domain.scheduling.states import ADMITTED, FINAL, UNENDED, WAITING_STATES, State, may_follow
from core.domain.submissions.listing import search_text
from core.store import accounts, bin, events, quotas, scheduling_changes, shares, webhook_events
from core.store.bin import BinAct
from core.store.claims import Claims
from core.store.owned import OwnedQuery, within
from core.store.recording import note
from core.store.rows import StoredRow, columns_of, read_row, read_rows
from core.store.tables import LISTED_ROWS, simulations, stages


class SimulationRow(StoredRow, frozen=True, gc=False):
    """A simulation, with the columns that services read."""

    id: str
    project: str
    state: str
    attempt: int
    event_seq: int
    spec: str
    provenance: str
    dataset: str
    runtime: str
    model: str
    digest: str
    labels: str
    summary: str | None
    headline: str | None
    progress: str | None
    reason: str | None
    outcome: str | None
    retry_of: str | None
    dry_run: int
    claim: str | None
    claim_until: float
    not_before: float
    staging_failures: int
    preparation: str | None
    awaits_model: int
    executor: str | None
    bundle: str | None
    created_at: float
    started_at: float | None
    ended_at: float | None
    submitted_by: str
    outputs: str | None

    @property
    def caller(self) -> Caller:
        """For whom jobs work on it."""
        return work_of(self.project, self.submitted_by)


class QueuedRow(StoredRow, frozen=True, gc=False):
    """A queued simulation, with the columns that decide its admission."""

    id: str
    project: str
    submitted_by: str
    spec: str
    dry_run: int
    created_at: float
    not_before: float
    preparation: str | None


class HeadlineRow(StoredRow, frozen=True, gc=False):
    """A simulation, with the columns that a leaderboard reads."""

    id: str
    model: str
    digest: str
    provenance: str
    headline: str | None
    summary: str | None
    ended_at: float | None


class ChangeRow(StoredRow, frozen=True, gc=False):
    """When a simulation changed last."""

    id: str
    changed_at: float | None


class _EndedColumns(StoredRow, frozen=True, gc=False):
    """The columns of a simulation that is deleted which are needed for it."""

    project: str
    submitted_by: str
    stored_bytes: int
    model: str
    digest: str
    dataset_digest: str
    created_at: float


class EndRow(StoredRow, frozen=True, gc=False):
    """When a simulation ended, and when it was deleted."""

    ended_at: float | None
    deleted_at: float | None


def listed_columns(record: type[StoredRow]) -> Sequence[ColumnElement[object]]:
    """Return the columns of a record for lists: a summary, which may be large, is read if a row has no headline."""
    return columns_of(simulations, record, summary=case((simulations.c.headline.is_(None), simulations.c.summary)))


#: Claims on simulations that are staged, and on those that are deleted.
STAGING = Claims(table=simulations, needed="state='staging'")
DELETED = Claims(table=simulations, needed="deleted_at IS NOT NULL AND binned = 0", ready="")
_CLAIM = Claims(table=simulations, needed="state=:state").taking
_VERSIONS = text("SELECT id, event_seq FROM simulations WHERE id IN :ids").bindparams(bindparam("ids", expanding=True))
_LAST_CHANGE = text("SELECT max(changed_at) FROM simulations WHERE changed_at IS NOT NULL")
_CHANGED_SINCE = OwnedQuery(
    simulations,
    select(*columns_of(simulations, ChangeRow))
    .where(simulations.c.changed_at > bindparam("moment"), simulations.c.dry_run == 0)
    .order_by(simulations.c.changed_at.desc())
    .limit(bindparam("most")),
)
_UNENDED = sorted(UNENDED)
_ADMITTED = sorted(ADMITTED)
_CONCLUDE = text(
    "UPDATE simulations SET outcome=:outcome, reason=:reason, claim=NULL, claim_until=0"
    " WHERE id=:i AND state=:state AND outcome IS NULL RETURNING id"
)
_UNENDED_STATES = text("SELECT id, state FROM simulations WHERE state IN :states").bindparams(
    bindparam("states", expanding=True)
)
#: From the index of lists alone. Those of other projects are not counted: their number is theirs, although they may
#: run first.
_QUEUED_BETWEEN = text(
    "SELECT count(*) FROM simulations"
    f" WHERE project=:project AND state='queued' AND id>=:from AND id<:to AND {LISTED_ROWS}"
)
_COUNTS = text(
    "SELECT s.simulation_id AS id, coalesce(sum(s.total), 0) AS total,"
    " coalesce(sum((SELECT sum(cursor-start) FROM ranges WHERE stage_id=s.id)), 0) AS done,"
    " coalesce(sum((SELECT sum(failed) FROM segments WHERE stage_id=s.id)), 0) AS failed"
    " FROM stages s WHERE s.simulation_id IN :ids GROUP BY s.simulation_id"
).bindparams(bindparam("ids", expanding=True))
_UNCLAIMED_COLUMNS = (
    "SELECT s.id, s.state, s.outcome, s.preparation,"
    " EXISTS(SELECT 1 FROM launches l WHERE l.simulation_id=s.id AND l.state='live') AS launched,"
    " NOT EXISTS(SELECT 1 FROM stages g WHERE g.simulation_id=s.id AND g.state='open') AS finished"
    " FROM simulations s WHERE s.claim_until<=:now AND s.deleted_at IS NULL AND "
)
_UNCLAIMED = text(
    f"{_UNCLAIMED_COLUMNS} s.state IN :states"
    f" UNION ALL {_UNCLAIMED_COLUMNS} s.state='queued' AND s.outcome IS NOT NULL ORDER BY 1"
).bindparams(bindparam("states", expanding=True))
_CLAIMED = text("SELECT id FROM simulations WHERE claim IS NOT NULL AND claim_until>:now")
_UNSUMMED = (
    select(simulations.c.id)
    .where(simulations.c.state.in_(sorted(FINAL)), simulations.c.summary.is_(None), simulations.c.deleted_at.is_(None))
    .limit(100)
)
_INSERT = insert(simulations)
_INSERT_STAGE = insert(stages)
_SELECT = select(*columns_of(simulations, SimulationRow))
_FIND = OwnedQuery(simulations, _SELECT.where(simulations.c.id == bindparam("i"), simulations.c.deleted_at.is_(None)))
_AMONG = simulations.c.id.in_(bindparam("ids", expanding=True))
_FOUND = OwnedQuery(simulations, _SELECT.where(_AMONG, simulations.c.deleted_at.is_(None)))
#: Most characters of a provenance that a leaderboard reads.
LONGEST_PROVENANCE = 1 << 17
_HEADLINES = OwnedQuery(
    simulations,
    select(*listed_columns(HeadlineRow)).where(
        _AMONG, simulations.c.deleted_at.is_(None), func.length(simulations.c.provenance) <= LONGEST_PROVENANCE
    ),
)
_END = select(*columns_of(simulations, EndRow)).where(simulations.c.id == bindparam("i"))
_NOTE_USE = text("UPDATE models SET used_at=:at WHERE project=:p AND digest=:d AND (used_at IS NULL OR used_at<:at)")
_NOTE_DATASET_USE = text(
    "UPDATE dataset_versions SET used_at=:at WHERE project=:p AND digest=:d AND (used_at IS NULL OR used_at<:at)"
)
_SET_PROGRESS = text("UPDATE simulations SET progress=:progress WHERE id=:i")
_LOCKED_PROGRESS = select(simulations.c.progress).where(simulations.c.id == bindparam("i")).with_for_update()
_WAITING = (simulations.c.state == State.QUEUED.value, simulations.c.outcome.is_(None))
_QUEUED = select(*columns_of(simulations, QueuedRow)).where(_AMONG, *_WAITING, simulations.c.awaits_model == 0)
_ACTIVE = _SELECT.where(
    _AMONG,
    or_(
        simulations.c.state.in_(_ADMITTED),
        and_(simulations.c.state == State.QUEUED.value, simulations.c.outcome.is_not(None)),
    ),
)


class _FirstColumns(msgspec.Struct):
    """The columns of a new simulation from which its search text and its first event follow."""

    id: str
    project: str
    state: str
    model: str
    dataset: str
    runtime: str
    created_at: float
    labels: str = "{}"
    submitted_by: str = ""


class _FirstStage(msgspec.Struct):
    """The column of a new simulation's stage that is charged."""

    total: int


def add(c: Connection, values: Mapping[str, object], stage: Mapping[str, object]) -> None:
    """Insert a queued simulation with its stage and its first event; raise QuotaExceeded if it has no room."""
    new = msgspec.convert(values, _FirstColumns)
    accounts.require_open(c, new.project)
    tasks = msgspec.convert(stage, _FirstStage).total
    searched = search_text(new.model, new.dataset, new.runtime, json.loads(new.labels))
    c.execute(_INSERT, {**values, "search": searched})
    c.execute(_INSERT_STAGE, stage)
    note(c, f"simulations/{new.id}")
    scheduling_changes.add(c, new.id)
    events.say(c, new.id, "state", {"state": new.state}, new.created_at)
    # Last: the row of the project is locked from here on.
    quotas.charge(c, new.project, new.submitted_by, Charge(queued_simulations=1, tasks=tasks))


def find(c: Connection, scope: Scope | ReadScope, id: str) -> SimulationRow:
    """Return a simulation's row, or raise UnknownSimulation."""
    row = read_row(_FIND.execute(c, scope, i=id).first(), SimulationRow)
    if row is None:
        raise unknown(id)
    return row


def found(c: Connection, scope: Scope | ReadScope, ids: Sequence[str]) -> dict[str, SimulationRow]:
    """Return the rows of those of these simulations that there are, by id."""
    rows = _FOUND.execute(c, scope, ids=list(ids))
    return {row.id: row for row in read_rows(rows, SimulationRow)}


def unknown(id: str) -> UnknownSimulation:
    """Return the error for an id that no simulation has."""
    return UnknownSimulation(f"There is no simulation {id[:64]!r}. `GET /v1/simulations` lists them.")


def headline_rows(c: Connection, scope: Scope, ids: Sequence[str]) -> list[HeadlineRow]:
    """Return the rows of these simulations that a leaderboard reads, without the summaries of most.

    Left out is a provenance of more than LONGEST_PROVENANCE characters, which lists scenarios one by one.
    """
    if not ids:  # PostgreSQL does not compare text with the empty list
        return []
    return read_rows(_HEADLINES.execute(c, scope, ids=ids), HeadlineRow)


def hold(c: Connection, scope: Scope, id: str) -> None:
    """Lock a simulation against deletion until the transaction ends; raise UnknownSimulation if it is deleted."""
    alive = (simulations.c.id == id, simulations.c.deleted_at.is_(None))
    locking = update(simulations).where(within(simulations, scope), *alive)
    if c.execute(locking.values(event_seq=simulations.c.event_seq).returning(simulations.c.id)).first() is None:
        raise UnknownSimulation(f"The simulation {id[:64]!r} has been deleted.")


def unended_dry_runs(c: Connection, scope: Scope, after: str, since: float) -> tuple[int, float]:
    """Return how many dry runs of a project have not ended, and the time of the first.

    Those count that were created after an id and a time.
    """
    s = simulations.c
    query = select(func.count(), func.min(s.created_at)).where(within(simulations, scope))
    # ids begin with the time of their creation, and are the second column of the index on states
    recent = query.where(s.state.in_(_UNENDED), s.id > after, s.created_at > since)
    row = c.execute(recent.where(s.dry_run == 1, s.deleted_at.is_(None))).one()
    return row[0], row[1] or 0.0


def queued(c: Connection, ids: Sequence[str]) -> list[QueuedRow]:
    """Return the rows of queued simulations among these that have a model, with the columns that decide admission."""
    return read_rows(c.execute(_QUEUED, {"ids": ids}), QueuedRow)


def active(c: Connection, ids: Sequence[str]) -> list[SimulationRow]:
    """Return the rows of simulations among these that are admitted, or whose end is decided, and have not ended."""
    return read_rows(c.execute(_ACTIVE, {"ids": ids}), SimulationRow)


def unended_states(c: Connection) -> dict[str, str]:
    """Return the state of every simulation that has not ended, by id."""
    return {id: state for id, state in c.execute(_UNENDED_STATES, {"states": _UNENDED})}


def claimed(c: Connection, now: float) -> list[str]:
    """Return the simulations that a job works on."""
    return list(c.scalars(_CLAIMED, {"now": now}))


class UnclaimedSimulation(NamedTuple):
    """What decides which job a simulation needs that no job works on (`core/domain/scheduling/due_jobs.py`)."""

    id: str
    state: str
    outcome: str | None
    preparation: str | None
    launched: bool
    finished: bool


def unclaimed(c: Connection, now: float) -> list[UnclaimedSimulation]:
    """Return the simulations that are admitted or whose end is decided, have not ended, and that no job works on."""
    rows = c.execute(_UNCLAIMED, {"states": _ADMITTED, "now": now})
    return [
        UnclaimedSimulation(row.id, row.state, row.outcome, row.preparation, bool(row.launched), bool(row.finished))
        for row in rows
    ]


def by_state(c: Connection) -> dict[str, int]:
    """Return the number of simulations in each state, from an index; those that are being deleted count too."""
    rows = c.execute(text("SELECT state, count(*) FROM simulations GROUP BY state"))
    return {state: number for state, number in rows}


def move(c: Connection, id: str, current: State, following: State, now: float, **changes: object) -> int:
    """Change a simulation's state and insert the event, in one transaction; return the event's number.

    Raise IllegalTransition if the transition is not allowed, Conflict if the state is no longer ``current`` or another
    end has been decided (``conclude``).
    """
    _check(current, following)
    body = {"state": following.value}
    if isinstance(reason := changes.get("reason"), str):
        changes["reason"] = body["reason"] = _storable(reason)
    charge = Charge(queued_simulations=(following in WAITING_STATES) - (current in WAITING_STATES))
    if following in FINAL:
        stored = quotas.stored_of(c, id)
        changes = {"ended_at": now} | changes | {"stored_bytes": stored}
        charge = replace(charge, tasks=-quotas.tasks_of(c, id), stored_bytes=stored)
    changes["changed_at"] = now
    values = {f"new_{name}": value for name, value in (changes | {"state": following.value}).items()}
    moving = _moving(frozenset(changes), again=following is State.QUEUED)
    moved = c.execute(moving, values | {"simulation": id, "current": current.value}).first()
    if moved is None:
        raise Conflict(f"Simulation {id} is no longer {current}, or its end has been decided.")
    seq, project, user = moved
    note(c, f"simulations/{id}")
    events.insert_event(c, id, seq, "state", body, now)
    scheduling_changes.add(c, id)
    quotas.charge(c, project, user, charge, refuse=False)
    if following in FINAL:
        webhook_events.simulation_end(c, project, id, following, now)
    return int(seq)


@cache
def _moving(changed: frozenset[str], *, again: bool) -> Update:
    """Return the statement that changes a state and these columns; ``again``: its next attempt begins."""
    s = simulations.c
    # SQLAlchemy refuses a parameter with the name of a column here.
    named: dict[str, BindParameter[object]] = {name: bindparam(f"new_{name}") for name in ("state", *changed)}
    attempt = {"attempt": s.attempt + 1} if again and "attempt" not in changed else {}
    return (
        update(simulations)
        .where(s.id == bindparam("simulation"), s.state == bindparam("current"))
        .where(or_(s.outcome.is_(None), s.outcome == bindparam("new_state")))
        .values(event_seq=s.event_seq + 1, claim=None, claim_until=0.0, **attempt, **named)
        .returning(s.event_seq, s.project, s.submitted_by)
    )


def conclude(c: Connection, id: str, current: State, outcome: State, reason: str) -> None:
    """Decide how a simulation ends; the job `collect` writes this state together with the summary.

    Raise IllegalTransition if the transition is not allowed, Conflict if the state is no longer ``current`` or an end
    has been decided already.
    """
    _check(current, outcome)
    values = {"i": id, "state": current.value, "outcome": outcome.value, "reason": _storable(reason)}
    if c.execute(_CONCLUDE, values).first() is None:
        raise Conflict(f"Simulation {id} is no longer {current}, or its end has been decided.")
    scheduling_changes.add(c, id)


def awaits_model(c: Connection, id: str) -> bool:
    """Return whether a simulation still waits for the import of its model."""
    query = select(simulations.c.id).where(simulations.c.id == id, *_WAITING, simulations.c.awaits_model == 1)
    return c.execute(query.where(simulations.c.deleted_at.is_(None))).first() is not None


def supply_model(c: Connection, id: str, **values: object) -> None:
    """Store the model of a simulation that waits for it, so that it may be admitted; raise Conflict if it does not."""
    waiting = update(simulations).where(simulations.c.id == id, *_WAITING, simulations.c.awaits_model == 1)
    supplying = waiting.values(awaits_model=0, reason=None, **values).returning(simulations.c.id)
    if c.execute(supplying).first() is None:
        raise Conflict(f"Simulation {id} waits for no model any more.")
    scheduling_changes.add(c, id)


def explain_import(c: Connection, id: str, reason: str) -> None:
    """Store why a simulation still waits for its model."""
    waiting = update(simulations).where(simulations.c.id == id, *_WAITING, simulations.c.awaits_model == 1)
    c.execute(waiting.values(reason=_storable(reason)))


def explain(c: Connection, id: str, reason: str | None) -> None:
    """Store what a running simulation waits for, None: for nothing; an end that was decided has its own reason."""
    running = and_(simulations.c.id == id, simulations.c.state == State.RUNNING.value, simulations.c.outcome.is_(None))
    c.execute(update(simulations).where(running).values(reason=_storable(reason) if reason else None))


def _check(current: State, following: State) -> None:
    if not may_follow(current, following):
        raise IllegalTransition(f"A {current} simulation cannot become {following}.", state=str(current))


def _storable(reason: str) -> str:
    """Replace NUL, which a model's message may contain and PostgreSQL's text cannot hold."""
    return reason.replace("\0", "\ufffd")


def bundles(c: Connection) -> set[str]:
    """Return the keys of the bundles of simulations that have not ended."""
    query = select(simulations.c.bundle).where(simulations.c.state.in_(_UNENDED), simulations.c.bundle.is_not(None))
    packed = (json.loads(bundle) for bundle in c.scalars(query))
    return {part["key"] for bundle in packed for part in bundle.values() if isinstance(part, dict)}


def counts(c: Connection, id: str) -> tuple[int, int, int]:
    """Return the numbers of tasks: in total, with a result, with a result other than ``ok``."""
    return counts_of(c, [id]).get(id, (0, 0, 0))


def counts_of(c: Connection, ids: Sequence[str]) -> dict[str, tuple[int, int, int]]:
    """Return ``counts`` of several simulations."""
    if not ids:  # PostgreSQL does not compare text with the empty list
        return {}
    return {row.id: (int(row.total), int(row.done), int(row.failed)) for row in c.execute(_COUNTS, {"ids": ids})}


def claim(c: Connection, id: str, state: State, who: str, seconds: float, now: float) -> bool:
    """Claim a simulation in a state for ``seconds``, so that a job that was enqueued twice runs once."""
    values = {"i": id, "state": state.value, "who": who, "until": now + seconds, "now": now}
    return c.execute(_CLAIM, values).first() is not None


def hand_over(c: Connection, id: str, preparation: Preparation) -> bool:
    """Leave a simulation that is staged to another kind of job; False if it is no longer staged."""
    staged = and_(simulations.c.id == id, simulations.c.state == State.STAGING.value)
    leaving = update(simulations).where(staged).values(preparation=preparation.value, claim=None, claim_until=0.0)
    if c.execute(leaving.returning(simulations.c.id)).first() is None:
        return False
    scheduling_changes.add(c, id)
    return True


def await_preparation(c: Connection, ids: Sequence[str]) -> None:
    """Record that queued simulations wait until a job may prepare them."""
    c.execute(update(simulations).where(_AMONG, *_WAITING).values(preparation=Preparation.WAITING.value), {"ids": ids})


def describe(c: Connection, id: str, **columns: str | None) -> None:
    """Store columns that decide nothing: its provenance with what was not known before, its bundles, its summary."""
    c.execute(update(simulations).where(simulations.c.id == id).values(**columns))


def set_progress(c: Connection, id: str, progress: Mapping[str, object]) -> None:
    """Store the progress that the dispatcher computed."""
    c.execute(_SET_PROGRESS, {"i": id, "progress": json.dumps(progress)})


def locked_progress(c: Connection, id: str) -> str | None:
    """Return the stored progress, which no other transaction replaces before this one ends."""
    progress: str | None = c.scalar(_LOCKED_PROGRESS, {"i": id})
    return progress


def respecify(c: Connection, scope: Scope, id: str, spec: Mapping[str, object]) -> None:
    """Replace a simulation's specification; raise Conflict if it has ended."""
    running = (simulations.c.id == id, simulations.c.state.not_in([state.value for state in FINAL]))
    change = update(simulations).where(within(simulations, scope), *running).values(spec=json.dumps(spec))
    if c.execute(change.returning(simulations.c.id)).first() is None:
        raise Conflict(f"Simulation {id} has just ended.")
    scheduling_changes.add(c, id)


def positions(c: Connection, queued: Mapping[str, str]) -> dict[str, int]:
    """Return the position, from 1, of queued simulations among those of their project: one pass over those before.

    ``queued``: the project of each, by id.
    """
    found: dict[str, int] = {}
    for project in sorted(set(queued.values())):
        position, before = 1, ""
        for id in sorted(id for id, owner in queued.items() if owner == project):
            position += int(c.scalar(_QUEUED_BETWEEN, {"project": project, "from": before, "to": id}) or 0)
            found[id], before = position, id
    return found


def delete(c: Connection, scope: Scope, id: str, now: float) -> None:
    """Mark a simulation as deleted; its objects and rows are removed later, its row last."""
    for row in _end(c, scope, id, now, binned=False):
        quotas.charge(c, row.project, row.submitted_by, Charge(stored_bytes=-row.stored_bytes), refuse=False)


def into_bin(c: Connection, scope: Scope, id: str, act: BinAct) -> bool:
    """Put a simulation into the bin, where it is as if it were deleted and stays charged; False if it is not there."""
    rows = _end(c, scope, id, act.at, binned=True)
    for row in rows:
        content = {"name": row.model, "bytes": row.stored_bytes, "made_by": row.submitted_by}
        bin.add(c, {"id": id, "project": row.project, "kind": "simulations"} | content | act.columns())
    return bool(rows)


def restore(c: Connection, scope: Scope, id: str, now: float) -> bool:
    """Take a simulation back from the bin, as it was; False if its removal has begun."""
    note(c, f"simulations/{id}")
    binned = (*_in_bin(scope, id), simulations.c.claim.is_(None))  # an earlier version claims all that is deleted
    restoring = update(simulations).where(*binned).values(deleted_at=None, binned=0, changed_at=now)
    return c.execute(restoring.returning(simulations.c.id)).first() is not None


def purge(c: Connection, scope: Scope, id: str) -> None:
    """Let the job remove a simulation that was in the bin."""
    s = simulations.c
    purging = update(simulations).where(*_in_bin(scope, id)).values(binned=0)
    for project, user, stored in c.execute(purging.returning(s.project, s.submitted_by, s.stored_bytes)):
        quotas.charge(c, project, user, Charge(stored_bytes=-stored), refuse=False)


def _in_bin(scope: Scope, id: str) -> tuple[ColumnElement[bool], ...]:
    s = simulations.c
    return within(simulations, scope), s.id == id, s.deleted_at.is_not(None), s.binned == 1


def _end(c: Connection, scope: Scope, id: str, now: float, *, binned: bool) -> list[_EndedColumns]:
    """Mark a simulation as deleted; end its shares, and note the uses that are known from it alone."""
    values = {"deleted_at": now, "changed_at": now, "binned": int(binned), "claim": None, "claim_until": 0.0}
    s = simulations.c
    alive = update(simulations).where(within(simulations, scope), s.id == id, s.deleted_at.is_(None))
    ended = c.execute(alive.values(**values).returning(*columns_of(simulations, _EndedColumns)))
    rows = read_rows(ended, _EndedColumns)
    for row in rows:
        shares.forget(c, row.project, SharedKind.SIMULATIONS, id, id, last=True)
        c.execute(_NOTE_USE, {"p": row.project, "d": row.digest, "at": row.created_at})
        c.execute(_NOTE_DATASET_USE, {"p": row.project, "d": row.dataset_digest, "at": row.created_at})
    return rows


def retries_of(c: Connection, scope: Scope, ids: Sequence[str]) -> dict[str, str]:
    """Return the newest retry of each of these simulations that has one which is not deleted."""
    s = simulations.c
    retry = (s.retry_of.in_(list(ids)), s.retry_of.is_not(None), s.deleted_at.is_(None))
    of_these = and_(within(simulations, scope), *retry)
    rows = c.execute(select(s.retry_of, func.max(s.id).label("newest")).where(of_these).group_by(s.retry_of))
    return {row.retry_of: row.newest for row in rows}


def any_row(c: Connection, id: str) -> EndRow | None:
    """Return when a simulation ended and when it was deleted; None if it has no row."""
    return read_row(c.execute(_END, {"i": id}).first(), EndRow)


def unsummed(c: Connection) -> list[str]:
    """Return simulations that have ended without a summary so far."""
    return list(c.scalars(_UNSUMMED))


def versions(c: Connection, ids: Sequence[str]) -> dict[str, int]:
    """Return the number of the newest event of each simulation."""
    if not ids:
        return {}
    return {id: seq for id, seq in c.execute(_VERSIONS, {"ids": ids})}


def last_change(c: Connection) -> float:
    """Return when the simulation changed that changed last; 0 if none has."""
    return float(c.scalar(_LAST_CHANGE) or 0.0)


def changed_since(c: Connection, scope: Scope, moment: float, limit: int) -> dict[str, float]:
    """Return the times of the newest change of the simulations that changed after a time, the newest changes first.

    With those that are deleted, as long as their rows exist. A change may become visible a little after others with a
    later time: its transaction was longer.
    """
    rows = read_rows(_CHANGED_SINCE.execute(c, scope, moment=moment, most=limit), ChangeRow)
    return {row.id: row.changed_at or 0.0 for row in rows}
