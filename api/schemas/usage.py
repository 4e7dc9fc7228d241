"""Schemas of what an operator looks at: storage in use, caches and the queue."""

from marshmallow import fields

from api.schemas.fields import Open


def _integer(description: str, *, allow_none: bool = False) -> fields.Integer:
    return fields.Integer(required=True, allow_none=allow_none, metadata={"description": description})


def _time(description: str) -> fields.AwareDateTime:
    return fields.AwareDateTime(
        required=True, allow_none=True, format="iso", metadata={"description": f"{description}; null: not yet."}
    )


class StoredKindSchema(Open):
    """A kind of object in the object store."""

    name = fields.String(
        required=True,
        metadata={
            "description": "`models` (each content once), `datasets` (files of registered versions: a file of several "
            "versions counts in each, also where it stays in a bucket of its own), `results`, `artifacts`, `logs`, or "
            "`uploads` (parts of uploads that have not expired)."
        },
    )
    objects = _integer("Number of objects; of datasets, number of versions.")
    bytes = _integer("Bytes of these objects.")


class DatabaseSizeSchema(Open):
    """The database."""

    kind = fields.String(required=True, metadata={"description": "`sqlite` or `postgresql`."})
    bytes = _integer("Bytes on its disk; null until they are measured.", allow_none=True)


class DiskSchema(Open):
    """A disk of the machine of the process that answers."""

    holds = fields.List(
        fields.String(),
        required=True,
        metadata={"description": "`data` (drafts and the embedded database), `objects` (the object store, if local)."},
    )
    free = _integer("Bytes that are free.")
    size = _integer("Bytes of the whole disk.")
    floor = _integer("Bytes that uploads, models and registrations leave free (`WINDTUNNEL_DISK_FLOOR`).")
    below_floor = fields.Boolean(
        required=True, metadata={"description": "Whether uploads, models and registrations are refused now."}
    )


def _oldest() -> fields.AwareDateTime:
    return fields.AwareDateTime(
        required=True,
        allow_none=True,
        format="iso",
        metadata={"description": "When the oldest of them was submitted; null: none waits."},
    )


class WaitingReasonSchema(Open):
    """Simulations that wait for the same thing."""

    state = fields.String(required=True, metadata={"description": "`queued`, `staging` or `launching`."})
    executor = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "Executor that they are admitted to, or that their submissions name; null: any."},
    )
    reason = fields.String(required=True, metadata={"description": "What they wait for, in words."})
    simulations = _integer("Number of simulations.")
    tasks = _integer("Number of their tasks without a result.")
    oldest_at = _oldest()


class WaitingSchema(Open):
    """Simulations that do not run yet."""

    simulations = _integer("Number of simulations.")
    tasks = _integer("Number of their tasks without a result.")
    oldest_at = _oldest()
    reasons = fields.List(
        fields.Nested(WaitingReasonSchema),
        required=True,
        metadata={"description": "The same simulations, by what they wait for."},
    )


class ExecutorLoadSchema(Open):
    """What runs on an executor."""

    name = fields.String(required=True, metadata={"description": "Name of the executor."})
    launches = _integer("Number of launches that are not over.")
    leases = _integer("Number of ranges of tasks that a worker holds.")
    tasks = _integer("Number of tasks of these ranges without a result.")
    rate = fields.Float(
        required=True, metadata={"description": "Tasks per second, as these workers measured with their last reports."}
    )


class QueueSchema(Open):
    """The queue."""

    measured_at = _time("When the counts were read")
    waiting = fields.Nested(
        WaitingSchema, required=True, allow_none=True, metadata={"description": "What waits; null until it is counted."}
    )
    executors = fields.List(
        fields.Nested(ExecutorLoadSchema),
        required=True,
        allow_none=True,
        metadata={"description": "What runs, by executor; null until it is counted."},
    )


class CacheSchema(Open):
    """A cache: of this machine, or a bucket of a node of the cache service. Without a reason it has all figures."""

    kind = fields.String(required=True, metadata={"description": "`node`: datasets and models; `service`: files."})
    name = fields.String(required=True, metadata={"description": "Name of the machine, or address of the cache node."})
    bucket = fields.String(
        required=True, allow_none=True, metadata={"description": "Bucket of the cache service; null of a node's cache."}
    )
    reason = fields.String(
        required=True, allow_none=True, metadata={"description": "Why it reports no figures; null if it does."}
    )
    entries = _integer(
        "Number of datasets and models, or of objects, that it holds; null with a `reason`.", allow_none=True
    )
    bytes = _integer("Bytes of these entries, and of what is being downloaded; null with a `reason`.", allow_none=True)
    capacity = _integer(
        "Bytes that it may hold; less where the disk has less room. Null with a `reason`.", allow_none=True
    )
    pinned = _integer(
        ("Bytes that running simulations need, which stay; null of the cache service and with a `reason`."),
        allow_none=True,
    )
    hits = _integer(
        ("Number of requests for an entry that was present, since the cache was created; null with a `reason`."),
        allow_none=True,
    )
    misses = _integer(
        ("Number of requests for an entry that was absent, since the cache was created; null with a `reason`."),
        allow_none=True,
    )
    evictions = _integer(
        ("Number of entries that were removed to make room, since the cache was created; null with a `reason`."),
        allow_none=True,
    )
    hit_ratio = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": (
                "Share of hits in all requests, from 0 to 1; null before the first request and with a `reason`."
            )
        },
    )


class CacheListSchema(Open):
    """Every cache that the process which answers can read."""

    measured_at = _time("When the figures were read")
    items = fields.List(
        fields.Nested(CacheSchema),
        required=True,
        allow_none=True,
        metadata={"description": "The caches; null until they are read."},
    )


class MachineKindSchema(Open):
    """A kind of what is stored on a machine."""

    name = fields.String(
        required=True,
        metadata={
            "description": "`environments` (prepared packages of runtimes and simulators), `cached_datasets`, "
            "`cached_models`, or `cached_environments` (packages of models and OpenEnv environments)."
        },
    )
    objects = _integer("Number of environments, or of entries of the node cache.")
    bytes = _integer("Bytes of these; a file that several environments share counts once.")


class MachineStorageSchema(Open):
    """Storage of a machine, beside objects and the database."""

    name = fields.String(required=True, metadata={"description": "Name of the machine."})
    measured_at = _time("When `kinds` were measured")
    kinds = fields.List(
        fields.Nested(MachineKindSchema),
        required=True,
        allow_none=True,
        metadata={"description": "Number and bytes of what is stored there, by kind; null until they are measured."},
    )


class StorageSchema(Open):
    """Storage in use."""

    measured_at = _time("When `kinds` and the size of the database were computed")
    kinds = fields.List(
        fields.Nested(StoredKindSchema),
        required=True,
        allow_none=True,
        metadata={
            "description": (
                "Number and bytes of the objects that the rows of the database name, by kind; null "
                "until they are measured."
            )
        },
    )
    database = fields.Nested(DatabaseSizeSchema, required=True, metadata={"description": "The database."})
    machine = fields.Nested(
        MachineStorageSchema,
        required=True,
        metadata={"description": "Environments and the node cache of the machine of the process that answers."},
    )
    disks = fields.List(
        fields.Nested(DiskSchema),
        required=True,
        metadata={"description": "Disks of the machine of the process that answers."},
    )
