"""Schemas of quotas: limits to set, and limits with their use."""

from api.schemas.fields import LARGEST_INTEGER, Open, Strict, Whole
from api.schemas.members import document, integer
from core.domain.access.quotas import MEANINGS, Quota


def _limit(quota: Quota, more: str = "") -> Whole:
    description = f"Largest number of {MEANINGS[quota]}{more}. Without it, or null: no limit of its own."
    return Whole(0, LARGEST_INTEGER, allow_none=True, description=description)


class QuotaLimitsSchema(Strict):
    """Limits that replace those before."""

    queued_simulations = _limit(Quota.QUEUED_SIMULATIONS)
    tasks = _limit(Quota.TASKS)
    stored_bytes = _limit(Quota.STORED_BYTES)
    running_workers = _limit(Quota.RUNNING_WORKERS, "; what would be more waits")


class QuotaUseSchema(Open):
    """A quota, and how much of it is used."""

    limit = integer("The limit in force, as a number of what the quota counts; null: there is none.", allow_none=True)
    used = integer("Number of what there is; null in the limits of every project.", allow_none=True)
    own = integer("The limit that was given here, as a number of those; null: none was.", allow_none=True)


class QuotasSchema(Open):
    """All quotas, each with its limit and its use."""

    queued_simulations = document(QuotaUseSchema, f"Number of {MEANINGS[Quota.QUEUED_SIMULATIONS]}.")
    tasks = document(QuotaUseSchema, f"Number of {MEANINGS[Quota.TASKS]}.")
    stored_bytes = document(QuotaUseSchema, f"Number of {MEANINGS[Quota.STORED_BYTES]}.")
    running_workers = document(QuotaUseSchema, f"Number of {MEANINGS[Quota.RUNNING_WORKERS]}.")
