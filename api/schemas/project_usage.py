"""Schemas of what projects use: sums by anything, and estimates of what a submission will need."""

from marshmallow import fields

from api.schemas.fields import Choice, Open, Strict, Text
from api.schemas.members import array, dictionary, document, documents, integer, real, string
from core.domain.access.quotas import MEANINGS, Quota
from core.domain.usage.usage_sums import UsageDimension

#: A day, or a moment.
MOMENT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9:.]{4,15}(Z|[+-][0-9]{2}:?[0-9]{2})?)?$"
_COST = "a number of units of the `currency`; null where nothing has a price (`WINDTUNNEL_PRICES`)."


def _moment(description: str, example: str) -> Text:
    words = f"{description}: a day, such as {example}, or a moment, such as {example}T12:00:00Z. In UTC."
    return Text(MOMENT, longest=40, description=words, metadata={"example": example})


class ProjectUsageQuery(Strict):
    """Names by which usage is summed up, moments between which it counts, and the format."""

    by = Text(
        r"^[^\x00-\x1f\x7f]+$",
        longest=500,
        load_default="",
        description=f"Names with commas between them: {', '.join(f'`{each}`' for each in UsageDimension)} (all labels"
        " together), or `label:KEY` (the value of one). In their order; without, one sum.",
        metadata={"example": "day,user"},
    )
    since = _moment("What was used before does not count", "2026-11-01")
    until = _moment("What was used from then on does not count; a day: at its begin", "2026-12-01")
    format = Choice("json", "csv", description="Takes precedence over `Accept`.")


class UsageSumSchema(Open):
    """A sum of usage. It has a member for each name in `by` as well; empty where there is no such value."""

    day = string("Day (UTC), if `by` names it.", required=False, example="2026-11-30")
    user = string("Who has submitted the simulations, if `by` names it.", required=False)
    simulation = string("Id of the simulation, if `by` names it.", required=False)
    kind = string(
        "What it was used for, if `by` names it: `simulation`; `dry-run`; `job`: a background job of the platform that"
        " prepares or finishes something for the project; `warm`: a warm runner that waited for a launch.",
        required=False,
    )
    core_seconds = real("Seconds of cores that were granted.")
    core_hours = real("The same as a number of hours.")
    gib_seconds = real("Seconds of GiB of memory that were granted.")
    gpu_seconds = real("Seconds of GPUs that were granted.")
    worker_seconds = real("Seconds of workers.")
    lost_core_seconds = real("Seconds of these that the platform lost, because it repeated the work.")
    estimated_core_seconds = real("Seconds of these that are estimated, after a kill.")
    cost = real(f"Its cost, {_COST}", allow_none=True)


class ProjectUsageSchema(Open):
    """Usage of a project."""

    project = string("The project; empty: all of them.")
    by = array(fields.String(), "What it is summed up by.")
    currency = string("Currency of the prices; empty if the operator names none.")
    items = documents(UsageSumSchema, "The sums, in the order of their values.")
    total = document(UsageSumSchema, "The sum of the sums.")


class EstimateBasisSchema(Open):
    """Simulations on which an estimate rests."""

    kind = string(
        "`model`: earlier simulations of the same model on the same dataset; `dataset`: of other models on it; `none`:"
        " nothing like it has succeeded in the project yet, so that only `tasks` and `workers` are known."
    )
    simulations = integer("Number of simulations that it rests on, the newest ones.")
    tasks = integer("Number of their tasks.")
    core_seconds_per_task = real("Core seconds of a task with this number of cores; null if unknown.", allow_none=True)


class QuotaPartSchema(Open):
    """A quota, and how much of it a submission asks for."""

    limit = integer("The limit in force, as a number of what the quota counts; null: there is none.", allow_none=True)
    used = integer("Number of what there is already.")
    asked = integer("Number of what the submission asks for; null: not known before it has ended.", allow_none=True)
    part = real(
        "Part of the limit that it asks for, as a number of limits (0.4: 40 % of it); null where there is none.",
        allow_none=True,
    )


class ResourcePartSchema(Open):
    """A resource of workers that run, and how much of it a submission asks for."""

    limit = integer("The limit in force, as a number of cores, bytes or devices; null: none.", allow_none=True)
    used = real("Number of cores, bytes or devices that running workers have.")
    asked = real("Number of cores, bytes or devices of all its workers, or replicas, together.")
    part = real(
        "Part of the limit that it asks for, as a number of limits (0.4: 40 % of it); null where there is none.",
        allow_none=True,
    )


def _resource_parts(whose: str) -> fields.Dict:
    return dictionary(
        f"Resources of {whose}, by name: `cpu`, `memory`, devices, and what else has a limit.",
        fields.Nested(ResourcePartSchema),
    )


def _parts(whose: str) -> fields.Dict:
    names = ", ".join(f"`{quota}` (number of {MEANINGS[quota]})" for quota in Quota)
    return dictionary(f"Quotas of {whose}, by name: {names}.", fields.Nested(QuotaPartSchema))


class EstimateSchema(Open):
    """Needs of a submission; null where nothing is known."""

    tasks = integer("Number of tasks.")
    workers = integer("Number of workers that it gets where there is room.")
    seconds = real("Seconds that it runs with these workers; null if unknown.", allow_none=True)
    core_hours = real("Number of hours of cores; null if unknown.", allow_none=True)
    cost = real(f"Its cost, {_COST} Null if unknown, too.", allow_none=True)
    currency = string("Currency of the cost; empty if the operator names none.")
    basis = document(EstimateBasisSchema, "What the estimate rests on.")
    quotas = _parts("the project")
    user_quotas = _parts("the user in it; none without accounts")
    resources = _resource_parts("the project")
    user_resources = _resource_parts("the user in it; none without accounts")
    never_starts = string(
        "Why a limit keeps it waiting even if nothing else runs, such as one below what a gang needs; null: none does.",
        allow_none=True,
    )
