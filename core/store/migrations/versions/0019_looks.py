"""Looks into tasks that run: those that wait for an answer, who has looked at what, and connections to ports."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "look_requests",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("simulation_id", sa.Text, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("taken", sa.Integer, nullable=False, server_default="0"),
        sa.Column("answer", sa.Text),
        sa.Column("data", sa.LargeBinary),
    )
    waiting = sa.text("taken = 0")
    op.create_index(
        "look_requests_waiting", "look_requests", ["simulation_id"], sqlite_where=waiting, postgresql_where=waiting
    )
    op.create_table(
        "looks",
        sa.Column("simulation_id", sa.Text, primary_key=True),
        sa.Column("task", sa.BigInteger, primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("path", sa.Text, primary_key=True),
        sa.Column("looked_by", sa.Text, primary_key=True),
        sa.Column("times", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("first_at", sa.Float(53), nullable=False),
        sa.Column("last_at", sa.Float(53), nullable=False),
    )
    op.create_table(
        "tunnels",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("simulation_id", sa.Text, nullable=False),
        sa.Column("task", sa.BigInteger, nullable=False),
        sa.Column("port", sa.Text, nullable=False),
        sa.Column("opened_by", sa.Text, nullable=False),
        sa.Column("asked_at", sa.Float(53), nullable=False),
    )
    op.create_index("tunnels_simulation", "tunnels", ["simulation_id"])
    op.create_table(
        "tunnel_pieces",
        sa.Column("tunnel_id", sa.Text, primary_key=True),
        sa.Column("side", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
