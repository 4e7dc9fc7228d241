"""Comparisons of models, and the simulations that play their batches."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "comparisons",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("event_seq", sa.Integer, nullable=False, server_default="0"),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("dataset", sa.Text, nullable=False),
        sa.Column("dataset_version", sa.Text, nullable=False),
        sa.Column("dataset_digest", sa.Text, nullable=False),
        sa.Column("reference", sa.Integer, nullable=False),
        sa.Column("scenarios", sa.BigInteger, nullable=False),
        sa.Column("groups", sa.Text),
        sa.Column("labels", sa.Text, nullable=False, server_default="{}"),
        sa.Column("submitted_by", sa.Text, nullable=False, server_default=""),
        sa.Column("reason", sa.Text),
        sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
        sa.Column("not_before", sa.Float(53), nullable=False, server_default="0"),
        sa.Column("claim", sa.Text),
        sa.Column("claim_until", sa.Float(53), nullable=False, server_default="0"),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("ended_at", sa.Float(53)),
    )
    unended = sa.text("state IN ('running', 'cancelling')")
    op.create_index("comparisons_unended", "comparisons", ["id"], sqlite_where=unended, postgresql_where=unended)
    op.create_index("comparisons_listed", "comparisons", ["dataset", "id"])
    op.create_table(
        "comparison_models",
        sa.Column("comparison_id", sa.Text, primary_key=True),
        sa.Column("ordinal", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("provenance", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("batch", sa.Integer, nullable=False, server_default="0"),
        sa.Column("running_verdict", sa.Text),
        sa.Column("verdict", sa.Text),
        sa.Column("details", sa.Text),
        sa.Column("reason", sa.Text),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("ended_at", sa.Float(53)),
    )
    op.create_index("comparison_models_digest", "comparison_models", ["digest"])
    op.create_table(
        "comparison_simulations",
        sa.Column("comparison_id", sa.Text, primary_key=True),
        sa.Column("ordinal", sa.Integer, primary_key=True),
        sa.Column("batch", sa.Integer, primary_key=True),
        sa.Column("simulation_id", sa.Text, nullable=False),
    )
    op.create_index("comparison_simulations_simulation", "comparison_simulations", ["simulation_id"])
