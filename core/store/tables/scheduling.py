"""Tables of the dispatcher: launches, their usage, executors, and which process leads."""

from sqlalchemy import BigInteger, Column, Float, Index, Integer, Table, Text

from core.store.tables.schema import metadata, partial_index

# Simulations whose row the dispatcher has to read again. A change of a simulation adds its entry in the same
# transaction; the dispatcher deletes the entries that it has read.
scheduling_changes = Table(
    "scheduling_changes",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("simulation_id", Text, nullable=False),
)

launches = Table(
    "launches",
    metadata,
    Column("id", Text, primary_key=True),
    Column("simulation_id", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("executor", Text, nullable=False),
    Column("token_hash", Text, nullable=False),
    Column("resources", Text, nullable=False),
    Column("state", Text, nullable=False),  # live | over
    Column("reservation", Text, nullable=False, server_default="held"),  # see core/domain/scheduling/reservations.py
    Column("created_at", Float(53), nullable=False),
    Column("seen_at", Float(53)),
    Index("launches_simulation", "simulation_id"),
    Index("launches_live", "executor", **partial_index("state = 'live'")),
    Index("launches_one_live", "simulation_id", unique=True, **partial_index("state = 'live'")),
)

# What was granted, and for how long. A row is deleted with nothing: not with its simulation, nor with its project.
# It lasts from `milliseconds` before `until_at` to `until_at`; while it is open, that is its last mark.
usage_intervals = Table(
    "usage_intervals",
    metadata,
    Column("launch_id", Text, primary_key=True),  # of a job: an id of its own
    Column("number", Integer, primary_key=True),  # of the intervals of a launch, in order
    Column("project", Text, nullable=False),  # empty: the platform's own
    Column("user", Text, nullable=False),  # who has submitted the simulation
    Column("simulation_id", Text, nullable=False),
    Column("kind", Text, nullable=False),  # see core/domain/usage/granted_resources.py
    Column("labels", Text, nullable=False),  # JSON: those of the simulation
    Column("executor", Text, nullable=False),
    Column("workers", Integer, nullable=False),
    Column("millicores", BigInteger, nullable=False),  # these three: of each worker
    Column("mebibytes", BigInteger, nullable=False),
    Column("gpus", BigInteger, nullable=False),
    Column("until_at", Float(53), nullable=False),
    Column("milliseconds", BigInteger, nullable=False, server_default="0"),
    Column("open", Integer, nullable=False, server_default="1"),
    Column("estimated", Integer, nullable=False, server_default="0"),
    Column("lost", Integer, nullable=False, server_default="0"),  # by the platform, which repeats the work
    Index("usage_intervals_summed", "project", "until_at"),
    Index("usage_intervals_simulation", "simulation_id"),
    Index("usage_intervals_open", "launch_id", unique=True, **partial_index("open = 1")),
)

executors = Table(
    "executors",
    metadata,
    Column("name", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("workers", Integer, nullable=False),
    Column("in_use", Integer, nullable=False, server_default="0"),
    Column("healthy", Integer, nullable=False, server_default="1"),
    Column("last_error", Text),  # of the last call; null: it succeeded
    Column("since", Float(53), nullable=False),  # of the present value of healthy
)

# Apart from `executors`, whose rows the dispatcher writes: an executor is drained also before it has been polled.
executor_drains = Table(
    "executor_drains",
    metadata,
    Column("name", Text, primary_key=True),
    Column("reason", Text, nullable=False, server_default=""),
    Column("drained_by", Text, nullable=False, server_default=""),  # see common/client_addresses.py
    Column("since", Float(53), nullable=False),
)

leaders = Table(
    "leaders",
    metadata,
    Column("role", Text, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    Column("until", Float(53), nullable=False),
)
