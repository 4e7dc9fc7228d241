"""SQL schema. Times are seconds since the epoch (UTC): arithmetic is the same on SQLite and PostgreSQL."""

from typing import TypedDict

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TextClause,
    UniqueConstraint,
    text,
)

metadata = MetaData()


class _Where(TypedDict):
    """The condition of a partial index, as SQLAlchemy takes it."""

    sqlite_where: TextClause
    postgresql_where: TextClause


def _where(condition: str) -> _Where:
    """Return the arguments of a partial index."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


projects = Table(
    "projects",
    metadata,
    Column("name", Text, primary_key=True),
    Column("state", Text, nullable=False),  # open | closed | deleted: the row stays, so that no name is used again
    Column("created_by", Text, nullable=False),
    Column("created_at", Float(53), nullable=False),
    Column("closed_at", Float(53)),
)

users = Table(
    "users",
    metadata,
    Column("name", Text, primary_key=True),
    Column("state", Text, nullable=False),  # active | left: the row stays, so that no name is used again
    Column("operator", Integer, nullable=False, server_default="0"),
    Column("operator_by", Text),  # the identity provider whose groups make him one; null: an operator did
    Column("password", Text),  # its hash; null: there is none
    Column("away_since", Float(53)),  # since when an identity provider does not stand for him
    Column("service", Text),  # the project whose service account it is; null: a person
    Column("invitation", Text),  # digest; null: it was used, or there is none
    Column("invited_until", Float(53), nullable=False, server_default="0"),
    Column("created_by", Text, nullable=False),
    Column("created_at", Float(53), nullable=False),
    Column("left_at", Float(53)),
)

members = Table(
    "members",
    metadata,
    Column("member_of", Text, primary_key=True),  # a project
    Column("user", Text, primary_key=True),
    Column("role", Text, nullable=False),
    Column("given_by", Text),  # the identity provider whose groups give the role; null: a maintainer did
    Column("since", Float(53), nullable=False),
    Index("members_user", "user"),
)

# Sign-ins that have begun: what the answer is compared with. Each is taken once.
sign_ins = Table(
    "sign_ins",
    metadata,
    Column("id", Text, primary_key=True),  # the digest of what the browser sends back
    Column("kind", Text, nullable=False),  # see core/store/sign_ins.py
    Column("content", Text, nullable=False),  # JSON
    Column("expires_at", Float(53), nullable=False),
    Index("sign_ins_expires", "expires_at"),
)

passkeys = Table(
    "passkeys",
    metadata,
    Column("id", Text, primary_key=True),  # that of the credential, as base64url
    Column("user", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("public_key", LargeBinary, nullable=False),  # COSE
    Column("sign_count", BigInteger, nullable=False),
    Column("created_at", Float(53), nullable=False),
    Column("used_at", Float(53)),
    Index("passkeys_user", "user"),
)

# Who a person is at an identity provider.
provided_users = Table(
    "provided_users",
    metadata,
    Column("provider", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    Column("user", Text, nullable=False),
    Column("refresh", Text),  # sealed with the secret of the provider's client; null: there is none
    Column("created_at", Float(53), nullable=False),
    Column("read_at", Float(53), nullable=False),  # when the groups were read last
    Index("provided_users_user", "user"),
    Index("provided_users_read", "read_at"),
)

# Browsers that have signed in with a password, by the digest of a cookie.
known_browsers = Table(
    "known_browsers",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("user", Text, nullable=False),
    Column("created_at", Float(53), nullable=False),
    Index("known_browsers_user", "user"),
)

# Sign-ins of programs, which a person approves in a browser (RFC 8628).
device_sign_ins = Table(
    "device_sign_ins",
    metadata,
    Column("id", Text, primary_key=True),  # the digest of the device's code
    Column("code", Text, nullable=False),  # which the person enters
    Column("client", Text, nullable=False),  # what it says of itself
    Column("address", Text, nullable=False),
    Column("state", Text, nullable=False),  # waiting | approved | refused
    Column("user", Text),  # who has answered
    Column("token_id", Text),  # of the token that was fetched
    Column("expires_at", Float(53), nullable=False),
    UniqueConstraint("code"),
    Index("device_sign_ins_expires", "expires_at"),
)

# Tokens, and sessions of browsers, which are tokens that follow from one and are ended with it.
tokens = Table(
    "tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("user", Text, nullable=False),  # whose right it has, at most
    Column("name", Text, nullable=False),
    Column("session_of", Text),  # of a session: the token that it began with; itself, after a sign-in without one
    Column("bound_to", Text),  # a project; null: any of the user's
    Column("role", Text),  # null: the user's
    Column("verbs", Text),  # JSON; null: all of the role
    Column("patterns", Text),  # JSON: of the names of models and datasets; null: all
    Column("created_by", Text, nullable=False),
    Column("created_at", Float(53), nullable=False),
    Column("expires_at", Float(53)),
    Column("revoked_at", Float(53)),
    Column("used_at", Float(53)),
    Column("used_from", Text),
    UniqueConstraint("digest"),
    Index("tokens_user", "user"),
    Index("tokens_bound", "bound_to"),
    Index("tokens_sessions", "session_of"),
)

# Limits: of no project: of all that have none of their own; of no user: of the project as a whole.
quota_limits = Table(
    "quota_limits",
    metadata,
    Column("limited", Text, primary_key=True),
    Column("user", Text, primary_key=True),
    Column("quota", Text, primary_key=True),  # see core/domain/access/quotas.py
    Column("amount", BigInteger, nullable=False),
)

# Limits of what running workers have. An API process of an earlier version knows no such rows.
resource_limits = Table(
    "resource_limits",
    metadata,
    Column("limited", Text, primary_key=True),
    Column("user", Text, primary_key=True),
    Column("resource", Text, primary_key=True),  # as in a placement: cpu in cores, memory in bytes, or a device
    Column("amount", BigInteger, nullable=False),
)

# What projects let others read: a version of a model or a dataset, or all of a name (no version), or a simulation.
shares = Table(
    "shares",
    metadata,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("kind", Text, nullable=False),  # see core/domain/access/shared_kinds.py
    Column("name", Text, nullable=False),  # of a simulation, its id
    Column("version_id", Text, nullable=False),
    Column("shared_with", Text, nullable=False),
    Column("shared_by", Text, nullable=False),
    Column("created_at", Float(53), nullable=False),
    Index("shares_of", "owner", "kind", "name", "version_id", "shared_with", unique=True),
    Index("shares_readers", "shared_with", "kind", "name"),
)

# What a project (of no user), and each user in it, has of what is counted.
quota_use = Table(
    "quota_use",
    metadata,
    Column("charged", Text, primary_key=True),
    Column("user", Text, primary_key=True),
    Column("queued_simulations", BigInteger, nullable=False, server_default="0"),
    Column("tasks", BigInteger, nullable=False, server_default="0"),
    Column("stored_bytes", BigInteger, nullable=False, server_default="0"),
    Column("drift", BigInteger, nullable=False, server_default="0"),  # that a recount has found; -1: none was yet
    Column("reached", Text, nullable=False, server_default=""),  # JSON: quotas that webhooks were told of; empty: none
    postgresql_with={"fillfactor": 50},
)

models = Table(
    "models",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("digest", Text, nullable=False),
    Column("format", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("filename", Text),
    Column("runtime", Text),
    Column("created_at", Float(53), nullable=False),
    Column("dependencies", Text),
    Column("source", Text),  # JSON: the reference that it was imported by, and what that resolved to
    Column("made_by", Text, nullable=False, server_default=""),  # Caller.name
    Column("used_at", Float(53)),  # when the newest simulation with it began that was deleted; null: none was
    UniqueConstraint("project", "name", "version"),
    Index("models_digest", "digest"),
    Index("models_paged", "project", "id"),
)

# What was deleted and may come back for some days.
bin_items = Table(
    "bin_items",
    metadata,
    Column("id", Text, primary_key=True),  # of the thing
    Column("project", Text, nullable=False),
    Column("place", Text, nullable=False),  # grows with time: the order of the list
    Column("kind", Text, nullable=False),  # see core/domain/retention/retention_rules.py
    Column("name", Text, nullable=False),
    Column("version", Integer),  # of a model or a dataset
    Column("digest", Text),  # of a model's content, which is kept for it
    Column("bytes", BigInteger, nullable=False),
    Column("made_by", Text, nullable=False),
    Column("binned_by", Text, nullable=False),  # Caller.name; empty: a rule
    Column("rule", Text),  # in words
    Column("document", Text),  # JSON: the row that comes back; null: it is where it was
    Column("binned_at", Float(53), nullable=False),
    Column("emptied", Integer, nullable=False, server_default="0"),  # whether it goes now, and comes back no more
    Index("bin_items_paged", "project", "place"),
    Index("bin_items_expired", "emptied", "binned_at"),
    Index("bin_items_digest", "digest", **_where("digest IS NOT NULL")),
)

# What a project has decided about what is deleted.
retention = Table(
    "retention",
    metadata,
    Column("project", Text, primary_key=True),
    Column("document", Text, nullable=False),  # JSON, see core/domain/retention/retention_rules.py
)

model_tags = Table(
    "model_tags",
    metadata,
    Column("project", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("tag", Text, primary_key=True),
    Column("version_id", Text, nullable=False),
    Index("model_tags_version", "version_id"),
)

model_locks = Table(
    "model_locks",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("target", Text, primary_key=True),
    Column("lock", Text, nullable=False),
    Column("created_at", Float(53), nullable=False),
)

model_imports = Table(
    "model_imports",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project", Text, nullable=False, server_default="default"),
    Column("simulation_id", Text),  # the simulation that waits for it, if any
    Column("reference", Text, nullable=False),
    Column("connection", Text, nullable=False),  # name in the operator's file; empty for addresses
    Column("options", Text, nullable=False),  # JSON: name, format, runtime, filename, digest
    Column("made_by", Text, nullable=False, server_default=""),
    Column("state", Text, nullable=False),  # fetching | ready | failed
    Column("reason", Text),
    Column("bytes", BigInteger, nullable=False, server_default="0"),
    Column("model_id", Text),
    Column("digest", Text),
    Column("source", Text),  # JSON
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("not_before", Float(53), nullable=False, server_default="0"),
    Column("claim", Text),
    Column("claim_until", Float(53), nullable=False, server_default="0"),
    Column("created_at", Float(53), nullable=False),
    Column("ended_at", Float(53)),
    Index("model_imports_due", "id", **_where("state = 'fetching'")),
    Index("model_imports_simulation", "simulation_id"),
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
    Index("run_logs_waiting", "simulation_id", **_where("state = 'waiting'")),
)

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
    Index("simulations_unsummed", "state", "id", **_where("summary IS NULL")),
    Index("simulations_deleted", "id", **_where("deleted_at IS NOT NULL")),  # of earlier versions
    Index("simulations_purged", "id", **_where("deleted_at IS NOT NULL AND binned = 0")),
    Index("simulations_refused", "id", **_where("state = 'queued' AND outcome IS NOT NULL")),
    Index("simulations_claimed", "id", **_where("claim IS NOT NULL")),
    Index("simulations_changed", "changed_at", "id", **_where("changed_at IS NOT NULL")),
    Index("simulations_retries", "retry_of", "id", **_where("retry_of IS NOT NULL")),
    Index("simulations_listed", *LISTED, **_where(LISTED_ROWS)),  # see core/store/listing.py
    Index("simulations_counted", "project", "state", **_where(LISTED_ROWS)),
    *(Index(f"simulations_{name}", "project", name, "id", "state", **_where(LISTED_ROWS)) for name in FILTERED),
)

# Simulations whose row the dispatcher has to read again. A change of a simulation adds its entry in the same
# transaction; the dispatcher deletes the entries that it has read.
scheduling_changes = Table(
    "scheduling_changes",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("simulation_id", Text, nullable=False),
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
    Index("launches_live", "executor", **_where("state = 'live'")),
    Index("launches_one_live", "simulation_id", unique=True, **_where("state = 'live'")),
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
    Index("usage_intervals_open", "launch_id", unique=True, **_where("open = 1")),
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
        **_where("state <> 'done'"),
    ),
    # No column of these changes with a report or a heartbeat, so that both stay one write to the row alone.
    Index("ranges_leased", "stage_id", **_where("state = 'leased'")),
    Index("ranges_poisoned", "stage_id", **_where("state = 'pending' AND strikes > 0")),
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
    Index("look_requests_waiting", "simulation_id", **_where("taken = 0")),
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

leaders = Table(
    "leaders",
    metadata,
    Column("role", Text, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    Column("until", Float(53), nullable=False),
)

uploads = Table(
    "uploads",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("kind", Text, nullable=False),  # whole | partial | final
    Column("length", BigInteger),  # null while not known
    Column("offset", BigInteger, nullable=False, server_default="0"),  # every byte before it is durable
    Column("metadata", Text, nullable=False, server_default=""),  # as it was sent
    Column("sources", Text),  # of a final upload: its partial uploads, as the client named them
    Column("writer", Text),  # the only request that may advance the offset
    Column("created_at", Float(53), nullable=False),
    Column("expires_at", Float(53), nullable=False),
    Column("held_until", Float(53), nullable=False, server_default="0"),
    Column("caller", Text, nullable=False, server_default=""),  # see common/client_addresses.py
    Index("uploads_expiry", "expires_at"),
    Index("uploads_caller", "caller"),
    Index("uploads_paged", "project", "id"),
    CheckConstraint('length IS NULL OR "offset" <= length'),
)

upload_parts = Table(
    "upload_parts",
    metadata,
    Column("upload_id", Text, primary_key=True),
    Column("start", BigInteger, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    Column("object", Text, nullable=False),
    Index("upload_parts_object", "object"),
)

dataset_versions = Table(
    "dataset_versions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("version", Integer),  # from 1 within the name; null until it is ready
    Column("state", Text, nullable=False),  # registering | ready | failed | same | deleted
    Column("source", Text, nullable=False),  # JSON, normalised: equal sources have equal text
    Column("tags", Text, nullable=False, server_default="[]"),  # JSON: tags that it gets once it is ready
    Column("manifest", Text),  # object key; the sparse index has a key derived from it
    Column("digest", Text),
    Column("files", BigInteger, nullable=False, server_default="0"),
    Column("bytes", BigInteger, nullable=False, server_default="0"),
    Column("stored_bytes", BigInteger, nullable=False, server_default="0"),  # 0: its files stay where they are
    Column("described", Text),  # JSON: content of its dataset.json, if it has one
    Column("same_as", Text),  # the version that has this content already
    Column("made_by", Text, nullable=False, server_default=""),
    Column("progress", Text),  # JSON
    Column("reason", Text),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("claim", Text),
    Column("claim_until", Float(53), nullable=False, server_default="0"),
    Column("created_at", Float(53), nullable=False),
    Column("ended_at", Float(53)),
    Column("used_at", Float(53)),  # as that of a model
    UniqueConstraint("project", "name", "version"),
    Index("dataset_versions_state", "state"),
    Index("dataset_versions_digest", "digest"),
)

dataset_tags = Table(
    "dataset_tags",
    metadata,
    Column("project", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("tag", Text, primary_key=True),
    Column("version_id", Text, nullable=False),
    Index("dataset_tags_version", "version_id"),
)

# A reference is inserted before its object is written, and deleted after it: no object is ever without a reference.
dataset_objects = Table(
    "dataset_objects",
    metadata,
    Column("version_id", Text, primary_key=True),
    Column("object", Text, primary_key=True),
    Index("dataset_objects_object", "object"),
)

dataset_prefetches = Table(
    "dataset_prefetches",
    metadata,
    Column("version_id", Text, primary_key=True),
    Column("state", Text, nullable=False),  # fetching | ready | failed
    Column("progress", Text, nullable=False, server_default="{}"),  # JSON
    Column("claim", Text),
    Column("claim_until", Float(53), nullable=False, server_default="0"),
    Column("asked_at", Float(53), nullable=False),
)

comparisons = Table(
    "comparisons",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("state", Text, nullable=False),  # see core/domain/comparisons/comparison_states.py
    Column("event_seq", Integer, nullable=False, server_default="0"),
    Column("spec", Text, nullable=False),  # JSON: the normalised request, without its models
    Column("dataset", Text, nullable=False),
    Column("dataset_version", Text, nullable=False),
    Column("dataset_digest", Text, nullable=False),
    Column("reference", Integer, nullable=False),  # ordinal of the model that the others are compared with
    Column("scenarios", BigInteger, nullable=False),
    Column("groups", Text),  # JSON: number of scenarios by grouping and group; null until a job has counted them
    Column("labels", Text, nullable=False, server_default="{}"),
    Column("submitted_by", Text, nullable=False, server_default=""),
    Column("reason", Text),
    Column("failures", Integer, nullable=False, server_default="0"),  # of its job, in a row
    Column("not_before", Float(53), nullable=False, server_default="0"),
    Column("claim", Text),
    Column("claim_until", Float(53), nullable=False, server_default="0"),
    Column("created_at", Float(53), nullable=False),
    Column("ended_at", Float(53)),
    Index("comparisons_unended", "id", **_where("state IN ('running', 'cancelling')")),
    Index("comparisons_listed", "project", "dataset", "id"),
    Index("comparisons_paged", "project", "id"),
)

comparison_models = Table(
    "comparison_models",
    metadata,
    Column("comparison_id", Text, primary_key=True),
    Column("ordinal", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("spec", Text, nullable=False),  # JSON: the submission of its simulations
    Column("provenance", Text, nullable=False),  # JSON: everything resolved to digests
    Column("state", Text, nullable=False),
    Column("batch", Integer, nullable=False, server_default="0"),  # the first that its verdict does not have
    Column("running_verdict", Text),  # JSON: state of its tests; null: before the first batch, or the reference
    Column("verdict", Text),  # JSON: as clients see it
    Column("details", Text),  # JSON: groups, scenarios and looks, which lists do not show
    Column("reason", Text),
    Column("created_at", Float(53), nullable=False),
    Column("ended_at", Float(53)),
    Index("comparison_models_digest", "digest"),
)

comparison_simulations = Table(
    "comparison_simulations",
    metadata,
    Column("comparison_id", Text, primary_key=True),
    Column("ordinal", Integer, primary_key=True),
    Column("batch", Integer, primary_key=True),
    Column("simulation_id", Text, nullable=False),
    Index("comparison_simulations_simulation", "simulation_id"),
)

pipelines = Table(
    "pipelines",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("name", Text, nullable=False, server_default=""),
    Column("state", Text, nullable=False),  # see core/domain/pipelines/pipeline_states.py
    Column("event_seq", Integer, nullable=False, server_default="0"),
    Column("labels", Text, nullable=False, server_default="{}"),
    Column("submitted_by", Text, nullable=False, server_default=""),
    Column("reason", Text),
    Column("failures", Integer, nullable=False, server_default="0"),  # of its job, in a row
    Column("not_before", Float(53), nullable=False, server_default="0"),
    Column("claim", Text),
    Column("claim_until", Float(53), nullable=False, server_default="0"),
    Column("created_at", Float(53), nullable=False),
    Column("ended_at", Float(53)),
    Index("pipelines_paged", "project", "id"),
    Index("pipelines_unended", "id", **_where("state IN ('running', 'cancelling')")),
)

pipeline_steps = Table(
    "pipeline_steps",
    metadata,
    Column("pipeline_id", Text, primary_key=True),
    Column("ordinal", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),  # submission | comparison
    Column("document", Text, nullable=False),  # JSON: what it submits, with references to outputs of other steps
    Column("waits_for", Text, nullable=False),  # JSON: ordinals
    Column("retries", Integer, nullable=False, server_default="0"),
    Column("fresh", Integer, nullable=False, server_default="0"),
    Column("state", Text, nullable=False),
    Column("attempt", Integer, nullable=False, server_default="1"),
    Column("run_id", Text),  # its simulation or comparison; if it is skipped, that of an earlier step
    Column("digest", Text),  # of what it submits, resolved to digests; null: not resolved, or nothing equals it
    Column("outputs", Text),  # JSON, as those of its simulation
    Column("reason", Text),
    Column("started_at", Float(53)),
    Column("ended_at", Float(53)),
    Index("pipeline_steps_run", "run_id", **_where("run_id IS NOT NULL")),
    Index("pipeline_steps_digest", "digest", **_where("digest IS NOT NULL")),
)

# Entries are inserted, and deleted when they are too old; see core/store/audit.py.
audit = Table(
    "audit",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("at", Float(53), nullable=False),
    Column("project", Text, nullable=False, server_default=""),  # empty: of the platform
    Column("user", Text, nullable=False, server_default=""),  # empty: not known
    Column("outsider", Integer, nullable=False, server_default="0"),  # an operator who is not a member of the project
    Column("credential", Text, nullable=False, server_default=""),  # id of the token or session
    Column("address", Text, nullable=False, server_default=""),
    Column("act", Text, nullable=False),  # id of the operation
    Column("subject", Text, nullable=False, server_default=""),  # address below /v1
    Column("outcome", Text, nullable=False),  # see core/domain/access/audit.py
    Column("status", Integer),  # of the answer; null: the entry was written before it
    Column("problem", Text),
    Column("times", Integer, nullable=False, server_default="1"),  # number of equal acts
    Column("request", Text, nullable=False, server_default=""),  # joins the entries of a request
    Column("affected", Text, nullable=False, server_default=""),  # JSON: further subjects; empty: none
    Column("entry", Text),  # id that is shown, as `id` counts the acts of all projects; null: of an earlier version
    Index("audit_of_project", "project", "at", "id"),
    Index("audit_of_all", "at", "id"),
    Index("audit_entry", "entry"),
    sqlite_autoincrement=True,
)

# A secret is made of a key of the platform, the webhook's id and a number: no row has one.
webhooks = Table(
    "webhooks",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("description", Text, nullable=False, server_default=""),
    Column("types", Text, nullable=False),  # JSON: types of events that it wants
    Column("labels", Text, nullable=False, server_default="{}"),  # JSON: that simulations and others must have
    Column("state", Text, nullable=False),  # see core/domain/webhooks/delivery_outcomes.py
    Column("reason", Text),
    Column("secret_number", Integer, nullable=False, server_default="1"),
    Column("key_mark", Text, nullable=False),  # tells whether a process has the key with which its secret was made
    Column("former_until", Float(53), nullable=False, server_default="0"),  # until when the secret before signs too
    Column("failures", Integer, nullable=False, server_default="0"),  # in a row
    Column("failing_since", Float(53)),
    Column(
        "overfull", Integer, nullable=False, server_default="0"
    ),  # too much waits: no further events are kept for it
    Column("delivered", BigInteger, nullable=False, server_default="0"),
    Column("failed", BigInteger, nullable=False, server_default="0"),  # attempts
    Column("not_before", Float(53), nullable=False, server_default="0"),
    Column("claim", Text),
    Column("claim_until", Float(53), nullable=False, server_default="0"),
    Column("created_by", Text, nullable=False, server_default=""),
    Column("created_at", Float(53), nullable=False),
    Index("webhooks_of_project", "project", "id"),
)

# A row is inserted in the transaction that makes what it tells of, for each webhook that wants it.
webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("webhook_id", Text, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("data", Text, nullable=False),  # JSON
    Column("state", Text, nullable=False),  # see core/domain/webhooks/delivery_outcomes.py
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("due_at", Float(53), nullable=False),
    Column("status", Integer),  # of the last answer
    Column("error", Text),  # of the last attempt
    Column("excerpt", Text, nullable=False, server_default=""),  # of the last answer
    Column("milliseconds", Integer),  # of the last attempt
    Column("created_at", Float(53), nullable=False),
    Column("ended_at", Float(53)),
    Index("webhook_deliveries_due", "webhook_id", "due_at", **_where("state = 'waiting'")),
    Index("webhook_deliveries_paged", "webhook_id", "id"),
    Index("webhook_deliveries_old", "created_at"),
)
