"""Tables of simulations: their stages, tasks, results, logs and events, and who looks into them."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
)

from core.store.tables.schema import metadata, partial_index

#: Columns by which the list of simulations is filtered, and the condition of the rows that it has.
LISTED = ("project", "state", "id", "dataset", "dataset_version", "runtime", "model", "submitted_by", "search")

LISTED_ROWS = "deleted_at IS NULL AND dry_run = 0"

#: Columns with an index of their own. Digests have only this one: they would make the index of lists twice as large.
FILTERED = ("dataset", "dataset_digest", "runtime", "model", "digest", "submitted_by")

simulations = Table(
    "simulations",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt", Integer, nullable=False, server_default="1"),
    Column("event_seq", Integer, nullable=False, server_default="0"),
    Column("spec", Text, nullable=False),  # JSON: the normalised submission
    Column("provenance", Text, nullable=False),  # JSON: everything resolved to digests
    Column("dataset", Text, nullable=False),
    Column("runtime", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("digest", Text, nullable=False),  # the model's
    Column("labels", Text, nullable=False, server_default="{}"),
    Column("summary", Text),  # JSON, written by the job `collect`
    Column("progress", Text),  # JSON, written by the dispatcher
    Column("reason", Text),
    Column("outcome", Text),  # the state in which it ends, once its summary is made
    Column("retry_of", Text),
    Column("dry_run", Integer, nullable=False, server_default="0"),
    Column("claim", Text),
    Column("claim_until", Float(53), nullable=False, server_default="0"),
    Column("not_before", Float(53), nullable=False, server_default="0"),
    # Attempts to stage that failed in a row because a store or the package index did not answer.
    Column("staging_failures", Integer, nullable=False, server_default="0"),
    Column("preparation", Text),  # see core/domain/scheduling/preparation.py; null: not looked at
    # Whether its model is being imported by reference; then it has no digest, and is not admitted.
    Column("awaits_model", Integer, nullable=False, server_default="0"),
    Column("executor", Text),  # where it runs, or ran last
    Column("bundle", Text),  # JSON: the evaluator's bundle, for executors that share no folder
    Column("created_at", Float(53), nullable=False),
    Column("started_at", Float(53)),
    Column("ended_at", Float(53)),
    Column("deleted_at", Float(53)),
    Column("dataset_version", Text, nullable=False, server_default=""),
    Column("dataset_digest", Text, nullable=False, server_default=""),
    Column("submitted_by", Text, nullable=False, server_default=""),  # see common/client_addresses.py
    Column("stored_bytes", BigInteger, nullable=False, server_default="0"),  # of what it refers to, once it has ended
    Column("search", Text, nullable=False, server_default=""),  # see core/domain/submissions/listing.py
    Column("changed_at", Float(53)),  # of its newest event, or of its deletion; null: before this column existed
    Column("headline", Text),  # JSON, the members of the summary that a list has; null: ended by an earlier version
    Column("outputs", Text),  # JSON: what its declared outputs became; null: it declares none, or has not ended
    Column("binned", Integer, nullable=False, server_default="0"),  # whether it was deleted into the bin
    Index("simulations_state", "state", "id"),
    Index("simulations_unsummed", "state", "id", **partial_index("summary IS NULL")),
    Index("simulations_deleted", "id", **partial_index("deleted_at IS NOT NULL")),  # of earlier versions
    Index("simulations_purged", "id", **partial_index("deleted_at IS NOT NULL AND binned = 0")),
    Index("simulations_refused", "id", **partial_index("state = 'queued' AND outcome IS NOT NULL")),
    Index("simulations_claimed", "id", **partial_index("claim IS NOT NULL")),
    Index("simulations_changed", "changed_at", "id", **partial_index("changed_at IS NOT NULL")),
    Index("simulations_retries", "retry_of", "id", **partial_index("retry_of IS NOT NULL")),
    Index("simulations_listed", *LISTED, **partial_index(LISTED_ROWS)),  # see core/store/listing.py
    Index("simulations_counted", "project", "state", **partial_index(LISTED_ROWS)),
    *(Index(f"simulations_{name}", "project", name, "id", "state", **partial_index(LISTED_ROWS)) for name in FILTERED),
)

events = Table(
    "events",
    metadata,
    Column("simulation_id", Text, primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("type", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("at", Float(53), nullable=False),
)

stages = Table(
    "stages",
    metadata,
    Column("id", Text, primary_key=True),
    Column("simulation_id", Text, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("total", BigInteger, nullable=False),
    Column("next", BigInteger, nullable=False, server_default="0"),
    Column("prev", BigInteger, nullable=False, server_default="0"),
    Column("align", Integer, nullable=False, server_default="1"),  # ranges are split at multiples of this
    Column("arrivals", BigInteger, nullable=False, server_default="0"),
    Column("state", Text, nullable=False),  # open | done | closed
    UniqueConstraint("simulation_id", "ordinal"),
    CheckConstraint("next <= total"),
)

ranges = Table(
    "ranges",
    metadata,
    Column("stage_id", Text, primary_key=True),
    Column("start", BigInteger, primary_key=True),
    Column("stop", BigInteger, nullable=False),
    Column("cursor", BigInteger, nullable=False),
    Column("state", Text, nullable=False),  # pending | leased | done | closed
    Column("fencing_token", Text),
    Column("launch_id", Text),
    Column("worker", Text),
    Column("ttl", Float(53)),
    Column("heartbeat_at", Float(53)),
    Column("moved_at", Float(53)),
    Column("rate", Float(53)),
    Column("task", BigInteger, nullable=False, server_default="-1"),  # last reported by a heartbeat
    Column("cuts", Integer, nullable=False, server_default="0"),
    Column("speculative", Integer, nullable=False, server_default="0"),
    Column("careful", BigInteger, nullable=False, server_default="-1"),  # up to this task, one result per report
    Column("strikes", Integer, nullable=False, server_default="0"),
    Column("expiries", Integer, nullable=False, server_default="0"),
    Column("death", Text),  # why the worker died that last struck the first task
    CheckConstraint("start <= cursor AND cursor <= stop"),
    Index(
        "ranges_open",
        "stage_id",
        "state",
        "start",
        **partial_index("state <> 'done'"),
    ),
    # No column of these changes with a report or a heartbeat, so that both stay one write to the row alone.
    Index("ranges_leased", "stage_id", **partial_index("state = 'leased'")),
    Index("ranges_poisoned", "stage_id", **partial_index("state = 'pending' AND strikes > 0")),
    postgresql_with={"fillfactor": 70},
)

segments = Table(
    "segments",
    metadata,
    Column("stage_id", Text, primary_key=True),
    Column("start", BigInteger, primary_key=True),
    Column("stop", BigInteger, nullable=False),
    Column("arrival", BigInteger),
    Column("object", Text, nullable=False),
    Column("offset", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("crc32", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("sketch", Text),
    UniqueConstraint("stage_id", "arrival"),
    Index("segments_object", "object"),
)

artifacts = Table(
    "artifacts",
    metadata,
    Column("simulation_id", Text, primary_key=True),
    Column("task", BigInteger, primary_key=True),  # -1: of the whole simulation
    Column("name", Text, primary_key=True),
    Column("media_type", Text, nullable=False),
    Column("object", Text, nullable=False),
    Column("offset", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("crc32", BigInteger, nullable=False),
    Index("artifacts_object", "object"),
)

logs = Table(
    "logs",
    metadata,
    Column("simulation_id", Text, primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("object", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
)

run_logs = Table(
    "run_logs",
    metadata,
    Column("simulation_id", Text, primary_key=True),
    Column("connection", Text, nullable=False),  # name of the MLflow server
    Column("state", Text, nullable=False),  # waiting | logged | failed
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("not_before", Float(53), nullable=False, server_default="0"),
    Column("claim", Text),
    Column("claim_until", Float(53), nullable=False, server_default="0"),
    Index("run_logs_waiting", "simulation_id", **partial_index("state = 'waiting'")),
)

# Looks into tasks that wait for their answer, or whose answer waits for the process that asked; for seconds.
look_requests = Table(
    "look_requests",
    metadata,
    Column("id", Text, primary_key=True),
    Column("simulation_id", Text, nullable=False),
    Column("request", Text, nullable=False),  # JSON, as the runner gets it
    Column("created_at", Float(53), nullable=False),
    Column("taken", Integer, nullable=False, server_default="0"),  # by a runner
    Column("answer", Text),  # JSON, as the runner gave it
    Column("data", LargeBinary),
    Index("look_requests_waiting", "simulation_id", **partial_index("taken = 0")),
)

# Who has looked at what: a row for each file and person.
looks = Table(
    "looks",
    metadata,
    Column("simulation_id", Text, primary_key=True),
    Column("task", BigInteger, primary_key=True),
    Column("kind", Text, primary_key=True),  # list | read | connect
    Column("path", Text, primary_key=True),
    Column("looked_by", Text, primary_key=True),  # see common/client_addresses.py
    Column("times", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("first_at", Float(53), nullable=False),
    Column("last_at", Float(53), nullable=False),
)

# Connections of people to ports of programs, while they last, and the bytes that wait for their reader.
tunnels = Table(
    "tunnels",
    metadata,
    Column("id", Text, primary_key=True),  # of the look that it began with
    Column("simulation_id", Text, nullable=False),
    Column("task", BigInteger, nullable=False),
    Column("port", Text, nullable=False),
    Column("opened_by", Text, nullable=False),
    Column("asked_at", Float(53), nullable=False),  # by the person's side, last
    Index("tunnels_simulation", "simulation_id"),
)

tunnel_pieces = Table(
    "tunnel_pieces",
    metadata,
    Column("tunnel_id", Text, primary_key=True),
    Column("side", Text, primary_key=True),  # person | program: the one that has sent it
    Column("number", BigInteger, primary_key=True),
    Column("data", LargeBinary, nullable=False),  # empty: the last one
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("project", Text, primary_key=True, server_default="default"),
    Column("principal", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("simulation_id", Text),
    Column("expires_at", Float(53), nullable=False),
    Index("idempotency_expiry", "expires_at"),
)
