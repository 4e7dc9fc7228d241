"""Tables of who may do what: projects, users, sign-ins, tokens, limits, shares, and the audit log."""

from sqlalchemy import BigInteger, Column, Float, Index, Integer, LargeBinary, Table, Text, UniqueConstraint

from core.store.tables.schema import metadata

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
