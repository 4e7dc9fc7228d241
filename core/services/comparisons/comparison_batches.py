"""Batches of comparisons: the job that submits their simulations, and adds those that have ended to the verdicts.

A batch has one simulation for each model, and a verdict has each batch once.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import msgspec

from common.errors import (
    Conflict,
    PlatformError,
    QuotaExceeded,
    StorageFull,
    StoreUnavailable,
)
from core.domain.access.scopes import PLATFORM
from core.domain.comparisons.comparison_spec import comparison_spec_of
from core.domain.comparisons.comparison_states import ComparisonState, end_of
from core.domain.comparisons.play_order import batches
from core.domain.comparisons.running_verdict import PlayedBatch, RunningVerdict, group_sizes
from core.domain.results.declared_results import declared_results
from core.domain.results.score import judged_metric
from core.domain.scheduling.states import State
from core.domain.submissions.model_labels import told_apart
from core.domain.submissions.provenance import Provenance, provenance_of
from core.domain.submissions.records import ModelRef
from core.domain.submissions.stored_documents import decode_document
from core.notifications.notifier import Notifier
from core.services.access.submitters import require_submitter
from core.services.advancing_jobs import AdvancingJob
from core.services.analysis.paired_results import read_pairs
from core.services.datasets.catalogue import played
from core.services.datasets.scenario_specs import ScenarioSpecs
from core.services.simulations.new_simulations import resubmission
from core.services.simulations.results import Results
from core.services.simulations.simulations import Simulations
from core.store import comparisons as store
from core.store import pipelines, simulations, webhook_events
from core.store.comparisons import COMPARISONS, BatchSimulationRow, ComparedModelRow, ComparisonRow
from core.store.database import Connection, Database
from core.store.recording import recorded_act
from runtimes.harness.evaluator.tasks import TaskPlan

logger = logging.getLogger(__name__)

#: Seconds after which the simulations of a cancelled comparison are looked at again.
CANCELLING_PAUSE = 1.0
JOB = AdvancingJob(COMPARISONS)
#: Acts of the audit log, named as the operations by which people do the same.
CREATE_ACT, CANCEL_ACT = "create_simulation", "cancel_simulation"


class ComparisonBatches:
    """Plays comparisons to their verdicts."""

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        simulations: Simulations,
        results: Results,
        specs: ScenarioSpecs,
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._simulations = simulations
        self._results = results
        self._specs = specs

    def advance(self, id: str) -> None:
        """Take every step of a comparison that is possible now, unless another job does."""
        JOB.run(self._database, id, self._advance, self._end_unreadable)

    def _advance(self, id: str) -> float:
        """Take the steps that are possible now; return the seconds after which the next is possible at the earliest."""
        with self._database.read() as c:
            row = COMPARISONS.find(c, PLATFORM, id)
        if row.state == ComparisonState.CANCELLING:
            return self._cancel(row)
        if row.groups is None:
            row = self._with_groups(row)
        comparison: _Comparison | None = None
        while True:
            with self._database.read() as c:
                models = store.models_of(c, [id])
                plays = {(play.ordinal, play.batch): play for play in store.simulations_of(c, [id])}
            compared = [model for model in models if model.ordinal != row.reference]
            running = [model for model in compared if model.state == ComparisonState.RUNNING]
            if not running:
                self._end(id, [ComparisonState(model.state) for model in compared])
                return 0.0
            reference = models[row.reference]
            comparison = comparison or _Comparison(row, provenance_of(reference.provenance))
            steps = [self._step(comparison, model, reference, plays) for model in running]
            if not any(steps):
                return 0.0

    def _step(
        self,
        comparison: "_Comparison",
        model: ComparedModelRow,
        reference: ComparedModelRow,
        plays: dict[tuple[int, int], BatchSimulationRow],
    ) -> bool:
        """Submit what a model's batch needs, or add the batch to its verdict; return whether anything changed."""
        submitted = False
        for side in (model, reference):
            if (side.ordinal, model.batch) not in plays:
                play = self._submit(comparison, side, model.batch)
                if isinstance(play, str):
                    self._fail(comparison.id, model, play)
                    return True
                plays[side.ordinal, model.batch] = play
                submitted = True
        both = plays[model.ordinal, model.batch], plays[reference.ordinal, model.batch]
        if submitted or any(play.runs for play in both):
            return False
        for play in both:
            if (why := self._incomplete(play)) is not None:
                self._fail(comparison.id, model, why)
                return True
        self._add(comparison, model, reference, (both[0].simulation_id, both[1].simulation_id))
        return True

    # -- submission

    def _submit(self, comparison: "_Comparison", model: ComparedModelRow, batch: int) -> BatchSimulationRow | str:
        """Submit the simulation of a batch; return it, or why it cannot be submitted."""
        document = {"spec": json.loads(model.spec), "provenance": json.loads(model.provenance)}
        submission = replace(resubmission(document), scenarios={"tasks": comparison.scenarios_of[batch]})
        try:
            require_submitter(self._database, comparison.row.project, comparison.row.submitted_by)
            with recorded_act(comparison.row.act(CREATE_ACT, "comparisons")):
                id, _ = self._simulations.accept(
                    comparison.row.caller,
                    submission,
                    within=lambda c, new: store.add_simulation(c, comparison.id, model.ordinal, batch, new),
                )
        except (Conflict, QuotaExceeded, StoreUnavailable, StorageFull):
            raise
        except PlatformError as error:
            return f"batch {batch} of {model.name} cannot be submitted: {error.detail}"
        return BatchSimulationRow(comparison.id, model.ordinal, batch, id, State.QUEUED.value, None)

    # -- verdicts

    def _incomplete(self, play: BatchSimulationRow) -> str | None:
        """Return why a simulation that has ended cannot be compared: it has no result for some task."""
        if play.deleted:
            return f"its simulation {play.simulation_id} was deleted"
        with self._database.read() as c:
            total, done, _ = simulations.counts(c, play.simulation_id)
        if done == total:
            return None
        return (
            f"simulation {play.simulation_id} has {play.simulation_state}: {play.reason or 'some tasks have no result'}"
        )

    def _add(
        self,
        comparison: "_Comparison",
        model: ComparedModelRow,
        reference: ComparedModelRow,
        ids: tuple[str, str],
    ) -> None:
        """Add a batch to the verdict of a model, and end it if the verdict holds or all scenarios were played."""
        question = comparison.question
        before = RunningVerdict.begin(question)
        if model.running_verdict:
            before = decode_document(model.running_verdict, RunningVerdict)
        verdict = before.extend(question, self._played(comparison, model.batch, ids))
        ends = verdict.test.complete or (verdict.is_over(question) and not comparison.spec.play_all)
        shown = verdict.verdict(question, told_apart(_ref(model), _ref(reference)), over=ends)
        values = {
            "batch": model.batch + 1,
            "running_verdict": json.dumps(msgspec.to_builtins(verdict)),
            "verdict": json.dumps(shown),
            "details": json.dumps(verdict.details(question)),
        }
        event: dict[str, object] = {"model": model.name, "batch": model.batch, "played": verdict.test.count}
        event |= {name: shown[name] for name in ("pairs", "decision", "mean", "low", "high", "sentence")}

        def write(c: Connection) -> None:
            _require_batch(c, comparison.id, model)
            now = self._database.now(c)
            end = {"state": ComparisonState.FINISHED.value, "ended_at": now} if ends else {}
            store.change_model(c, comparison.id, model.ordinal, **values, **end)
            COMPARISONS.say(c, comparison.id, "batch", event, now)
            if ends:
                finished = ComparisonState.FINISHED.value
                ended = {"model": model.name, "state": finished, "sentence": shown["sentence"]}
                COMPARISONS.say(c, comparison.id, "model", ended, now)
                row, told = comparison.row, {"reference": reference.name} | event
                webhook_events.decision(c, row.project, row.id, row.label_values, told, now)

        self._database.write(write)
        self._notifier.publish(comparison.id)

    def _played(self, comparison: "_Comparison", batch: int, ids: tuple[str, str]) -> PlayedBatch:
        """Return the pairs of a batch from the results of its two simulations."""
        first, second, both = read_pairs(comparison.row.caller, self._results, ids, comparison.definition)
        metric = comparison.question.metric.name
        return PlayedBatch(
            scenarios=comparison.scenarios_of[batch],
            pairs=both.pairs,
            first=first.numbers(metric)[both.here],
            second=second.numbers(metric)[both.there],
            simulations=ids,
        )

    def _fail(self, id: str, model: ComparedModelRow, reason: str) -> None:
        """End a model without a verdict that holds; what was played is kept."""
        logger.warning("comparison %s: %s fails: %s", id, model.name, reason)

        def write(c: Connection) -> None:
            _require_batch(c, id, model)
            now = self._database.now(c)
            failed = {"state": ComparisonState.FAILED.value, "reason": reason}
            store.change_model(c, id, model.ordinal, ended_at=now, **failed)
            COMPARISONS.say(c, id, "model", {"model": model.name, **failed}, now)

        self._database.write(write)
        self._notifier.publish(id)

    def _end_unreadable(self, id: str, reason: str) -> None:
        """End a comparison with a document that cannot be read, so that it can be deleted."""
        with self._database.read() as c:
            row, models = COMPARISONS.find(c, PLATFORM, id), store.models_of(c, [id])
        compared = [model for model in models if model.ordinal != row.reference]
        for model in compared:
            if model.state == ComparisonState.RUNNING:
                self._fail(id, model, reason)
        failed = {ComparisonState.RUNNING: ComparisonState.FAILED}
        states = [ComparisonState(model.state) for model in compared]
        self._end(id, [failed.get(state, state) for state in states])

    def _end(self, id: str, models: Sequence[ComparisonState]) -> None:
        """End a comparison of which no model runs."""

        def write(c: Connection) -> None:
            row = COMPARISONS.find(c, PLATFORM, id, lock=True)
            present = [model.state for model in store.models_of(c, [id]) if model.ordinal != row.reference]
            if row.state != ComparisonState.RUNNING or present != list(models):
                raise Conflict(f"Comparison {id} has changed meanwhile.")
            state = end_of(models)
            assert state is not None
            reason = "no model could be compared; `POST /v1/comparisons/{id}/retry` tries again"
            failed = state is ComparisonState.FAILED
            COMPARISONS.move(c, id, state, self._database.now(c), reason=reason.format(id=id) if failed else None)

        self._database.write(write)
        self._announce_end(id)

    def _announce_end(self, id: str) -> None:
        self._notifier.publish(id)
        with self._database.read() as c:
            pipeline = pipelines.pipeline_of(c, id)
        if pipeline is not None:
            self._notifier.enqueue("pipeline", pipeline)

    # -- cancellation

    def _cancel(self, row: ComparisonRow) -> float:
        """Cancel the simulations that have not ended; end the comparison once all have."""
        id = row.id
        with self._database.read() as c:
            unended = [play.simulation_id for play in store.simulations_of(c, [id]) if play.runs]
        if unended:
            with recorded_act(row.act(CANCEL_ACT, "comparisons")):
                errors = self._simulations.cancellations.begin(row.caller, unended)
            for error in errors.values():
                if isinstance(error, StoreUnavailable):  # others have just ended or were deleted, and need nothing
                    raise error
            return CANCELLING_PAUSE

        def write(c: Connection) -> None:
            present = COMPARISONS.find(c, PLATFORM, id, lock=True)
            if present.state == ComparisonState.CANCELLING:
                COMPARISONS.move(c, id, ComparisonState.CANCELLED, self._database.now(c), reason=present.reason)

        self._database.write(write)
        self._announce_end(id)
        return 0.0

    # -- groups

    def _with_groups(self, row: ComparisonRow) -> ComparisonRow:
        """Count the scenarios of each group, once: the tests of groups are corrected for their number."""
        with self._database.read() as c:
            provenance = provenance_of(store.models_of(c, [row.id])[0].provenance)
        dataset, tasks = provenance.dataset, provenance.play.tasks
        group_by = played(dataset).declared.group_by
        groups: list[dict[str, str]] = []
        if group_by:
            selected = set(_indexes(tasks))
            for index, scenario in enumerate(self._specs.all(row.caller, dataset)):
                if index in selected:
                    groups.append({name: str(scenario[name]) for name in group_by if scenario.get(name) is not None})
        sizes = json.dumps(group_sizes(groups))

        def write(c: Connection) -> ComparisonRow:
            store.change(c, row.id, groups=sizes)
            return COMPARISONS.find(c, PLATFORM, row.id)

        return self._database.write(write)


class _Comparison:
    """A comparison's question and batches, from its row and the provenance of its reference."""

    def __init__(self, row: ComparisonRow, provenance: Provenance) -> None:
        self.row = row
        self.id = row.id
        self.spec = comparison_spec_of(row.spec)
        self.definition = played(provenance.dataset).definition
        metric = judged_metric(declared_results(self.definition), self.spec.metric)
        assert metric is not None  # checked when it was requested
        self.question = self.spec.question(metric, row.scenarios, row.group_sizes)
        self._tasks = provenance.play.tasks

    @cached_property
    def scenarios_of(self) -> Sequence[Sequence[int]]:
        """Scenarios of each batch, by index in the dataset. Not every step needs them: a million take a second."""
        return batches(int(self._tasks["seed"]), _indexes(self._tasks))


def _indexes(tasks: Mapping[str, object]) -> list[int]:
    """Return the scenarios of a plan, by index in the dataset."""
    plan = TaskPlan(tasks)
    return [plan.locate(position).index for position in range(plan.scenarios)]


def _ref(model: ComparedModelRow) -> ModelRef:
    described = provenance_of(model.provenance).model
    return ModelRef(name=described.name, digest=described.digest, version=described.version)


def _require_batch(c: Connection, id: str, model: ComparedModelRow) -> None:
    """Lock a comparison; raise Conflict unless it runs and this batch of the model is still to be added."""
    row = COMPARISONS.find(c, PLATFORM, id, lock=True)
    present = next(other for other in store.models_of(c, [id]) if other.ordinal == model.ordinal)
    if row.state != ComparisonState.RUNNING or (present.state, present.batch) != (model.state, model.batch):
        raise Conflict(f"Comparison {id} has changed meanwhile.")
