"""Tables of webhooks, and of the events that are sent to them."""

from sqlalchemy import BigInteger, Column, Float, Index, Integer, Table, Text

from core.store.tables.schema import metadata, partial_index

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
    Index("webhook_deliveries_due", "webhook_id", "due_at", **partial_index("state = 'waiting'")),
    Index("webhook_deliveries_paged", "webhook_id", "id"),
    Index("webhook_deliveries_old", "created_at"),
)
