"""Ids of audit entries that do not count: numbers told a project how much all others do."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Null in what processes of an earlier version have written, and write until they end.
    op.add_column("audit", sa.Column("entry", sa.Text))
    op.create_index("audit_entry", "audit", ["entry"])
