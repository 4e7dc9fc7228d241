"""Schemas of quotas: limits to set, and limits with their use."""

from marshmallow import fields

from api.schemas.fields import LARGEST_INTEGER, RESOURCE_NAME, ObjectField, Open, Strict, Text, Whole
from api.schemas.members import dictionary, document, documents, integer, real, string
from core.domain.access.quotas import MEANINGS, MOST_RESOURCES, Quota


def _limit(quota: Quota, more: str = "") -> Whole:
    description = f"Largest number of {MEANINGS[quota]}{more}. Without it, or null: no limit of its own."
    return Whole(0, LARGEST_INTEGER, allow_none=True, description=description)


class QuotaLimitsSchema(Strict):
    """Limits that replace those before."""

    queued_simulations = _limit(Quota.QUEUED_SIMULATIONS)
    tasks = _limit(Quota.TASKS)
    stored_bytes = _limit(Quota.STORED_BYTES)
    running_workers = _limit(Quota.RUNNING_WORKERS, "; what would be more waits")
    resources = ObjectField(
        most=MOST_RESOURCES,
        keys=Text(RESOURCE_NAME, longest=253),
        values=Whole(0, LARGEST_INTEGER),
        description="Most of what running workers have, by the names of a placement: `cpu` in cores, `memory` in bytes,"
        " and extended resources such as `nvidia.com/gpu`. What would be more waits.",
    )


class ResourceUseSchema(Open):
    """A resource of running workers, in cores, bytes or devices, and how much of it is used."""

    limit = integer("Number of cores, bytes or devices: the limit in force; null: there is none.", allow_none=True)
    used = real(
        "Number of cores, bytes or devices that there are; null in the limits of every project.", allow_none=True
    )
    own = integer("Number of cores, bytes or devices: the limit that was given here; null: none was.", allow_none=True)


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
    resources = dictionary(
        "What running workers have, by name, as far as it is used or limited.", values=fields.Nested(ResourceUseSchema)
    )


class FullestQuery(Strict):
    """Limits that are asked for."""

    percent = Whole(
        0, 10_000, text=True, load_default=80, description="Number of hundredths of a limit that are used at least."
    )
    limit = Whole(1, 1000, text=True, load_default=100, description="Most limits that are returned.")


class UsedLimitSchema(Open):
    """A limit in force, and how much of it is used."""

    project = string("Project that is limited.")
    user = string("Member that is limited there; null: the project as a whole.", allow_none=True)
    quota = string("What is limited, such as `stored_bytes`, or `resources.cpu` of running workers.")
    limit = integer("Number of what the quota counts: the limit in force.")
    used = real("Number of those that there are.")
    share = real("The part that is used, from 0 to 1 and above; null where the limit is 0.", allow_none=True)


class UsedLimitsSchema(Open):
    """Limits of a platform that are used, the fullest first."""

    items = documents(UsedLimitSchema, "The limits.")
