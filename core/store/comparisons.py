"""Comparisons of models in SQL: their models, the simulations of their batches, and which need a job."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, text, update

from common.errors import Conflict, UnknownComparison
from core.domain.comparisons.comparison_states import ComparisonState
from core.domain.scheduling.states import FINAL
from core.store.claims import Claims
from core.store.tables import comparison_models as models
from core.store.tables import comparison_simulations as played
from core.store.tables import comparisons, events, simulations

_UNENDED = (ComparisonState.RUNNING.value, ComparisonState.CANCELLING.value)
_FINAL = ", ".join(f"'{state.value}'" for state in sorted(FINAL))
#: A comparison waits while, for each model that still runs, a simulation of its present batch has not ended.
CLAIMS = Claims(
    table=comparisons,
    needed="state IN ('running', 'cancelling')",
    ready="not_before<=:now AND (state='cancelling' OR EXISTS(SELECT 1 FROM comparison_models m"
    " WHERE m.comparison_id=comparisons.id AND m.state='running' AND m.ordinal<>comparisons.reference"
    " AND NOT EXISTS(SELECT 1 FROM comparison_simulations p JOIN simulations s ON s.id=p.simulation_id"
    " WHERE p.comparison_id=comparisons.id AND p.batch=m.batch AND p.ordinal IN (m.ordinal, comparisons.reference)"
    f" AND s.deleted_at IS NULL AND s.state NOT IN ({_FINAL}))))",
)
_NEXT_EVENT = text("UPDATE comparisons SET event_seq=event_seq+1 WHERE id=:i RETURNING event_seq")


def add(c: Connection, values: Mapping[str, Any]) -> None:
    """Insert a running comparison, with its first event."""
    c.execute(insert(comparisons).values(state=ComparisonState.RUNNING.value, **values))
    say(c, values["id"], "state", {"state": ComparisonState.RUNNING.value}, values["created_at"])


def add_model(c: Connection, id: str, ordinal: int, values: Mapping[str, Any], now: float) -> None:
    """Insert a model whose batches are to be played."""
    row = {"comparison_id": id, "ordinal": ordinal, "state": ComparisonState.RUNNING.value, "created_at": now}
    c.execute(insert(models).values(**row, **values))


def find(c: Connection, id: str, *, lock: bool = False) -> Row[Any]:
    """Return a comparison's row, or raise UnknownComparison; ``lock``: until the transaction ends."""
    query = select(comparisons).where(comparisons.c.id == id)
    row = c.execute(query.with_for_update() if lock else query).first()
    if row is None:
        raise UnknownComparison(f"There is no comparison {id[:64]!r}. `GET /v1/comparisons` lists them.")
    return row


def models_of(c: Connection, ids: Sequence[str]) -> Sequence[Row[Any]]:
    """Return the models of comparisons, in their order."""
    if not ids:  # PostgreSQL does not compare text with the empty list
        return []
    return c.execute(
        select(models).where(models.c.comparison_id.in_(ids)).order_by(models.c.comparison_id, models.c.ordinal)
    ).all()


def simulations_of(c: Connection, ids: Sequence[str]) -> Sequence[Row[Any]]:
    """Return comparison, ordinal, batch, simulation, and its state and reason; null for one that was deleted."""
    if not ids:
        return []
    query = (
        select(played, simulations.c.state, simulations.c.reason)
        .join(
            simulations,
            (simulations.c.id == played.c.simulation_id) & simulations.c.deleted_at.is_(None),
            isouter=True,
        )
        .where(played.c.comparison_id.in_(ids))
    )
    return c.execute(query.order_by(played.c.comparison_id, played.c.batch, played.c.ordinal)).all()


def add_simulation(c: Connection, id: str, ordinal: int, batch: int, simulation: str) -> None:
    """Record the simulation of a model's batch; raise Conflict if there is one, or if the comparison does not run."""
    if find(c, id, lock=True).state != ComparisonState.RUNNING.value:
        raise Conflict(f"Comparison {id} no longer runs.")
    key = (played.c.comparison_id == id, played.c.ordinal == ordinal, played.c.batch == batch)
    if c.execute(select(played.c.simulation_id).where(*key)).first() is not None:
        raise Conflict(f"Batch {batch} of comparison {id} is being played already.")
    row = {"comparison_id": id, "ordinal": ordinal, "batch": batch, "simulation_id": simulation}
    c.execute(insert(played).values(**row))


def remove_simulation(c: Connection, simulation: str) -> None:
    """Let a batch be played again: forget its simulation."""
    c.execute(delete(played).where(played.c.simulation_id == simulation))


def comparison_of(c: Connection, simulation: str) -> str | None:
    """Return the comparison of a simulation, or None."""
    found: str | None = c.scalar(select(played.c.comparison_id).where(played.c.simulation_id == simulation))
    return found


def change(c: Connection, id: str, **values: Any) -> None:
    """Change columns of a comparison."""
    c.execute(update(comparisons).where(comparisons.c.id == id).values(**values))


def move(c: Connection, id: str, state: ComparisonState, now: float, **values: Any) -> None:
    """Change a comparison's state, with the event; the claim of a job ends."""
    ended = None if state.value in _UNENDED else now
    change(c, id, state=state.value, ended_at=ended, claim=None, claim_until=0.0, failures=0, not_before=0.0, **values)
    say(c, id, "state", {"state": state.value, **{k: v for k, v in values.items() if k == "reason" and v}}, now)


def change_model(c: Connection, id: str, ordinal: int, **values: Any) -> None:
    """Change columns of a comparison's model."""
    c.execute(update(models).where(models.c.comparison_id == id, models.c.ordinal == ordinal).values(**values))


def say(c: Connection, id: str, type: str, body: Mapping[str, Any], now: float) -> None:
    """Insert an event; the comparison's row numbers it in the same transaction, so that events appear in order."""
    seq = c.scalar(_NEXT_EVENT, {"i": id})
    if seq is None:
        raise UnknownComparison()
    row = {"simulation_id": id, "seq": int(seq), "type": type, "body": json.dumps(body), "at": now}
    c.execute(insert(events).values(**row))


def versions(c: Connection, ids: Sequence[str]) -> dict[str, int]:
    """Return the number of the newest event of each comparison."""
    if not ids:
        return {}
    query = select(comparisons.c.id, comparisons.c.event_seq).where(comparisons.c.id.in_(ids))
    return {id: seq for id, seq in c.execute(query)}


def remove(c: Connection, id: str) -> None:
    """Delete a comparison's rows; its simulations are kept."""
    for table, column in (
        (played, played.c.comparison_id),
        (models, models.c.comparison_id),
        (events, events.c.simulation_id),
        (comparisons, comparisons.c.id),
    ):
        c.execute(delete(table).where(column == id))


def explain(c: Connection, id: str, reason: str | None) -> None:
    """Store what a comparison that runs waits for, None: for nothing; one that has ended has the reason of its end."""
    running = (comparisons.c.id == id, comparisons.c.state == ComparisonState.RUNNING.value)
    c.execute(update(comparisons).where(*running).values(reason=reason))


def needing_model(c: Connection, digest: str) -> str | None:
    """Return a comparison that has not ended and whose batches need a model, if there is one."""
    query = select(comparisons.c.id).join(models, models.c.comparison_id == comparisons.c.id)
    found: str | None = c.scalar(query.where(models.c.digest == digest, comparisons.c.state.in_(_UNENDED)).limit(1))
    return found


def needing_dataset(c: Connection, digest: str) -> str | None:
    """Return a comparison that has not ended and whose batches need a dataset's version, if there is one."""
    query = select(comparisons.c.id).where(comparisons.c.dataset_digest == digest, comparisons.c.state.in_(_UNENDED))
    found: str | None = c.scalar(query.limit(1))
    return found
