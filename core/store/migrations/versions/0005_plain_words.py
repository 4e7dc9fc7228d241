"""Columns in plain terms: leases have cursors, fencing tokens and heartbeats; executors have workers and health."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

#: Table, old name, new name. Both databases carry constraints and indexes along.
RENAMED = (
    ("executors", "cores", "workers"),
    ("executors", "held", "in_use"),
    ("executors", "well", "healthy"),
    ("executors", "said", "last_error"),
    ("ranges", "mark", "cursor"),
    ("ranges", "fence", "fencing_token"),
    ("ranges", "driver", "worker"),
    ("ranges", "beat_at", "heartbeat_at"),
    ("ranges", "twins", "speculative"),
    ("ranges", "silences", "expiries"),
    ("simulations", "packed", "bundle"),
)


def upgrade() -> None:
    for table, old, new in RENAMED:
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
