"""Webhooks: addresses that are told of events, and what is delivered to them."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False, server_default=""),
        sa.Column("types", sa.Text, nullable=False),
        sa.Column("labels", sa.Text, nullable=False, server_default="{}"),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("secret_number", sa.Integer, nullable=False, server_default="1"),
        sa.Column("key_mark", sa.Text, nullable=False),
        sa.Column("former_until", sa.Float(53), nullable=False, server_default="0"),
        sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
        sa.Column("failing_since", sa.Float(53)),
        sa.Column("overfull", sa.Integer, nullable=False, server_default="0"),
        sa.Column("delivered", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("failed", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("not_before", sa.Float(53), nullable=False, server_default="0"),
        sa.Column("claim", sa.Text),
        sa.Column("claim_until", sa.Float(53), nullable=False, server_default="0"),
        sa.Column("created_by", sa.Text, nullable=False, server_default=""),
        sa.Column("created_at", sa.Float(53), nullable=False),
    )
    op.create_index("webhooks_of_project", "webhooks", ["project", "id"])
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("webhook_id", sa.Text, nullable=False),
        sa.Column("event_id", sa.Text, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("due_at", sa.Float(53), nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("error", sa.Text),
        sa.Column("excerpt", sa.Text, nullable=False, server_default=""),
        sa.Column("milliseconds", sa.Integer),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("ended_at", sa.Float(53)),
    )
    waiting = sa.text("state = 'waiting'")
    op.create_index(
        "webhook_deliveries_due",
        "webhook_deliveries",
        ["webhook_id", "due_at"],
        sqlite_where=waiting,
        postgresql_where=waiting,
    )
    op.create_index("webhook_deliveries_paged", "webhook_deliveries", ["webhook_id", "id"])
    op.create_index("webhook_deliveries_old", "webhook_deliveries", ["created_at"])
    op.add_column("quota_use", sa.Column("reached", sa.Text, nullable=False, server_default=""))
