"""Routes /v1/storage, /v1/caches and /v1/queue: what an operator looks at."""

from typing import Any

from api.blueprint import Blueprint, Success
from api.context import operation_services as services
from api.schemas.usage import CacheListSchema, QueueSchema, StorageSchema
from core.domain.access.roles import Verb
from core.services.operations.queue import QueueLoad

blueprint = Blueprint("usage", __name__, url_prefix="/v1", description="Storage in use, caches and the queue.")


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
