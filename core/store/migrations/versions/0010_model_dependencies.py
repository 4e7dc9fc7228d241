"""Dependencies that models declare, and the locks that were resolved from them."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("models", sa.Column("dependencies", sa.Text))
    op.create_table(
        "model_locks",
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("target", sa.Text, primary_key=True),
        sa.Column("lock", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
    )
