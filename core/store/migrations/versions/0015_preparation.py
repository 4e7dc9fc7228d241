"""How far simulations are prepared, and whether launches hold their workers."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("simulations", sa.Column("preparation", sa.Text))
    op.add_column("launches", sa.Column("reservation", sa.Text, nullable=False, server_default="held"))
