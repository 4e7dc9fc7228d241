"""Limits of resources that run, and what a token is limited to by names of models and datasets."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Apart from `quota_limits`: an API process of an earlier version reads only quotas that it knows.
    op.create_table(
        "resource_limits",
        sa.Column("limited", sa.Text, primary_key=True),
        sa.Column("user", sa.Text, primary_key=True),
        sa.Column("resource", sa.Text, primary_key=True),
        sa.Column("amount", sa.BigInteger, nullable=False),
    )
    op.add_column("tokens", sa.Column("patterns", sa.Text))
