"""Quotas: limits that operators and maintainers give, and what projects and users have of them."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from common.errors import UnknownUser
from core.domain.access.quota_shares import QuotaShare, fullest
from core.domain.access.quotas import EVERY_PROJECT, WHOLE_PROJECT, Quota
from core.domain.access.scopes import PLATFORM, Caller, Scope
from core.domain.scheduling.worker_limits import WORKERS, WorkersInUse, WorkOwner
from core.domain.scheduling.worker_resources import shown_amount
from core.services.orphan_search import OrphanSearch
from core.store import accounts, launches
from core.store import quotas as store
from core.store.database import Connection, Database

logger = logging.getLogger(__name__)

#: Seconds between two recounts of a process, which read all that is counted.
RECOUNT = 86_400.0
#: Seconds from the first recount of a process to its second: processes of an earlier version, which may run beside it
#: for minutes after an upgrade, count nothing of what they do.
SECOND_RECOUNT = 1_800.0


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """A quota: its limit (None: none), and how much is used; None in limits of every project.

    ``own``: the limit that was given to the project or the user itself; None: another one holds, or none.
    """

    quota: Quota
    limit: int | None
    used: int | None
    own: int | None


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """A resource that running workers have, in cores, bytes or devices: its limit and use, as of a `QuotaUse`."""

    resource: str
    limit: int | None
    used: float | None
    own: int | None


@dataclass(frozen=True, slots=True)
class GivenLimits:
    """Limits that an operator or a maintainer gives: of quotas, and of resources that run, by name."""

    quotas: Mapping[Quota, int]
    resources: Mapping[str, int]


class Quotas:
    """Service of quotas."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._recount = OrphanSearch(RECOUNT, first=SECOND_RECOUNT)

    def of_project(self, caller: Caller) -> Sequence[QuotaUse]:
        """Return the limits in force in the caller's project, and their use."""
        with self._database.read() as c:
            return _uses(c, caller.scope, WHOLE_PROJECT)

    def of_user(self, caller: Caller, user: str) -> Sequence[QuotaUse]:
        """Return the limits of a user in the caller's project, and their use. Raise UnknownUser for no member."""
        with self._database.read() as c:
            return _uses(c, caller.scope, _member(c, caller, user))

    def of_caller(self, caller: Caller) -> Sequence[QuotaUse]:
        """Return the limits of the caller itself in its project, and their use; none without accounts."""
        if not caller.user:
            return []
        with self._database.read() as c:
            return _uses(c, caller.scope, caller.user)

    def of_every_project(self) -> Sequence[QuotaUse]:
        """Return the limits of every project that has none of its own."""
        with self._database.read() as c:
            limits, _ = store.limits(c, EVERY_PROJECT)
        return [QuotaUse(quota, limits.get(quota), None, limits.get(quota)) for quota in Quota]

    def resources_of(self, project: str, user: str = WHOLE_PROJECT) -> Sequence[ResourceUse]:
        """Return what the running workers of a project, or of a user in it, have of each resource, and its limits.

        Of EVERY_PROJECT: the limits alone.
        """
        with self._database.read() as c:
            own, limits = store.resource_amounts(c, project, user)
            used = _resources_in_use(c, Scope(project), user) if project else None
        names = sorted({*limits, *(used or {})})
        return [
            ResourceUse(name, limits.get(name), None if used is None else used.get(name, 0), own.get(name))
            for name in names
        ]

    def fullest(self, share: float, most: int) -> Sequence[QuotaShare]:
        """Return the limits of all projects and users of which at least a share is used, the fullest first."""
        with self._database.read() as c:
            return fullest([*store.limits_in_force(c), *_worker_limits_in_force(c)], share, most)

    def limit_project(self, caller: Caller, limits: GivenLimits) -> Sequence[QuotaUse]:
        """Replace the limits of the caller's project; for a quota without one, that of every project holds."""
        self._database.write(
            lambda c: store.set_limits(c, caller.scope.owner, WHOLE_PROJECT, limits.quotas, limits.resources)
        )
        return self.of_project(caller)

    def limit_user(self, caller: Caller, user: str, limits: GivenLimits) -> Sequence[QuotaUse]:
        """Replace the limits of a user in the caller's project. Raise UnknownUser for no member."""
        with self._database.read() as c:
            name = _member(c, caller, user)
        self._database.write(lambda c: store.set_limits(c, caller.scope.owner, name, limits.quotas, limits.resources))
        return self.of_user(caller, user)

    def limit_every_project(self, limits: GivenLimits) -> Sequence[QuotaUse]:
        """Replace the limits of every project that has none of its own."""
        self._database.write(
            lambda c: store.set_limits(c, EVERY_PROJECT, WHOLE_PROJECT, limits.quotas, limits.resources)
        )
        return self.of_every_project()

    def sweep(self) -> int:
        """Soon after the start, half an hour later and once a day, count again; return by how much it had drifted."""
        return self.recount() if self._recount.begin() else 0

    def last_drift(self) -> int:
        """Return by how much the counts of all projects had drifted at their last recounts."""
        with self._database.read() as c:
            return store.last_drift(c)

    def recount(self) -> int:
        """Count the use of all projects again; return by how much the counts had drifted."""
        with self._database.read() as c:
            projects = store.counted_projects(c)
        total = 0
        for project in projects:
            drift = self._database.write(lambda c, project=project: store.recount(c, Scope(project)))  # type: ignore[misc]
            if drift:
                logger.warning("the use of quotas of project %s had drifted by %d; it is counted again", project, drift)
            total += drift
        return total


def _uses(c: Connection, scope: Scope, user: str) -> Sequence[QuotaUse]:
    own, limits = store.limits(c, scope.owner, user)
    used = store.use(c, scope.owner, user)
    of_them = (launch.cpu for _, by, launch in launches.workers_of(c, scope) if user in {WHOLE_PROJECT, by})
    used[Quota.RUNNING_WORKERS] = sum(of_them)
    return [QuotaUse(quota, limits.get(quota), used[quota], own.get(quota)) for quota in Quota]


def _resources_in_use(c: Connection, scope: Scope, user: str) -> dict[str, float]:
    used: Counter[str] = Counter()
    for _, by, launch in launches.workers_of(c, scope):
        if user in {WHOLE_PROJECT, by}:
            for name, amount in launch.each.items():
                used[name] += launch.cpu * amount
    return {name: shown_amount(name, amount) for name, amount in used.items()}


def _worker_limits_in_force(c: Connection) -> Iterator[QuotaShare]:
    """Yield the limits of what runs, of those who have something that runs."""
    limits = store.worker_limits(c)
    live = launches.workers_of(c, PLATFORM) if limits else []
    in_use = WorkersInUse(limits, ((WorkOwner(project, user), each.cpu, each.each) for project, user, each in live))
    for (owner, name, amount), used in in_use.limits_in_use():
        quota = name if name == WORKERS else f"resources.{name}"
        limit = int(shown_amount(name, amount))  # which was given in whole numbers
        yield QuotaShare(owner.project, owner.user, quota, limit, float(shown_amount(name, used)))


def _member(c: Connection, caller: Caller, user: str) -> str:
    """Return the name in records of a member; raise UnknownUser."""
    project = caller.scope.owner
    known = accounts.account_in(c, project, user)
    if known is None or all(member.user != known.name for member in accounts.members_of(c, project)):
        raise UnknownUser(f"There is no member {user[:100]!r} in project {project}.")
    return known.name
