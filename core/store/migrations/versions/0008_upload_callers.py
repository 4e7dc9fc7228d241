"""Uploads record their caller, for the limit of unfinished uploads per caller."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("uploads", sa.Column("caller", sa.Text(), server_default="", nullable=False))
    op.create_index("uploads_caller", "uploads", ["caller"], unique=False)


def downgrade() -> None:
    op.drop_index("uploads_caller", table_name="uploads")
    op.drop_column("uploads", "caller")
