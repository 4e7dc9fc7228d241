"""Pipelines: create, get, list, cancel, run again from a step, delete. The job `pipeline` submits the steps."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from common.errors import IllegalTransition, Invalid, NotFinished
from common.ids import new_id
from core.domain.access.scopes import Caller
from core.domain.pipelines.pipeline_requests import PipelineRequest, request_graph
from core.domain.pipelines.pipeline_states import (
    COMPLETE,
    MOST_STEPS,
    PIPELINE_ENDED,
    UNENDED_STEPS,
    PipelineState,
    StepState,
)
from core.domain.pipelines.step_graph import following_states, steps_after
from core.notifications.change_notifier import Waiters
from core.notifications.notifier import Notifier
from core.services.access.submitters import take_over
from core.services.event_streams import EventLog
from core.services.pipelines.pipeline_documents import pipeline_document
from core.services.pipelines.step_checks import StepChecks
from core.services.unreadable_rows import readable
from core.store import idempotency_keys
from core.store import pipelines as store
from core.store.database import Connection, Database
from core.store.pipelines import PIPELINES, PipelineStepRow

#: States from which a step runs again without being named.
_STOPPED_STATES = frozenset({StepState.FAILED, StepState.NOT_RUN, StepState.CANCELLED})


class Pipelines:
    """Service of the pipelines API."""

    def __init__(self, database: Database, notifier: Notifier, changes: Waiters, checks: StepChecks) -> None:
        self._database = database
        self._notifier = notifier
        self.events = EventLog(database, changes, PIPELINES.find, PIPELINE_ENDED)
        self._checks = checks

    def create(
        self, caller: Caller, request: PipelineRequest, *, key: str | None = None, request_digest: str = ""
    ) -> tuple[str, bool]:
        """Store a pipeline and let its first steps be submitted; return its id, and whether ``key`` was used before.

        Raise Invalid for a pipeline that can never run, IdempotencyMismatch if the key was used with another request.
        """
        if key is not None:
            with self._database.read() as c:
                replayed = idempotency_keys.find(c, caller, key, request_digest, self._database.now(c))
            if replayed is not None:
                return replayed, True
        if not 1 <= len(request.steps) <= MOST_STEPS:
            raise Invalid(f"A pipeline has 1 to {MOST_STEPS} steps, not {len(request.steps)}.")
        graph = request_graph(request, lambda step: self._checks.leaves_files(caller, step))
        for step in request.steps:
            self._checks.check(caller, step)
        id = new_id(datetime.now(UTC))
        first = following_states(graph, [StepState.WAITING] * len(graph))
        steps = [
            {
                "pipeline_id": id,
                "ordinal": number,
                "name": step.name,
                "kind": step.kind,
                "document": json.dumps(step.document),
                "waits_for": json.dumps(graph[number]),
                "retries": step.retries,
                "fresh": int(step.fresh or request.fresh),
                "state": first.get(number, StepState.WAITING).value,
            }
            for number, step in enumerate(request.steps)
        ]
        labels = json.dumps(dict(request.labels), sort_keys=True)
        row = {"project": caller.scope.owner, "name": request.name, "labels": labels, "submitted_by": caller.name}

        def write(c: Connection) -> str | None:
            now = self._database.now(c)
            if key is not None:
                if (previous := idempotency_keys.remember(c, caller, key, request_digest, id, now)) is not None:
                    return previous
            PIPELINES.add(c, id, row, now)
            store.add_steps(c, steps)
            return None

        if (previous := self._database.write(write)) is not None:
            return previous, True
        self._notifier.enqueue("pipeline", id)
        return id, False

    # -- queries

    def get(self, caller: Caller, id: str) -> dict[str, object]:
        """Return a pipeline with its steps."""
        with self._database.read() as c:
            return pipeline_document(PIPELINES.find(c, caller.scope, id), store.steps_of(c, [id]), details=True)

    def list(
        self, caller: Caller, *, states: Sequence[str] = (), after: str | None = None, limit: int = 50
    ) -> tuple[Sequence[dict[str, object]], str | None]:
        """Return a page of pipelines without their steps, newest first, and the next cursor."""
        with self._database.read() as c:
            rows = store.page(c, caller.scope, states=states, after=after, limit=limit + 1)
            ids = [row.id for row in rows[:limit]]
            steps: dict[str, list[PipelineStepRow]] = {id: [] for id in ids}
            for step in store.steps_of(c, ids):
                steps[step.pipeline_id].append(step)
        items = readable(rows[:limit], lambda row: pipeline_document(row, steps[row.id], details=False), "pipeline")
        return items, ids[-1] if len(rows) > limit else None

    # -- changes

    def cancel(self, caller: Caller, id: str) -> dict[str, object]:
        """Cancel a pipeline and what it has submitted; steps that are complete stay so. Idempotent."""

        def write(c: Connection) -> None:
            row = PIPELINES.find(c, caller.scope, id, lock=True)
            caller.require_change(row.submitted_by)
            state = row.state
            if state in (PipelineState.CANCELLING, PipelineState.CANCELLED):
                return
            if state in PIPELINE_ENDED:
                raise IllegalTransition(f"The pipeline has {state} already; there is nothing to cancel.", state=state)
            now = self._database.now(c)
            for step in store.steps_of(c, [id]):
                if StepState(step.state) in UNENDED_STEPS - {StepState.RUNNING}:
                    store.change_step(c, step, now, state=StepState.CANCELLED.value, ended_at=now)
            PIPELINES.move(c, id, PipelineState.CANCELLING, now, reason="cancelled by its owner")

        self._database.write(write)
        return self._announce_change(caller, id)

    def retry(self, caller: Caller, id: str, *, first: str | None = None, fresh: bool = False) -> dict[str, object]:
        """Run steps again: those that failed, were cancelled or not run; or ``first`` and all that wait for it.

        ``fresh``: all of them, although equal ones are complete; ``first`` itself always runs. Raise IllegalTransition
        for a pipeline that has not ended, and if there is nothing to run.
        """

        def write(c: Connection) -> None:
            row = PIPELINES.find(c, caller.scope, id, lock=True)
            caller.require_change(row.submitted_by)
            if row.state not in PIPELINE_ENDED:
                raise IllegalTransition("The pipeline has not ended: cancel it, or wait for its end.", state=row.state)
            take_over(c, PIPELINES, row, caller)
            steps = store.steps_of(c, [id])
            graph = [step.before for step in steps]
            if first is None:
                again = {step.ordinal for step in steps if step.state in _STOPPED_STATES}
            else:
                named = [step.ordinal for step in steps if step.name == first]
                if not named:
                    raise Invalid(f"The pipeline has no step {first[:100]!r}; `GET /v1/pipelines/{id}` lists them.")
                again = steps_after(graph, named[0])
            if not again:
                raise IllegalTransition(
                    "No step has failed or was cancelled: name the step `from` which to run again.", state=row.state
                )
            states = [StepState.WAITING if step.ordinal in again else StepState(step.state) for step in steps]
            following = following_states(graph, states)
            now = self._database.now(c)
            empty = dict.fromkeys(("reason", "started_at", "ended_at"))
            # What a complete step has stays until it runs: its inputs may turn out equal.
            lost = dict.fromkeys(("run_id", "digest", "outputs"))
            for step in steps:
                if step.ordinal in again:
                    state = following.get(step.ordinal, StepState.WAITING)
                    forced = {"fresh": 1} if fresh or step.name == first else {}
                    changes = empty | forced | ({} if step.state in COMPLETE else lost)
                    store.change_step(c, step, now, state=state.value, attempt=1, **changes)
            PIPELINES.move(c, id, PipelineState.RUNNING, now, reason=None)

        self._database.write(write)
        return self._announce_change(caller, id)

    def delete(self, caller: Caller, id: str) -> None:
        """Delete a pipeline that has ended; what it has submitted and made is kept."""

        def write(c: Connection) -> None:
            row = PIPELINES.find(c, caller.scope, id, lock=True)
            caller.require_change(row.submitted_by)
            if row.state not in PIPELINE_ENDED:
                raise NotFinished("The pipeline has not ended: cancel it, and wait for its end.")
            store.remove(c, id)

        self._database.write(write)
        self._notifier.publish(id)

    def _announce_change(self, caller: Caller, id: str) -> dict[str, object]:
        self._notifier.publish(id)
        self._notifier.enqueue("pipeline", id)
        return self.get(caller, id)
