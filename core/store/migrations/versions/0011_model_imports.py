"""Imports of models by reference, the simulations that wait for one, where a model came from, and results to log."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("models", sa.Column("source", sa.Text))
    op.add_column("simulations", sa.Column("awaits_model", sa.Integer, nullable=False, server_default="0"))
    op.create_table(
        "model_imports",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("simulation_id", sa.Text),
        sa.Column("reference", sa.Text, nullable=False),
        sa.Column("connection", sa.Text, nullable=False),
        sa.Column("options", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("bytes", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("model_id", sa.Text),
        sa.Column("digest", sa.Text),
        sa.Column("source", sa.Text),
        sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
        sa.Column("not_before", sa.Float(53), nullable=False, server_default="0"),
        sa.Column("claim", sa.Text),
        sa.Column("claim_until", sa.Float(53), nullable=False, server_default="0"),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("ended_at", sa.Float(53)),
    )
    fetching = sa.text("state = 'fetching'")
    op.create_index("model_imports_due", "model_imports", ["id"], sqlite_where=fetching, postgresql_where=fetching)
    op.create_index("model_imports_simulation", "model_imports", ["simulation_id"])
    op.create_table(
        "run_logs",
        sa.Column("simulation_id", sa.Text, primary_key=True),
        sa.Column("connection", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
        sa.Column("not_before", sa.Float(53), nullable=False, server_default="0"),
        sa.Column("claim", sa.Text),
        sa.Column("claim_until", sa.Float(53), nullable=False, server_default="0"),
    )
    waiting = sa.text("state = 'waiting'")
    op.create_index("run_logs_waiting", "run_logs", ["simulation_id"], sqlite_where=waiting, postgresql_where=waiting)
