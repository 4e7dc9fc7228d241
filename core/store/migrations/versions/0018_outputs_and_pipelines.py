"""Outputs of simulations that became models or datasets; pipelines and their steps."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("simulations", sa.Column("outputs", sa.Text))
    op.create_table(
        "pipelines",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False, server_default=""),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("event_seq", sa.Integer, nullable=False, server_default="0"),
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
    op.create_index("pipelines_unended", "pipelines", ["id"], sqlite_where=unended, postgresql_where=unended)
    op.create_table(
        "pipeline_steps",
        sa.Column("pipeline_id", sa.Text, primary_key=True),
        sa.Column("ordinal", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("waits_for", sa.Text, nullable=False),
        sa.Column("retries", sa.Integer, nullable=False, server_default="0"),
        sa.Column("fresh", sa.Integer, nullable=False, server_default="0"),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False, server_default="1"),
        sa.Column("run_id", sa.Text),
        sa.Column("digest", sa.Text),
        sa.Column("outputs", sa.Text),
        sa.Column("reason", sa.Text),
        sa.Column("started_at", sa.Float(53)),
        sa.Column("ended_at", sa.Float(53)),
    )
    for column, name in (("run_id", "pipeline_steps_run"), ("digest", "pipeline_steps_digest")):
        known = sa.text(f"{column} IS NOT NULL")
        op.create_index(name, "pipeline_steps", [column], sqlite_where=known, postgresql_where=known)
