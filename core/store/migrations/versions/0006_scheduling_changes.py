"""The dispatcher's queries cost what changed: a log of changed simulations, and indexes of what is at work."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

#: Name, table, columns, condition of the partial indexes.
INDEXES = (
    ("simulations_unsummed", "simulations", ["state", "id"], "summary IS NULL"),
    ("simulations_deleted", "simulations", ["id"], "deleted_at IS NOT NULL"),
    ("simulations_claimed", "simulations", ["id"], "claim IS NOT NULL"),
    ("launches_live", "launches", ["executor"], "state = 'live'"),
    ("ranges_leased", "ranges", ["stage_id"], "state = 'leased'"),
    ("ranges_poisoned", "ranges", ["stage_id"], "state = 'pending' AND strikes > 0"),
)


def upgrade() -> None:
    op.create_table(
        "scheduling_changes",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("simulation_id", sa.Text, nullable=False),
    )
    op.create_index("idempotency_expiry", "idempotency", ["expires_at"])
    for name, table, columns, condition in INDEXES:
        op.create_index(name, table, columns, sqlite_where=sa.text(condition), postgresql_where=sa.text(condition))
