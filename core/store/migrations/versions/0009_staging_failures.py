"""Attempts to stage that failed in a row because a store or the package index did not answer."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("simulations", sa.Column("staging_failures", sa.Integer, nullable=False, server_default="0"))
