"""Tables of registered datasets, and of the uploads that they are made from."""

from sqlalchemy import BigInteger, CheckConstraint, Column, Float, Index, Integer, Table, Text, UniqueConstraint

from core.store.tables.schema import metadata

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
