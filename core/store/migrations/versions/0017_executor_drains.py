"""Executors that are drained: they finish what runs, and are given no simulations."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "executor_drains",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.Column("drained_by", sa.Text, nullable=False, server_default=""),
        sa.Column("since", sa.Float(53), nullable=False),
    )
