"""Documents of pipelines: what clients read, from rows."""

from collections import Counter
from collections.abc import Sequence

from core.domain.pipelines.pipeline_states import COMPLETE, StepState
from core.domain.submissions.stored_documents import load_document
from core.services.datasets.descriptions import moment
from core.store.pipelines import PipelineRow, PipelineStepRow


def pipeline_document(row: PipelineRow, steps: Sequence[PipelineStepRow], *, details: bool) -> dict[str, object]:
    """Return a pipeline. ``details``: with its steps, which lists count only."""
    counts = Counter(step.state for step in steps)
    document: dict[str, object] = {
        "id": row.id,
        "name": row.name,
        "state": row.state,
        "reason": row.reason,
        "labels": row.label_values,
        "submitted_by": row.submitted_by or None,
        "created_at": moment(row.created_at),
        "ended_at": moment(row.ended_at) if row.ended_at is not None else None,
        "counts": {state.value: counts[state.value] for state in StepState if counts[state.value]},
    }
    if not details:
        return document
    names = [step.name for step in steps]
    return document | {"steps": [_step(step, names) for step in steps]}


def _step(step: PipelineStepRow, names: Sequence[str]) -> dict[str, object]:
    simulation, comparison = (step.run_id, None) if step.kind == "submission" else (None, step.run_id)
    return {
        "name": step.name,
        "state": step.state,
        "reason": step.reason or (step.run_reason if step.state == StepState.RUNNING else None),
        "after": [names[other] for other in step.before],
        step.kind: load_document(step.document),
        "retries": step.retries,
        "fresh": bool(step.fresh),
        "attempt": step.attempt,
        "simulation_id": simulation,
        "comparison_id": comparison,
        "run_state": step.run_state,
        "digest": step.digest,
        "outputs": load_document(step.outputs) if step.outputs and step.state in COMPLETE else {},
        "started_at": moment(step.started_at) if step.started_at is not None else None,
        "ended_at": moment(step.ended_at) if step.ended_at is not None else None,
    }
