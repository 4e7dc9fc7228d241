"""Estimates: what a submission will need, from what tasks like its own took; at once, and without a worker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

import msgspec

from core.domain.access.quotas import Quota
from core.domain.access.scopes import Caller
from core.domain.scheduling.launches import Placement
from core.domain.scheduling.launches import replicas as replicas_of
from core.domain.scheduling.permissions import permitting
from core.domain.scheduling.worker_limits import WorkersInUse, WorkOwner
from core.domain.scheduling.worker_resources import WorkerResources, resources_of_worker, shown_amount
from core.domain.submissions.submission import Submission
from core.domain.usage.granted_resources import GrantedResources
from core.domain.usage.usage_sums import Prices, UsedResources
from core.services.access.quotas import Quotas, QuotaUse, ResourceUse
from core.services.submissions.resolving import Resolved, Resolver
from core.store import quotas as quota_store
from core.store.database import Database
from core.store.task_costs import TaskCosts, task_costs
from runtimes.harness.evaluator.tasks import TaskPlan


class BasisKind(StrEnum):
    """Kind of the simulations on which an estimate rests, the best first."""

    MODEL = "model"  # earlier simulations of the same model on the same dataset
    DATASET = "dataset"  # of other models on the same dataset
    NONE = "none"  # nothing like it has run


@dataclass(frozen=True, slots=True)
class AskedQuota:
    """A quota, and how much of it a submission asks for; None: that is not known before it has ended."""

    quota: Quota
    limit: int | None
    used: int | None
    asked: int | None

    @property
    def part(self) -> float | None:
        """The part of the limit that is asked for; None where there is no limit, or nothing is known."""
        return None if self.asked is None or not self.limit else self.asked / self.limit


@dataclass(frozen=True, slots=True)
class AskedResource:
    """A resource of workers, in cores, bytes or devices; its limit (None: none), its use, and what is asked for."""

    name: str
    limit: int | None
    used: float
    asked: float

    @property
    def part(self) -> float | None:
        """The part of the limit that is asked for; None where there is no limit."""
        return self.asked / self.limit if self.limit else None


@dataclass(frozen=True, slots=True)
class GrantedWorkers:
    """Workers of a submission on the executor that gives it most; ``each``: what one worker, or replica, has.

    ``held``: why a limit keeps it waiting even if nothing else runs; None: none does.
    """

    granted: GrantedResources
    each: WorkerResources
    held: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SubmissionEstimate:
    """Needs of a submission; None where nothing is known.

    ``used``: all resources together. ``costs``: of the simulations that it rests on. ``held``: why a limit keeps it
    waiting even if nothing else runs; None: none does.
    """

    tasks: int
    granted: GrantedResources
    basis: BasisKind
    costs: TaskCosts | None
    used: UsedResources | None
    cost: Fraction | None
    currency: str
    project: Sequence[AskedQuota]
    user: Sequence[AskedQuota]
    project_resources: Sequence[AskedResource]
    user_resources: Sequence[AskedResource]
    held: str | None

    @property
    def seconds(self) -> float | None:
        """How long it will run, once it has its workers."""
        return None if self.used is None else self.used.workers / self.granted.workers / 1000


class Estimates:
    """Service of estimates."""

    def __init__(self, database: Database, resolver: Resolver, quotas: Quotas, prices: Prices) -> None:
        self._database = database
        self._resolver = resolver
        self._quotas = quotas
        self._prices = prices

    def estimate(self, caller: Caller, submission: Submission) -> SubmissionEstimate:
        """Return what a submission will need. Raise as submitting it does, but not for a quota that is used up."""
        resolved = self._resolver.resolve(caller, submission)
        tasks = 1 if submission.dry_run else TaskPlan(resolved.provenance.play.tasks).count
        workers = self._workers_of(caller, resolved.submission)
        granted = workers.granted
        basis, costs = self._basis(caller, resolved)
        used = None if costs is None else _use_of(costs, tasks, granted)
        asked = {Quota.QUEUED_SIMULATIONS: 1, Quota.TASKS: tasks, Quota.RUNNING_WORKERS: granted.workers}
        return SubmissionEstimate(
            tasks=tasks,
            granted=granted,
            basis=basis,
            costs=costs,
            used=used,
            cost=self._prices.of(used) if used is not None and self._prices else None,
            currency=self._prices.currency,
            project=_parts(self._quotas.of_project(caller), asked),
            user=_parts(self._quotas.of_caller(caller), asked),
            project_resources=_resource_parts(self._quotas.resources_of(caller.scope.owner), workers),
            user_resources=_resource_parts(self._quotas.resources_of(caller.scope.owner, caller.user), workers)
            if caller.user
            else [],
            held=workers.held,
        )

    def _workers_of(self, caller: Caller, submission: Submission) -> GrantedWorkers:
        """Return what the submission gets on the executor that gives it most, of those that may run it."""
        gang, wanted = submission.gang, submission.placement or {}
        placement = msgspec.convert(wanted, Placement)
        each = resources_of_worker(placement)
        requested = replicas_of(gang) if gang is not None else 1 if submission.dry_run else submission.workers
        candidates = permitting(self._resolver.eligibility.with_room(wanted, gang), wanted, gang)
        counts = [config.workers_for(requested) for config in candidates]  # a gang may share the workers that there are
        owner = WorkOwner(caller.scope.owner, caller.name)
        with self._database.read() as c:
            limits = quota_store.worker_limits(c)
        workers = max(counts) if gang is not None else limits.within(owner, max(counts), each)
        held = None
        if not submission.dry_run:  # which waits for no limit
            held = WorkersInUse(limits).why_held(owner, self._resolver.eligibility.least_workers(wanted, gang), each)
        return GrantedWorkers(GrantedResources.of_placement(workers, placement), each, held)

    def _basis(self, caller: Caller, resolved: Resolved) -> tuple[BasisKind, TaskCosts | None]:
        provenance = resolved.provenance
        with self._database.read() as c:
            if provenance.model.digest is not None and provenance.runtime.name is not None:
                same = provenance.model.digest, provenance.runtime.name
                if (costs := task_costs(c, caller.scope, provenance.dataset.digest, same)) is not None:
                    return BasisKind.MODEL, costs
            if (costs := task_costs(c, caller.scope, provenance.dataset.digest, None)) is not None:
                return BasisKind.DATASET, costs
        return BasisKind.NONE, None


def _use_of(costs: TaskCosts, tasks: int, granted: GrantedResources) -> UsedResources:
    workers = round(Fraction(costs.worker_milliseconds, costs.tasks) * tasks)
    return UsedResources(workers, workers * granted.millicores, workers * granted.mebibytes, workers * granted.gpus)


def _parts(uses: Sequence[QuotaUse], asked: Mapping[Quota, int]) -> list[AskedQuota]:
    return [AskedQuota(use.quota, use.limit, use.used, asked.get(use.quota)) for use in uses]


def _resource_parts(uses: Sequence[ResourceUse], workers: GrantedWorkers) -> list[AskedResource]:
    """Return what is asked for of each resource that workers have, or that has a limit."""
    known = {use.resource: use for use in uses}
    parts = []
    for name in sorted({*known, *workers.each}):
        amount = workers.granted.workers * workers.each.get(name, 0)
        limit, used = (known[name].limit, known[name].used or 0) if name in known else (None, 0)
        parts.append(AskedResource(name, limit, used, shown_amount(name, amount)))
    return parts
