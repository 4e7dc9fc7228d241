"""Quota holds: why simulations that are queued do not start though workers are free."""

from collections.abc import Sequence
from contextlib import suppress

from common.errors import UnreadableRow
from core.domain.access.scopes import Scope
from core.domain.scheduling.eligibility import Eligibility
from core.domain.scheduling.states import State
from core.domain.scheduling.worker_limits import WorkersInUse, WorkOwner
from core.domain.submissions.submission_spec import spec_of
from core.store import launches, quotas
from core.store.database import Connection
from core.store.simulations import SimulationRow


def quota_holds(c: Connection, rows: Sequence[SimulationRow], eligibility: Eligibility) -> dict[str, str | None]:
    """Return why a limit of what runs holds those of these simulations that are queued, by id; None: no limit does."""
    if not (limits := quotas.worker_limits(c)):
        return {}
    queued = [row for row in rows if row.state == State.QUEUED]
    holds: dict[str, str | None] = {}
    for project in {row.project for row in queued}:
        launched = launches.workers_of(c, Scope(project))
        used = ((WorkOwner(of, user), launch.cpu, launch.each) for of, user, launch in launched)
        in_use = WorkersInUse(limits, used)
        for row in queued:
            if row.project == project and not row.dry_run:
                with suppress(UnreadableRow):  # it says so itself
                    spec = spec_of(row.spec)
                    least = eligibility.least_workers(spec.placement or {}, spec.gang)
                    owner = WorkOwner(project, row.submitted_by)
                    holds[row.id] = in_use.why_held(owner, least, spec.worker_resources)
    return holds
