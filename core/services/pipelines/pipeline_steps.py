"""Steps of pipelines: the job that submits those that are ready, and goes on from those that have ended.

The row that names what a step has submitted is written in the transaction that submits it.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from common.errors import (
    Conflict,
    IllegalTransition,
    PlatformError,
    QuotaExceeded,
    StoreUnavailable,
    UnreadableRow,
)
from core.domain.access.scopes import PLATFORM
from core.domain.comparisons.comparison_states import ENDED, ComparisonState
from core.domain.pipelines.pipeline_states import (
    COMPLETE,
    PIPELINE_ENDED,
    UNENDED_STEPS,
    PipelineState,
    StepState,
    end_of_steps,
)
from core.domain.pipelines.step_graph import following_states
from core.domain.scheduling.states import FINAL, State
from core.domain.submissions.declared_outputs import failures_of, made_outputs
from core.domain.submissions.submission import Submission
from core.notifications.notifier import Notifier
from core.services.access.submitters import require_submitter
from core.services.advancing_jobs import AdvancingJob
from core.services.comparisons.comparisons import Comparisons
from core.services.pipelines.step_resolution import OutputPending, ResolvedStep, StepResolution
from core.services.simulations.simulations import Simulations
from core.store import pipelines as store
from core.store.database import Connection, Database
from core.store.pipelines import PIPELINES, PipelineRow, PipelineStepRow
from core.store.recording import recorded_act

logger = logging.getLogger(__name__)

#: Seconds after which what is being cancelled, or registered as a dataset, is looked at again.
PAUSE = 1.0
#: States of steps that let others wait or run.
_COMPLETE_OR_UNENDED = COMPLETE | UNENDED_STEPS
JOB = AdvancingJob(PIPELINES)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepChange:
    """A new state of a step, with its reason; the others change if they are not None."""

    state: StepState
    reason: str | None = None
    attempt: int | None = None
    run_id: str | None = None
    digest: str | None = None
    outputs: str | None = None

    def columns(self, now: float) -> dict[str, object]:
        """Return the columns of the step that change."""
        others = {name: getattr(self, name) for name in ("attempt", "run_id", "digest", "outputs")}
        if self.state not in UNENDED_STEPS:
            others["ended_at"] = now
        kept = {name: value for name, value in others.items() if value is not None}
        return {"state": self.state.value, "reason": self.reason, **kept}


class PipelineSteps:
    """Takes pipelines to their ends."""

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        simulations: Simulations,
        comparisons: Comparisons,
        resolution: StepResolution,
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._simulations = simulations
        self._comparisons = comparisons
        self._resolution = resolution

    def advance(self, id: str) -> None:
        """Do all that is possible now for a pipeline, unless another job does."""
        JOB.run(self._database, id, self._advance, self._end_unreadable)

    def _advance(self, id: str) -> float:
        """Take the steps that are possible now; return the seconds after which the next is possible at the earliest."""
        while True:
            with self._database.read() as c:
                row, steps = PIPELINES.find(c, PLATFORM, id), store.steps_of(c, [id])
            if row.state == PipelineState.CANCELLING:
                return self._cancel(row, steps)
            if row.state != PipelineState.RUNNING:
                return 0.0
            ended = {step.ordinal: change for step in steps if (change := change_at_end(step)) is not None}
            ready = [step for step in steps if step.state == StepState.READY]
            if ended or not ready:
                if self._apply(id, steps, ended):
                    continue
                return 0.0
            waits = [self._start(row, step, steps) for step in ready]
            if all(waits):
                return PAUSE

    def _apply(self, id: str, steps: Sequence[PipelineStepRow], changes: Mapping[int, StepChange]) -> bool:
        """Write changes of steps and what follows from them, also the end; return whether anything changed."""
        following = {ordinal: change.state for ordinal, change in changes.items()}
        states = [following.get(step.ordinal, StepState(step.state)) for step in steps]
        consequences = following_states([step.before for step in steps], states)
        states = [consequences.get(number, state) for number, state in enumerate(states)]
        end = end_of_steps(states)
        if not changes and not consequences and end is None:
            return False
        names = {step.ordinal: step.name for step in steps}

        def write(c: Connection) -> None:
            if PIPELINES.find(c, PLATFORM, id, lock=True).state != PipelineState.RUNNING:
                raise Conflict(f"Pipeline {id} no longer runs.")
            now = self._database.now(c)
            for step in steps:
                change = changes.get(step.ordinal)
                if change is None and (state := consequences.get(step.ordinal)) is not None:
                    why = None
                    if state is StepState.NOT_RUN:
                        first = next(names[other] for other in step.before if states[other] not in _COMPLETE_OR_UNENDED)
                        why = f"step {first!r} is not complete"
                    change = StepChange(state=state, reason=why)
                if change is not None:
                    store.require_step(c, step)
                    store.change_step(c, step, now, **change.columns(now))
            if end is not None:
                failed = [
                    (step.name, changes[step.ordinal].reason if step.ordinal in changes else step.reason)
                    for step in steps
                    if states[step.ordinal] is StepState.FAILED
                ]
                PIPELINES.move(c, id, end, now, reason=_reason_of(id, failed) if end is PipelineState.FAILED else None)

        self._database.write(write)
        self._notifier.publish(id)
        return end is None

    def _end_unreadable(self, id: str, reason: str) -> None:
        """End a pipeline with a document that cannot be read, so that it can be deleted."""

        def write(c: Connection) -> None:
            state, now = PIPELINES.find(c, PLATFORM, id, lock=True).state, self._database.now(c)
            if state not in PIPELINE_ENDED:
                store.stop_steps(c, id, reason, now)
                PIPELINES.move(c, id, PipelineState.FAILED, now, reason=reason)

        self._database.write(write)
        self._notifier.publish(id)

    # -- submission

    def _start(self, row: PipelineRow, step: PipelineStepRow, steps: Sequence[PipelineStepRow]) -> bool:
        """Submit a step, or end it without; return whether it has to wait."""
        try:
            resolved = self._resolution.resolve(row.caller, step, {other.name: other for other in steps})
            if resolved.digest is not None and not step.fresh and step.attempt == 1:
                with self._database.read() as c:
                    is_equal = step.digest == resolved.digest and step.run_state is not None
                    equal = step if is_equal else store.equal_step(c, row.caller.scope, resolved.digest)
                if equal is not None and self._resolution.has_outputs(row.caller, equal):
                    self._skip(row.id, step, steps, equal)
                    return False
            self._submit(row, step, resolved)
        except OutputPending:
            return True
        except (Conflict, QuotaExceeded, StoreUnavailable, UnreadableRow):
            raise
        except PlatformError as error:
            reason = f"it cannot be submitted: {error.detail}"
            self._apply(row.id, steps, {step.ordinal: StepChange(state=StepState.FAILED, reason=reason)})
        return False

    def _submit(self, row: PipelineRow, step: PipelineStepRow, resolved: ResolvedStep) -> None:
        """Submit a step; its row names what was submitted in the same transaction."""

        def begin(c: Connection, run: str) -> None:
            if PIPELINES.find(c, PLATFORM, row.id, lock=True).state != PipelineState.RUNNING:
                raise Conflict(f"Pipeline {row.id} no longer runs.")
            store.require_step(c, step)
            now = self._database.now(c)
            begun = {"run_id": run, "digest": resolved.digest, "started_at": now}
            store.change_step(c, step, now, state=StepState.RUNNING.value, reason=None, **begun)

        require_submitter(self._database, row.project, row.submitted_by)
        if isinstance(resolved.content, Submission):
            with recorded_act(row.act("create_simulation", "pipelines")):
                self._simulations.accept(row.caller, resolved.content, within=begin)
        else:
            with recorded_act(row.act("create_comparison", "pipelines")):
                self._comparisons.create(row.caller, resolved.content, within=begin)
        self._notifier.publish(row.id)

    def _skip(self, id: str, step: PipelineStepRow, steps: Sequence[PipelineStepRow], equal: PipelineStepRow) -> None:
        """End a step with the run and the outputs of an equal one that is complete."""
        where = "this pipeline" if equal.pipeline_id == id else f"pipeline {equal.pipeline_id}"
        other = "its earlier run" if equal is step else f"step {equal.name!r} of {where}"
        change = StepChange(
            state=StepState.SKIPPED,
            run_id=equal.run_id,
            digest=equal.digest,
            outputs=equal.outputs,
            reason=f"equal to {other}, which is complete; `fresh` runs it all the same",
        )
        self._apply(id, steps, {step.ordinal: change})

    # -- cancellation

    def _cancel(self, row: PipelineRow, steps: Sequence[PipelineStepRow]) -> float:
        """Cancel what has not ended; end the pipeline once all has."""
        id = row.id
        running = [step for step in steps if step.state == StepState.RUNNING and change_at_end(step) is None]
        if running:
            simulations = [step.run_id for step in running if step.kind == "submission" and step.run_id]
            with recorded_act(row.act("cancel_simulation", "pipelines")):
                errors = self._simulations.cancellations.begin(row.caller, simulations)
            for error in errors.values():
                if isinstance(error, StoreUnavailable):  # others have just ended or were deleted, and need nothing
                    raise error
            for step in running:
                if step.kind == "comparison" and step.run_id and step.run_state == ComparisonState.RUNNING:
                    try:
                        with recorded_act(row.act("cancel_comparison", "pipelines")):
                            self._comparisons.cancel(row.caller, step.run_id)
                    except IllegalTransition:  # it has just ended
                        logger.info("pipeline %s: comparison %s has ended already", id, step.run_id)
            return PAUSE

        def write(c: Connection) -> None:
            present = PIPELINES.find(c, PLATFORM, id, lock=True)
            if present.state != PipelineState.CANCELLING:
                return
            now = self._database.now(c)
            for step in steps:
                if StepState(step.state) in UNENDED_STEPS:
                    store.require_step(c, step)
                    change = change_at_end(step)
                    if change is None or change.state is not StepState.SUCCEEDED:
                        change = StepChange(state=StepState.CANCELLED)
                    store.change_step(c, step, now, **change.columns(now))
            PIPELINES.move(c, id, PipelineState.CANCELLED, now, reason=present.reason)

        self._database.write(write)
        self._notifier.publish(id)
        return 0.0


def change_at_end(step: PipelineStepRow) -> StepChange | None:
    """Return what becomes of a step whose simulation or comparison has ended or was deleted; None if it goes on."""
    if step.state != StepState.RUNNING:
        return None
    if step.run_state is None:
        return StepChange(state=StepState.FAILED, reason=f"its run {step.run_id} was deleted")
    if step.kind == "comparison":
        state = ComparisonState(step.run_state)
        if state not in ENDED:
            return None
        complete = state is ComparisonState.FINISHED
        reason = None if complete else _end_of_run(step)
    else:
        if State(step.run_state) not in FINAL:
            return None
        made = made_outputs(step.simulation_outputs)
        complete = step.run_state == State.SUCCEEDED and failures_of(made) is None
        reason = _end_of_run(step)
    if complete:
        outputs = step.simulation_outputs
        return StepChange(state=StepState.SUCCEEDED, outputs=outputs)
    if step.attempt <= step.retries:
        return StepChange(state=StepState.READY, attempt=step.attempt + 1, reason=reason)
    return StepChange(state=StepState.FAILED, reason=reason)


def _end_of_run(step: PipelineStepRow) -> str:
    """Return how the run of a step has ended, as a sentence of its reason."""
    run = f"{'comparison' if step.kind == 'comparison' else 'simulation'} {step.run_id}"
    if step.run_state == State.CANCELLED:
        return f"{run} was {step.run_reason or 'cancelled'}"
    return f"{run} has {step.run_state}: {step.run_reason or 'no reason'}"


def _reason_of(id: str, failed: Sequence[tuple[str, str | None]]) -> str:
    """Return why a pipeline has failed, by the names and reasons of its failed steps, and what to do."""
    again = f"`POST /v1/pipelines/{id}/retry` tries again"
    if not failed:
        return f"a step was not run; {again}"
    name, reason = failed[0][0], (failed[0][1] or "no reason").removesuffix(".")
    others = f" ({len(failed) - 1} others have failed too)" if len(failed) > 1 else ""
    return f"step {name!r} has failed{others}: {reason}; {again}"
