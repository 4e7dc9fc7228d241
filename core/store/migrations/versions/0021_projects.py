"""Projects: imports and idempotency keys belong to one, and lists are read by project."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

LISTED = ("project", "state", "id", "dataset", "dataset_version", "runtime", "model", "submitted_by", "search")
ROWS = "deleted_at IS NULL AND dry_run = 0"
FILTERED = ("dataset", "dataset_digest", "runtime", "model", "digest", "submitted_by")
#: Tables whose lists have no filter that has an index.
PAGED = ("models", "uploads", "comparisons", "pipelines")


def _project() -> sa.Column[str]:
    """Return the new column; processes of the version before this one may run beside it, and insert rows without."""
    return sa.Column("project", sa.Text, nullable=False, server_default="default")


def upgrade() -> None:
    op.add_column("model_imports", _project())
    _add_project_to_keys()
    where = sa.text(ROWS)
    indexes = {"listed": LISTED, "counted": ("project", "state")}
    indexes |= {name: ("project", name, "id", "state") for name in FILTERED}
    for name, columns in indexes.items():
        op.drop_index(f"simulations_{name}", "simulations")
        op.create_index(f"simulations_{name}", "simulations", columns, sqlite_where=where, postgresql_where=where)
    op.drop_index("comparisons_listed", "comparisons")
    op.create_index("comparisons_listed", "comparisons", ["project", "dataset", "id"])
    for table in PAGED:
        op.create_index(f"{table}_paged", table, ["project", "id"])


def _add_project_to_keys() -> None:
    """Make the project a part of the primary key: PostgreSQL changes it in place, SQLite has to write it anew."""
    if op.get_bind().dialect.name == "postgresql":
        op.add_column("idempotency", _project())
        op.drop_constraint("idempotency_pkey", "idempotency")
        op.create_primary_key("idempotency_pkey", "idempotency", ["project", "principal", "key"])
        return
    op.drop_index("idempotency_expiry", "idempotency")
    op.rename_table("idempotency", "former_idempotency")
    op.create_table(
        "idempotency",
        sa.Column("project", sa.Text, primary_key=True, server_default="default"),
        sa.Column("principal", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("simulation_id", sa.Text),
        sa.Column("expires_at", sa.Float(53), nullable=False),
    )
    op.create_index("idempotency_expiry", "idempotency", ["expires_at"])
    columns = "principal, key, digest, simulation_id, expires_at"
    op.execute(f"INSERT INTO idempotency ({columns}) SELECT {columns} FROM former_idempotency")
    op.drop_table("former_idempotency")
