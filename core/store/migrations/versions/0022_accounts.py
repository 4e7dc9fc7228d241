"""Accounts: projects, users, members and tokens, and who has made a model, a dataset or an import."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "projects",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("closed_at", sa.Float(53)),
    )
    op.create_table(
        "users",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("operator", sa.Integer, nullable=False, server_default="0"),
        sa.Column("service", sa.Text),
        sa.Column("invitation", sa.Text),
        sa.Column("invited_until", sa.Float(53), nullable=False, server_default="0"),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("left_at", sa.Float(53)),
    )
    op.create_table(
        "members",
        sa.Column("member_of", sa.Text, primary_key=True),
        sa.Column("user", sa.Text, primary_key=True),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("since", sa.Float(53), nullable=False),
    )
    op.create_index("members_user", "members", ["user"])
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("digest", sa.Text, nullable=False, unique=True),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("session_of", sa.Text),
        sa.Column("bound_to", sa.Text),
        sa.Column("role", sa.Text),
        sa.Column("verbs", sa.Text),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("expires_at", sa.Float(53)),
        sa.Column("revoked_at", sa.Float(53)),
        sa.Column("used_at", sa.Float(53)),
        sa.Column("used_from", sa.Text),
    )
    op.create_index("tokens_user", "tokens", ["user"])
    op.create_index("tokens_bound", "tokens", ["bound_to"])
    op.create_index("tokens_sessions", "tokens", ["session_of"])
    # All that is there belongs to `default`.
    op.execute(
        "INSERT INTO projects (name, state, created_by, created_at) SELECT 'default', 'open', 'operator',"
        " coalesce((SELECT min(created_at) FROM simulations), 0)"
    )
    for table in ("models", "model_imports", "dataset_versions"):
        op.add_column(table, sa.Column("made_by", sa.Text, nullable=False, server_default=""))
