"""Routes of usage: sums of a project; storage, caches and the queue, which an operator looks at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from flask import Response

from api.blueprint import BINARY, Blueprint, Success
from api.context import caller
from api.context import operation_services as services
from api.negotiation import choose
from api.rendering.usage_tables import as_csv, as_document
from api.schemas.project_usage import ProjectUsageQuery, ProjectUsageSchema
from api.schemas.usage import CacheListSchema, QueueSchema, StorageSchema
from common.errors import Invalid, NotAcceptable, UnknownProject
from core.domain.access.roles import Verb
from core.domain.usage.usage_sums import UsageGrouping, groupings
from core.services.operations.queue import QueueLoad
from core.services.operations.usage_reports import UsageReport

blueprint = Blueprint(
    "usage", __name__, url_prefix="/v1", description="Usage of projects; storage in use, caches and the queue."
)

CSV = "text/csv"
FORMATS: Mapping[str, str] = {"json": "application/json", "csv": CSV}


_SUMS = Success(
    media={"application/json": ProjectUsageSchema, CSV: BINARY}, plain=True, description="The sums and their total."
)


class _UsageQuery(msgspec.Struct, frozen=True):
    """Arguments of a request for sums, as they were sent."""

    by: str = ""
    since: str | None = None
    until: str | None = None
    format: str | None = None


@dataclass(frozen=True, slots=True)
class _AskedUsage:
    """Arguments of a request for sums; moments in seconds since the epoch."""

    format: str
    by: Sequence[UsageGrouping]
    since: float | None
    until: float | None


@blueprint.operation(
    "GET /projects/<name:project>/usage",
    _SUMS,
    errors=[Invalid, NotAcceptable, UnknownProject],
)
@blueprint.takes(ProjectUsageQuery)
def get_project_usage(query: Mapping[str, object], project: str) -> dict[str, object] | Response:
    """Sum up the usage of a project, and its cost

    Resources that are granted to its simulations count, from launch until their processes are gone: cores, memory and
    GPUs. Sums by anything add up to the same number. A simulation that runs counts until a few seconds ago. As JSON or
    CSV.
    """
    asked = _read_query(query)
    return _answer(asked, services().usage_reports.report(caller(), asked.by, since=asked.since, until=asked.until))


@blueprint.operation("GET /usage", _SUMS, errors=[Invalid, NotAcceptable], verb=Verb.OPERATE)
@blueprint.takes(ProjectUsageQuery)
def get_usage(query: Mapping[str, object]) -> dict[str, object] | Response:
    """Sum up the usage of all projects, and its cost

    Of those that are deleted, too: `by=project` has their names. Otherwise as the usage of a project.
    """
    asked = _read_query(query)
    return _answer(asked, services().usage_reports.report_all(asked.by, since=asked.since, until=asked.until))


def _read_query(query: Mapping[str, object]) -> _AskedUsage:
    sent = msgspec.convert(query, _UsageQuery)
    since, until = _seconds(sent.since, "since"), _seconds(sent.until, "until")
    if since is not None and until is not None and since > until:
        raise Invalid("`since` is after `until`.")
    names = [name.strip() for name in sent.by.split(",")] if sent.by else []
    return _AskedUsage(choose(FORMATS, sent.format), groupings(names), since, until)


def _answer(asked: _AskedUsage, report: UsageReport) -> dict[str, object] | Response:
    if asked.format == "csv":
        return Response(as_csv(report), content_type=f"{CSV}; charset=utf-8")
    return as_document(report)


def _seconds(text: str | None, name: str) -> float | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(f"`{name}` is not a moment: {text}.") from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


@blueprint.operation(
    "GET /storage",
    Success(schema=StorageSchema, description="Bytes by kind, the database, and the disks."),
    verb=Verb.OPERATE,
)
def get_storage() -> dict[str, Any]:
    """Get the storage in use

    The sums are computed at most every five seconds, and less often where they take long; `measured_at` has their
    time. The object store is not listed: the sums are of what the platform refers to in it.
    """
    return services().storage_use.describe()


@blueprint.operation(
    "GET /caches",
    Success(schema=CacheListSchema, description="Every cache with its size, hits and misses."),
    verb=Verb.OPERATE,
)
def list_caches() -> dict[str, Any]:
    """List the caches

    The node cache of the machine of the process that answers, and the nodes of the cache service. A cache that
    cannot be read has a `reason`, and null for its figures.
    """
    return services().cache_use.describe()


@blueprint.operation(
    "GET /queue", Success(schema=QueueSchema, description="What waits and why, and what runs."), verb=Verb.OPERATE
)
def get_queue() -> QueueLoad:
    """Get the queue: what waits, by reason, and what runs, by executor

    Simulations that do not run yet, by what they wait for, and the launches, leases and tasks on each executor.
    `measured_at` has the time of the counts.
    """
    return services().queue.counts()
