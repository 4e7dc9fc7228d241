"""Reasons of deaths: who settles a poisoned range is not always who saw its worker die."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("ranges", sa.Column("death", sa.Text))
