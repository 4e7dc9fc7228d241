"""Shares: what projects let others read."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "shares",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("version_id", sa.Text, nullable=False),
        sa.Column("shared_with", sa.Text, nullable=False),
        sa.Column("shared_by", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
    )
    op.create_index("shares_of", "shares", ["owner", "kind", "name", "version_id", "shared_with"], unique=True)
    op.create_index("shares_readers", "shares", ["shared_with", "kind", "name"])
