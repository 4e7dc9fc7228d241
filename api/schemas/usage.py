"""Schemas of what an operator looks at: storage in use, caches and the queue."""

from marshmallow import fields

from api.schemas.fields import Open
from api.schemas.members import array, boolean, document, documents, integer, moment, real, string


def _time(description: str) -> fields.AwareDateTime:
    return moment(f"{description}; null: not yet.", allow_none=True)


class StoredKindSchema(Open):
    """A kind of object in the object store."""

    name = string(
        "`models` (each content once), `datasets` (files of registered versions: a file of several versions counts"
        " in each, also where it stays in a bucket of its own), `results`, `artifacts`, `logs`, or `uploads` (parts"
        " of uploads that have not expired)."
    )
    objects = integer("Number of objects; of datasets, number of versions.")
    bytes = integer("Bytes of these objects.")


class DatabaseSizeSchema(Open):
    """The database."""

    kind = string("`sqlite` or `postgresql`.")
    bytes = integer("Bytes on its disk; null until they are measured.", allow_none=True)


class DiskSchema(Open):
    """A disk of the machine of the process that answers."""

    holds = array(fields.String(), "`data` (drafts and the embedded database), `objects` (the object store, if local).")
    free = integer("Bytes that are free.")
    size = integer("Bytes of the whole disk.")
    floor = integer("Bytes that uploads, models and registrations leave free (`WINDTUNNEL_DISK_FLOOR`).")
    below_floor = boolean("Whether uploads, models and registrations are refused now.")


def _oldest() -> fields.AwareDateTime:
    return moment("When the oldest of them was submitted; null: none waits.", allow_none=True)


class WaitingReasonSchema(Open):
    """Simulations that wait for the same thing."""

    state = string("`queued`, `staging` or `launching`.")
    executor = string("Executor that they are admitted to, or that their submissions name; null: any.", allow_none=True)
    reason = string("What they wait for, in words.")
    simulations = integer("Number of simulations.")
    tasks = integer("Number of their tasks without a result.")
    oldest_at = _oldest()


class WaitingSchema(Open):
    """Simulations that do not run yet."""

    simulations = integer("Number of simulations.")
    tasks = integer("Number of their tasks without a result.")
    oldest_at = _oldest()
    reasons = documents(WaitingReasonSchema, "The same simulations, by what they wait for.")


class ExecutorLoadSchema(Open):
    """What runs on an executor."""

    name = string("Name of the executor.")
    launches = integer("Number of launches that are not over.")
    leases = integer("Number of ranges of tasks that a worker holds.")
    tasks = integer("Number of tasks of these ranges without a result.")
    rate = real("Tasks per second, as these workers measured with their last reports.")


class QueueSchema(Open):
    """The queue."""

    measured_at = _time("When the counts were read")
    waiting = document(WaitingSchema, "What waits; null until it is counted.", allow_none=True)
    executors = documents(ExecutorLoadSchema, "What runs, by executor; null until it is counted.", allow_none=True)


class CacheSchema(Open):
    """A cache: of this machine, or a bucket of a node of the cache service. Without a reason it has all figures."""

    kind = string("`node`: datasets and models; `service`: files.")
    name = string("Name of the machine, or address of the cache node.")
    bucket = string("Bucket of the cache service; null of a node's cache.", allow_none=True)
    reason = string("Why it reports no figures; null if it does.", allow_none=True)
    entries = integer(
        "Number of datasets and models, or of objects, that it holds; null with a `reason`.", allow_none=True
    )
    bytes = integer("Bytes of these entries, and of what is being downloaded; null with a `reason`.", allow_none=True)
    capacity = integer(
        "Bytes that it may hold; less where the disk has less room. Null with a `reason`.", allow_none=True
    )
    pinned = integer(
        "Bytes that running simulations need, which stay; null of the cache service and with a `reason`.",
        allow_none=True,
    )
    hits = integer(
        "Number of requests for an entry that was present, since the cache was created; null with a `reason`.",
        allow_none=True,
    )
    misses = integer(
        "Number of requests for an entry that was absent, since the cache was created; null with a `reason`.",
        allow_none=True,
    )
    evictions = integer(
        "Number of entries that were removed to make room, since the cache was created; null with a `reason`.",
        allow_none=True,
    )
    hit_ratio = real(
        "Share of hits in all requests, from 0 to 1; null before the first request and with a `reason`.",
        allow_none=True,
    )


class CacheListSchema(Open):
    """Every cache that the process which answers can read."""

    measured_at = _time("When the figures were read")
    items = documents(CacheSchema, "The caches; null until they are read.", allow_none=True)


class MachineKindSchema(Open):
    """A kind of what is stored on a machine."""

    name = string(
        "`environments` (prepared packages of runtimes and simulators), `cached_datasets`, `cached_models`, or"
        " `cached_environments` (packages of models and OpenEnv environments)."
    )
    objects = integer("Number of environments, or of entries of the node cache.")
    bytes = integer("Bytes of these; a file that several environments share counts once.")


class MachineStorageSchema(Open):
    """Storage of a machine, beside objects and the database."""

    name = string("Name of the machine.")
    measured_at = _time("When `kinds` were measured")
    kinds = documents(
        MachineKindSchema,
        "Number and bytes of what is stored there, by kind; null until they are measured.",
        allow_none=True,
    )


class StorageSchema(Open):
    """Storage in use."""

    measured_at = _time("When `kinds` and the size of the database were computed")
    kinds = documents(
        StoredKindSchema,
        "Number and bytes of the objects that the rows of the database name, by kind; null until they are measured.",
        allow_none=True,
    )
    database = document(DatabaseSizeSchema, "The database.")
    machine = document(
        MachineStorageSchema, "Environments and the node cache of the machine of the process that answers."
    )
    disks = documents(DiskSchema, "Disks of the machine of the process that answers.")
