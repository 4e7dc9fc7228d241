"""Pipelines in SQL: their steps, what each has submitted, and which need a job."""

from collections.abc import Mapping, Sequence

from sqlalchemy import ColumnElement, Connection, delete, insert, select, update

from common.errors import Conflict, UnknownPipeline
from core.domain.access.scopes import Scope
from core.domain.pipelines.pipeline_states import UNENDED_STEPS, StepState
from core.domain.scheduling.states import FINAL
from core.domain.submissions.declared_outputs import MadeOutput, made_outputs
from core.domain.submissions.stored_documents import decode_document
from core.store.advanced_rows import AdvancedRow, AdvancedRows
from core.store.owned import within
from core.store.rows import StoredRow, columns_of, read_row, read_rows
from core.store.tables import comparisons, events, pipelines, simulations
from core.store.tables import pipeline_steps as steps


class PipelineRow(AdvancedRow, frozen=True, gc=False):
    """A pipeline."""

    name: str


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


_FINAL = ", ".join(f"'{state.value}'" for state in sorted(FINAL))
#: A pipeline waits while no step can be submitted, and none of what was submitted has ended.
PIPELINES = AdvancedRows(
    table=pipelines,
    row=PipelineRow,
    what="pipeline",
    unknown=UnknownPipeline,
    ready="EXISTS(SELECT 1 FROM pipeline_steps p"
    " WHERE p.pipeline_id=pipelines.id AND (p.state='ready' OR (p.state='running'"
    f" AND NOT EXISTS(SELECT 1 FROM simulations s WHERE s.id=p.run_id AND s.state NOT IN ({_FINAL}))"
    " AND NOT EXISTS(SELECT 1 FROM comparisons o WHERE o.id=p.run_id AND o.state IN ('running', 'cancelling')))))"
    " OR NOT EXISTS(SELECT 1 FROM pipeline_steps p WHERE p.pipeline_id=pipelines.id AND p.state IN"
    " ('ready', 'running'))",
)
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


def add_steps(c: Connection, rows: Sequence[Mapping[str, object]]) -> None:
    """Insert the steps of a pipeline."""
    c.execute(insert(steps), list(rows))


def steps_of(c: Connection, ids: Sequence[str]) -> list[PipelineStepRow]:
    """Return the steps of pipelines, in their order."""
    if not ids:  # PostgreSQL does not compare text with the empty list
        return []
    query = _STEPS.where(steps.c.pipeline_id.in_(ids)).order_by(steps.c.pipeline_id, steps.c.ordinal)
    return read_rows(c.execute(query), PipelineStepRow)


def page(c: Connection, scope: Scope, *, states: Sequence[str], after: str | None, limit: int) -> list[PipelineRow]:
    """Return up to ``limit`` pipelines, newest first, older than ``after``; ``states``: any of these, or all."""
    query = select(*columns_of(pipelines, PipelineRow)).where(within(pipelines, scope))
    query = query.order_by(pipelines.c.id.desc()).limit(limit)
    if states:
        query = query.where(pipelines.c.state.in_(states))
    if after is not None:
        query = query.where(pipelines.c.id < after)
    return read_rows(c.execute(query), PipelineRow)


def equal_step(c: Connection, scope: Scope, digest: str) -> PipelineStepRow | None:
    """Return the newest step that is complete by a run of its own with this digest, and whose run is still there."""
    complete = (steps.c.digest == digest, steps.c.state == StepState.SUCCEEDED.value)
    owned = within(simulations, scope) | within(comparisons, scope)  # a run is one of the two
    query = _STEPS.where(*complete, simulations.c.id.is_not(None) | comparisons.c.id.is_not(None), owned)
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
        PIPELINES.say(c, step.pipeline_id, "step", {"step": step.name, **told}, now)


def stop_steps(c: Connection, id: str, reason: str, now: float) -> None:
    """Let the steps of a pipeline that have not ended fail, without reading them."""
    unended = steps.c.state.in_([state.value for state in UNENDED_STEPS])
    failed = {"state": StepState.FAILED.value, "reason": reason, "ended_at": now}
    c.execute(update(steps).where(steps.c.pipeline_id == id, unended).values(**failed))


def _is(step: PipelineStepRow) -> ColumnElement[bool]:
    return (steps.c.pipeline_id == step.pipeline_id) & (steps.c.ordinal == step.ordinal)


def remove(c: Connection, id: str) -> None:
    """Delete a pipeline's rows; what it has submitted is kept."""
    for table, column in ((steps, steps.c.pipeline_id), (events, events.c.simulation_id), (pipelines, pipelines.c.id)):
        c.execute(delete(table).where(column == id))
