"""The outcome of a simulation is decided before its summary is made; its final state is written with the summary."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("simulations", sa.Column("outcome", sa.Text))
    condition = sa.text("state = 'queued' AND outcome IS NOT NULL")
    op.create_index("simulations_refused", "simulations", ["id"], sqlite_where=condition, postgresql_where=condition)
