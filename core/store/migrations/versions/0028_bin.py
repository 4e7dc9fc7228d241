"""Bin: what was deleted and may come back; the rules of retention of projects; when a model was used last."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

_DIGEST = sa.text("digest IS NOT NULL")
_PURGED = sa.text("deleted_at IS NOT NULL AND binned = 0")


def upgrade() -> None:
    op.create_table(
        "bin_items",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("place", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("version", sa.Integer),
        sa.Column("digest", sa.Text),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("made_by", sa.Text, nullable=False),
        sa.Column("binned_by", sa.Text, nullable=False),
        sa.Column("rule", sa.Text),
        sa.Column("document", sa.Text),
        sa.Column("binned_at", sa.Float(53), nullable=False),
        sa.Column("emptied", sa.Integer, nullable=False, server_default="0"),
    )
    op.create_index("bin_items_paged", "bin_items", ["project", "place"])
    op.create_index("bin_items_expired", "bin_items", ["emptied", "binned_at"])
    op.create_index("bin_items_digest", "bin_items", ["digest"], sqlite_where=_DIGEST, postgresql_where=_DIGEST)
    op.create_table(
        "retention",
        sa.Column("project", sa.Text, primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.add_column("simulations", sa.Column("binned", sa.Integer, nullable=False, server_default="0"))
    op.create_index("simulations_purged", "simulations", ["id"], sqlite_where=_PURGED, postgresql_where=_PURGED)
    op.add_column("models", sa.Column("used_at", sa.Float(53)))
    op.add_column("dataset_versions", sa.Column("used_at", sa.Float(53)))
