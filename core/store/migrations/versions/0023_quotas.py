"""Quotas: limits of projects and users, and what they have of what is counted."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

_STORED = (
    "UPDATE simulations SET stored_bytes=(SELECT coalesce(sum(size), 0) FROM ("
    ' SELECT max(g."offset"+g.bytes) AS size FROM segments g JOIN stages t ON t.id=g.stage_id'
    " WHERE t.simulation_id=simulations.id GROUP BY g.object"
    ' UNION ALL SELECT max("offset"+bytes) FROM artifacts WHERE simulation_id=simulations.id GROUP BY object'
    " UNION ALL SELECT bytes FROM logs WHERE simulation_id=simulations.id) AS extents)"
    " WHERE ended_at IS NOT NULL AND deleted_at IS NULL"
)
#: Versions whose source names no bucket and no manifest, in which files may be located.
_BROUGHT = "source NOT LIKE '%\"s3\"%' AND source NOT LIKE '%\"manifest\"%'"


def upgrade() -> None:
    op.create_table(
        "quota_limits",
        sa.Column("limited", sa.Text, primary_key=True),
        sa.Column("user", sa.Text, primary_key=True),
        sa.Column("quota", sa.Text, primary_key=True),
        sa.Column("amount", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "quota_use",
        sa.Column("charged", sa.Text, primary_key=True),
        sa.Column("user", sa.Text, primary_key=True),
        sa.Column("queued_simulations", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("tasks", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("stored_bytes", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("drift", sa.BigInteger, nullable=False, server_default="0"),
        postgresql_with={"fillfactor": 50},
    )
    op.add_column("simulations", sa.Column("stored_bytes", sa.BigInteger, nullable=False, server_default="0"))
    op.execute(_STORED)
    op.add_column("dataset_versions", sa.Column("stored_bytes", sa.BigInteger, nullable=False, server_default="0"))
    op.execute("UPDATE dataset_versions SET stored_bytes=bytes WHERE state='ready' AND " + _BROUGHT)
    # The first recount, which a job does soon after the start, finds these projects.
    op.execute("INSERT INTO quota_use (charged, \"user\", drift) SELECT name, '', -1 FROM projects")
