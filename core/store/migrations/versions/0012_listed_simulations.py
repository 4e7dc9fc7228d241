"""Lists of simulations: indexes of filters and of changes, a text to search, and the caller who submitted each."""

import json

import sqlalchemy as sa
from alembic import op

from core.domain.submissions.listing import search_text

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

#: Rows per step, which holds their provenance in memory.
STEP = 1000
LISTED = ("state", "id", "dataset", "dataset_version", "runtime", "model", "submitted_by", "search")
ROWS = "deleted_at IS NULL AND dry_run = 0"
#: Columns with an index of their own.
FILTERED = ("dataset", "dataset_digest", "runtime", "model", "digest", "submitted_by")

_PAGE = sa.text(
    "SELECT id, dataset, runtime, model, labels, provenance FROM simulations WHERE id > :after ORDER BY id LIMIT :step"
)
_FILL = sa.text("UPDATE simulations SET dataset_version=:version, dataset_digest=:digest, search=:search WHERE id=:id")


def upgrade() -> None:
    for name in ("dataset_version", "dataset_digest", "submitted_by", "search"):
        op.add_column("simulations", sa.Column(name, sa.Text, nullable=False, server_default=""))
    op.add_column("simulations", sa.Column("changed_at", sa.Float(53)))
    op.add_column("simulations", sa.Column("headline", sa.Text))
    connection = op.get_bind()
    after = ""
    while rows := connection.execute(_PAGE, {"after": after, "step": STEP}).all():
        connection.execute(_FILL, [_filled(row) for row in rows])
        after = rows[-1].id
    where = sa.text(ROWS)
    indexes = {"listed": LISTED, "counted": ("state",)} | {name: (name, "id", "state") for name in FILTERED}
    for name, columns in indexes.items():
        op.create_index(f"simulations_{name}", "simulations", columns, sqlite_where=where, postgresql_where=where)
    for name, column in (("changed", "changed_at"), ("retries", "retry_of")):
        present = sa.text(f"{column} IS NOT NULL")
        op.create_index(
            f"simulations_{name}", "simulations", [column, "id"], sqlite_where=present, postgresql_where=present
        )


def _filled(row: sa.Row[tuple[str, str, str, str, str, str]]) -> dict[str, str]:
    """Return the new columns of a row."""
    dataset = json.loads(row.provenance).get("dataset") or {}
    return {
        "id": row.id,
        "version": str(dataset.get("version") or ""),
        "digest": dataset.get("digest") or "",
        "search": search_text(row.model, row.dataset, row.runtime, json.loads(row.labels)),
    }
