"""Tables of models, their tags, locks and imports, and of what a project deletes."""

from sqlalchemy import BigInteger, Column, Float, Index, Integer, Table, Text, UniqueConstraint

from core.store.tables.schema import metadata, partial_index

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
    Index("model_imports_due", "id", **partial_index("state = 'fetching'")),
    Index("model_imports_simulation", "simulation_id"),
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
    Index("bin_items_digest", "digest", **partial_index("digest IS NOT NULL")),
)

# What a project has decided about what is deleted.
retention = Table(
    "retention",
    metadata,
    Column("project", Text, primary_key=True),
    Column("document", Text, nullable=False),  # JSON, see core/domain/retention/retention_rules.py
)
