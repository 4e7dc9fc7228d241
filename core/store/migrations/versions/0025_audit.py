"""Audit: who did what to what, from where, with which token, and how it ended."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("at", sa.Float(53), nullable=False),
        sa.Column("project", sa.Text, nullable=False, server_default=""),
        sa.Column("user", sa.Text, nullable=False, server_default=""),
        sa.Column("outsider", sa.Integer, nullable=False, server_default="0"),
        sa.Column("credential", sa.Text, nullable=False, server_default=""),
        sa.Column("address", sa.Text, nullable=False, server_default=""),
        sa.Column("act", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False, server_default=""),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("problem", sa.Text),
        sa.Column("times", sa.Integer, nullable=False, server_default="1"),
        sa.Column("request", sa.Text, nullable=False, server_default=""),
        sa.Column("affected", sa.Text, nullable=False, server_default=""),
        sqlite_autoincrement=True,
    )
    op.create_index("audit_of_project", "audit", ["project", "at", "id"])
    op.create_index("audit_of_all", "audit", ["at", "id"])
