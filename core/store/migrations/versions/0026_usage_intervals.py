"""Usage intervals: what was granted to launches, and for how long."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "usage_intervals",
        sa.Column("launch_id", sa.Text, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("simulation_id", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("labels", sa.Text, nullable=False),
        sa.Column("executor", sa.Text, nullable=False),
        sa.Column("workers", sa.Integer, nullable=False),
        sa.Column("millicores", sa.BigInteger, nullable=False),
        sa.Column("mebibytes", sa.BigInteger, nullable=False),
        sa.Column("gpus", sa.BigInteger, nullable=False),
        sa.Column("until_at", sa.Float(53), nullable=False),
        sa.Column("milliseconds", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("open", sa.Integer, nullable=False, server_default="1"),
        sa.Column("estimated", sa.Integer, nullable=False, server_default="0"),
        sa.Column("lost", sa.Integer, nullable=False, server_default="0"),
    )
    op.create_index("usage_intervals_summed", "usage_intervals", ["project", "until_at"])
    op.create_index("usage_intervals_simulation", "usage_intervals", ["simulation_id"])
    condition = sa.text("open = 1")
    op.create_index(
        "usage_intervals_open",
        "usage_intervals",
        ["launch_id"],
        unique=True,
        sqlite_where=condition,
        postgresql_where=condition,
    )
