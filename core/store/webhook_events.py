"""Events for webhooks in SQL: written in the transaction that makes what they tell of, if any webhook wants them.

A project without a webhook costs one query of an index that has no row.
"""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec
from sqlalchemy import Connection, select

from common.ids import new_id
from core.domain.access.quotas import MEANINGS, Quota
from core.domain.scheduling.states import State
from core.domain.submissions.stored_documents import decode_document, load_document
from core.domain.webhooks.event_types import EventType, RaisedEvent
from core.store import webhook_deliveries, webhooks
from core.store.rows import StoredTable
from core.store.tables import comparison_models, comparison_simulations, comparisons, pipelines, simulations

#: Types of the ends of what a table has, for any end and for a failure.
_END_TYPES = {
    simulations.name: (EventType.SIMULATION_ENDED, EventType.SIMULATION_FAILED),
    comparisons.name: (EventType.COMPARISON_ENDED, EventType.COMPARISON_FAILED),
    pipelines.name: (EventType.PIPELINE_ENDED, EventType.PIPELINE_FAILED),
}
_FAILURES = frozenset({State.FAILED.value, State.ERRORED.value})
_COUNTS = ("total", "done", "failed")


class _EventTasks(msgspec.Struct):
    """The part of a simulation's headline that an event has."""

    tasks: dict[str, int | None] | None = None


def raise_event(
    c: Connection,
    project: str,
    types: Sequence[EventType],
    describe: Callable[[], RaisedEvent | None],
    now: float,
) -> None:
    """Insert a delivery for each webhook of a project that wants an event.

    ``types``: those that it may have. ``describe`` is called only if some webhook wants one of them; None: no event.
    """
    rows = webhooks.listeners(c, project)
    wanting = [row for row in rows if any(type in row.wanted_types for type in types)]
    if not wanting or (event := describe()) is None:
        return
    chosen = [(row, event.type_for(row.wanted_types, row.wanted_labels)) for row in wanting]
    id, data = new_id(datetime.now(UTC)), json.dumps(event.data)
    added = [
        {
            "id": new_id(datetime.now(UTC)),
            "project": project,
            "webhook_id": row.id,
            "event_id": id,
            "type": type.value,
            "subject": event.subject,
            "data": data,
            "due_at": now,
            "created_at": now,
        }
        for row, type in chosen
        if type is not None
    ]
    if added:
        webhook_deliveries.add(c, added)


def simulation_end(c: Connection, project: str, id: str, state: State, now: float) -> None:
    """Tell that a simulation has ended, in the transaction that ends it. Dry runs are told of by their answer."""
    types = _types_of(simulations, state.value)
    raise_event(c, project, types, lambda: _ended_simulation(c, id, types), now)


def advanced_end(c: Connection, table: StoredTable, project: str, id: str, state: str, now: float) -> None:
    """Tell that a comparison or a pipeline has ended, in the transaction that ends it."""
    types = _types_of(table, state)
    raise_event(c, project, types, lambda: _ended_row(c, table, id, types), now)


def decision(
    c: Connection, project: str, id: str, labels: dict[str, str], verdict: dict[str, object], now: float
) -> None:
    """Tell that a model of a comparison has its verdict, in the transaction that stores it."""
    types = (EventType.COMPARISON_DECIDED,)
    data = {"id": id, **verdict, "labels": labels}
    event = RaisedEvent(types=types, subject=f"comparisons/{id}", data=data, labels=labels)
    raise_event(c, project, types, lambda: event, now)


def quota_reached(c: Connection, project: str, user: str, quota: Quota, limit: int, used: int, now: float) -> None:
    """Tell that the use of a quota has come near to its limit, in the transaction that charges it."""
    types = (EventType.QUOTA_REACHED,)
    data: dict[str, object] = {"quota": quota.value, "counts": MEANINGS[quota], "limit": limit, "used": used}
    data["user"] = user or None
    event = RaisedEvent(types=types, subject=f"projects/{project}/quotas", data=data)
    raise_event(c, project, types, lambda: event, now)


def _types_of(table: StoredTable, state: str) -> tuple[EventType, ...]:
    ended, failed = _END_TYPES[table.name]
    return (ended, failed) if state in _FAILURES else (ended,)


def _ended_simulation(c: Connection, id: str, types: Sequence[EventType]) -> RaisedEvent | None:
    s = simulations.c
    columns = (s.state, s.reason, s.dataset, s.runtime, s.model, s.digest, s.labels, s.submitted_by, s.created_at)
    row = c.execute(select(*columns, s.started_at, s.ended_at, s.headline, s.dry_run).where(s.id == id)).one()
    if row.dry_run:
        return None
    played = select(comparison_simulations.c.comparison_id).where(comparison_simulations.c.simulation_id == id)
    counts = decode_document(row.headline or "{}", _EventTasks).tasks or {}
    labels = decode_document(row.labels, dict[str, str])
    data = {
        "id": id,
        "state": row.state,
        "reason": row.reason,
        "model": row.model,
        "model_digest": row.digest,
        "runtime": row.runtime,
        "dataset": row.dataset,
        "tasks": {name: counts.get(name) for name in _COUNTS},
        "comparison": c.scalar(played),
        "labels": labels,
        "submitted_by": row.submitted_by or None,
        **_times(row.created_at, row.started_at, row.ended_at),
    }
    return RaisedEvent(types=types, subject=f"simulations/{id}", data=data, labels=labels)


def _ended_row(c: Connection, table: StoredTable, id: str, types: Sequence[EventType]) -> RaisedEvent:
    t = table.c
    row = c.execute(
        select(t.state, t.reason, t.labels, t.submitted_by, t.created_at, t.ended_at).where(t.id == id)
    ).one()
    labels = decode_document(str(row.labels), dict[str, str])
    data: dict[str, object] = {"id": id, "state": row.state, "reason": row.reason}
    if table is comparisons:
        data["verdicts"] = _verdicts(c, id)
    else:
        data["name"] = c.scalar(select(t.name).where(t.id == id)) or None
    data |= {"labels": labels, "submitted_by": row.submitted_by or None}
    data |= _times(row.created_at, None, row.ended_at)
    return RaisedEvent(types=types, subject=f"{table.name}/{id}", data=data, labels=labels)


def _verdicts(c: Connection, id: str) -> list[dict[str, object]]:
    """Return the states and verdicts of the models of a comparison that are compared with the reference."""
    m = comparison_models.c
    compared = select(m.name, m.state, m.reason, m.verdict).where(m.comparison_id == id)
    compared = compared.where(
        m.ordinal != select(comparisons.c.reference).where(comparisons.c.id == id).scalar_subquery()
    )
    verdicts = []
    for row in c.execute(compared.order_by(m.ordinal)):
        shown = load_document(row.verdict) if row.verdict else {}
        described = {name: shown.get(name) for name in ("decision", "sentence")}
        verdicts.append({"model": row.name, "state": row.state, "reason": row.reason, **described})
    return verdicts


def _times(created: object, started: object, ended: object) -> dict[str, object]:
    times = {"created_at": created, "started_at": started, "ended_at": ended}
    return {name: datetime.fromtimestamp(at, UTC).isoformat() for name, at in times.items() if isinstance(at, float)}
