"""Quotas: how much of each kind a project, or a user in it, may have at the same time; and the refusal of more."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from common.errors import QuotaExceeded


class Quota(StrEnum):
    """Quota of a project, or of a user in it."""

    QUEUED_SIMULATIONS = "queued_simulations"
    TASKS = "tasks"
    STORED_BYTES = "stored_bytes"
    RUNNING_WORKERS = "running_workers"


#: What each quota counts. `running_workers` refuses nothing: what would be more waits.
MEANINGS: Mapping[Quota, str] = {
    Quota.QUEUED_SIMULATIONS: "simulations that do not run yet",
    Quota.TASKS: "tasks of simulations that have not ended",
    Quota.STORED_BYTES: "bytes of models, datasets, uploads and results",
    Quota.RUNNING_WORKERS: "workers of simulations that run",
}
#: Largest number of resources with a limit.
MOST_RESOURCES = 32
#: Of no user in particular: the row of a project as a whole.
WHOLE_PROJECT = ""
#: Project of the limits of every project that has none of its own.
EVERY_PROJECT = ""


@dataclass(frozen=True, slots=True)
class Charge:
    """Numbers by which more is counted; negative: less."""

    queued_simulations: int = 0
    tasks: int = 0
    stored_bytes: int = 0

    def of(self, quota: Quota) -> int:
        """Return how much of a quota it is."""
        return 0 if quota is Quota.RUNNING_WORKERS else int(getattr(self, quota.value))

    def __bool__(self) -> bool:
        return bool(self.queued_simulations or self.tasks or self.stored_bytes)


def check(project: str, user: str, limits: Mapping[Quota, int], used: Mapping[Quota, int], charge: Charge) -> None:
    """Raise QuotaExceeded if a charge, which ``used`` has already, is more than there is room for.

    ``user``: whose limits they are; empty: the project's. Results of what runs are always kept, so a project may have
    more bytes stored than its limit: it then submits nothing.
    """
    for quota, limit in limits.items():
        asked, after = charge.of(quota), used.get(quota, 0)
        if asked > 0 and after > limit:
            raise refusal_of(project, user, quota, limit, after - asked, asked)
        if quota is Quota.STORED_BYTES and charge.queued_simulations > 0 and after >= limit:
            raise refusal_of(project, user, quota, limit, after, 0)


def refusal_of(project: str, user: str, quota: Quota, limit: int, used: int, asked: int) -> QuotaExceeded:
    """Return the refusal, which names the quota, its use, and who can raise it."""
    whose, who = (
        (f"{user} in project {project}", "a maintainer of the project")
        if user
        else (
            f"Project {project}",
            "an operator of the platform",
        )
    )
    more = f", and this would be {asked:,} more" if asked else ""
    return QuotaExceeded(
        f"{whose} has {used:,} of at most {limit:,} {MEANINGS[quota]}{more} (quota `{quota}`). Wait until some have"
        f" ended, delete what is not needed, or ask {who} to raise it.",
        quota=quota.value,
        limit=limit,
        used=used,
    )
