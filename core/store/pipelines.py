"""Pipelines in SQL: their steps, what each has submitted, and which need a job."""

from collections.abc import Mapping, Sequence

from sqlalchemy import ColumnElement, Connection, delete, insert, select, text, update

from common.errors import Conflict, UnknownPipeline
from core.domain.pipelines.pipeline_states import PipelineState, StepState
from core.domain.scheduling.states import FINAL
from core.domain.submissions.declared_outputs import MadeOutput, made_outputs
from core.domain.submissions.stored_documents import decode_document
from core.store.claims import Claims
from core.store.events import insert_event
from core.store.rows import StoredRow, columns_of, read_row, read_rows
from core.store.tables import comparisons, events, pipelines, simulations
from core.store.tables import pipeline_steps as steps


class PipelineRow(StoredRow, frozen=True, gc=False):
    """A pipeline. ``failures``: of its job, in a row."""

    id: str
    name: str
    state: str
    event_seq: int
    labels: str
    submitted_by: str
    reason: str | None
    failures: int
    created_at: float
    ended_at: float | None

    @property
    def label_values(self) -> dict[str, str]:
        """Labels by name."""
        return decode_document(self.labels, dict[str, str])


class PipelineStepRow(StoredRow, frozen=True, gc=False):
    """A step, with the state and the reason of its simulation or comparison, both None if there is none any more.

    ``document``: what it submits. ``run_id``: what it has submitted, or whose outputs it has because it was skipped.
    """

    pipeline_id: str
    ordinal: int
    name: str
    kind: str
    document: str
    waits_for: str
    retries: int
    fresh: int
    state: str
    attempt: int
    run_id: str | None
    digest: str | None
    outputs: str | None
    reason: str | None
    started_at: float | None
    ended_at: float | None
    simulation_state: str | None
    simulation_reason: str | None
    simulation_outputs: str | None
    comparison_state: str | None
    comparison_reason: str | None

    @property
    def before(self) -> list[int]:
        """Ordinals of the steps that it waits for."""
        return decode_document(self.waits_for, list[int])

    @property
    def run_state(self) -> str | None:
        """State of its simulation or comparison; None: it has none, or that was deleted."""
        return self.simulation_state if self.kind == "submission" else self.comparison_state

    @property
    def run_reason(self) -> str | None:
        """Reason of its simulation or comparison."""
        return self.simulation_reason if self.kind == "submission" else self.comparison_reason

    @property
    def made(self) -> dict[str, MadeOutput]:
        """Outputs of a step that is complete, by their names."""
        return made_outputs(self.outputs)


_UNENDED_STATES = (PipelineState.RUNNING.value, PipelineState.CANCELLING.value)
_FINAL = ", ".join(f"'{state.value}'" for state in sorted(FINAL))
#: A pipeline waits while no step can be submitted, and none of what was submitted has ended.
CLAIMS = Claims(
    table=pipelines,
    needed="state IN ('running', 'cancelling')",
    ready="not_before<=:now AND (state='cancelling' OR EXISTS(SELECT 1 FROM pipeline_steps p"
    " WHERE p.pipeline_id=pipelines.id AND (p.state='ready' OR (p.state='running'"
    f" AND NOT EXISTS(SELECT 1 FROM simulations s WHERE s.id=p.run_id AND s.state NOT IN ({_FINAL}))"
    " AND NOT EXISTS(SELECT 1 FROM comparisons o WHERE o.id=p.run_id AND o.state IN ('running', 'cancelling')))))"
    " OR NOT EXISTS(SELECT 1 FROM pipeline_steps p WHERE p.pipeline_id=pipelines.id AND p.state IN"
    " ('ready', 'running')))",
)
_NEXT_EVENT = text("UPDATE pipelines SET event_seq=event_seq+1 WHERE id=:i RETURNING event_seq")
_ALIVE_RUN = (simulations.c.id == steps.c.run_id) & simulations.c.deleted_at.is_(None)
_STEPS = (
    select(
        *columns_of(
            steps,
            PipelineStepRow,
            simulation_state=simulations.c.state,
            simulation_reason=simulations.c.reason,
            simulation_outputs=simulations.c.outputs,
            comparison_state=comparisons.c.state,
            comparison_reason=comparisons.c.reason,
        )
    )
    .join(simulations, _ALIVE_RUN, isouter=True)
    .join(comparisons, comparisons.c.id == steps.c.run_id, isouter=True)
)


def add(c: Connection, id: str, values: Mapping[str, object], now: float) -> None:
    """Insert a running pipeline, with its first event."""
    state = {"state": PipelineState.RUNNING.value}
    c.execute(insert(pipelines).values(id=id, created_at=now, **state, **values))
    say(c, id, "state", state, now)


def add_steps(c: Connection, rows: Sequence[Mapping[str, object]]) -> None:
    """Insert the steps of a pipeline."""
    c.execute(insert(steps), list(rows))


def find(c: Connection, id: str, *, lock: bool = False) -> PipelineRow:
    """Return a pipeline's row, or raise UnknownPipeline; ``lock``: until the transaction ends."""
    query = select(*columns_of(pipelines, PipelineRow)).where(pipelines.c.id == id)
    row = read_row(c.execute(query.with_for_update() if lock else query).first(), PipelineRow)
    if row is None:
        raise UnknownPipeline(f"There is no pipeline {id[:64]!r}. `GET /v1/pipelines` lists them.")
    return row


def steps_of(c: Connection, ids: Sequence[str]) -> list[PipelineStepRow]:
    """Return the steps of pipelines, in their order."""
    if not ids:  # PostgreSQL does not compare text with the empty list
        return []
    query = _STEPS.where(steps.c.pipeline_id.in_(ids)).order_by(steps.c.pipeline_id, steps.c.ordinal)
    return read_rows(c.execute(query), PipelineStepRow)


def page(c: Connection, *, states: Sequence[str], after: str | None, limit: int) -> list[PipelineRow]:
    """Return up to ``limit`` pipelines, newest first, older than ``after``; ``states``: any of these, or all."""
    query = select(*columns_of(pipelines, PipelineRow)).order_by(pipelines.c.id.desc()).limit(limit)
    if states:
        query = query.where(pipelines.c.state.in_(states))
    if after is not None:
        query = query.where(pipelines.c.id < after)
    return read_rows(c.execute(query), PipelineRow)


def equal_step(c: Connection, digest: str) -> PipelineStepRow | None:
    """Return the newest step that is complete by a run of its own with this digest, and whose run is still there."""
    complete = (steps.c.digest == digest, steps.c.state == StepState.SUCCEEDED.value)
    query = _STEPS.where(*complete).where(simulations.c.id.is_not(None) | comparisons.c.id.is_not(None))
    return read_row(c.execute(query.order_by(steps.c.pipeline_id.desc()).limit(1)).first(), PipelineStepRow)


def pipeline_of(c: Connection, run: str) -> str | None:
    """Return the pipeline that waits for a simulation or a comparison, or None."""
    waiting = (steps.c.run_id == run, steps.c.state == StepState.RUNNING.value)
    found: str | None = c.scalar(select(steps.c.pipeline_id).where(*waiting).limit(1))
    return found


def require_step(c: Connection, step: PipelineStepRow) -> None:
    """Raise Conflict unless a step is in the state and attempt that were read. The pipeline's row is locked."""
    query = select(steps.c.state, steps.c.attempt).where(_is(step))
    if c.execute(query).first() != (step.state, step.attempt):
        raise Conflict(f"Step {step.name!r} of pipeline {step.pipeline_id} has changed meanwhile.")


def change_step(c: Connection, step: PipelineStepRow, now: float, **values: object) -> None:
    """Change a step, with the event of its new state."""
    c.execute(update(steps).where(_is(step)).values(**values))
    if "state" in values:
        told = {name: values[name] for name in ("state", "reason", "run_id", "attempt") if values.get(name)}
        say(c, step.pipeline_id, "step", {"step": step.name, **told}, now)


def _is(step: PipelineStepRow) -> ColumnElement[bool]:
    return (steps.c.pipeline_id == step.pipeline_id) & (steps.c.ordinal == step.ordinal)


def move(c: Connection, id: str, state: PipelineState, now: float, **values: object) -> None:
    """Change a pipeline's state, with the event; the claim of a job ends."""
    ended = None if state.value in _UNENDED_STATES else now
    idle = {"claim": None, "claim_until": 0.0, "failures": 0, "not_before": 0.0}
    c.execute(update(pipelines).where(pipelines.c.id == id).values(state=state.value, ended_at=ended, **idle, **values))
    say(c, id, "state", {"state": state.value, **{k: v for k, v in values.items() if k == "reason" and v}}, now)


def say(c: Connection, id: str, type: str, body: Mapping[str, object], now: float) -> None:
    """Insert an event; the pipeline's row numbers it in the same transaction, so that events appear in order."""
    seq = c.scalar(_NEXT_EVENT, {"i": id})
    if seq is None:
        raise UnknownPipeline()
    insert_event(c, id, int(seq), type, body, now)


def versions(c: Connection, ids: Sequence[str]) -> dict[str, int]:
    """Return the number of the newest event of each pipeline."""
    if not ids:
        return {}
    query = select(pipelines.c.id, pipelines.c.event_seq).where(pipelines.c.id.in_(ids))
    return {id: seq for id, seq in c.execute(query)}


def explain(c: Connection, id: str, reason: str | None) -> None:
    """Store the reason why a pipeline that runs waits, None: it does not; after its end it keeps the reason of that."""
    running = (pipelines.c.id == id, pipelines.c.state == PipelineState.RUNNING.value)
    c.execute(update(pipelines).where(*running).values(reason=reason))


def remove(c: Connection, id: str) -> None:
    """Delete a pipeline's rows; what it has submitted is kept."""
    for table, column in ((steps, steps.c.pipeline_id), (events, events.c.simulation_id), (pipelines, pipelines.c.id)):
        c.execute(delete(table).where(column == id))
