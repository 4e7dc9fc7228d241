"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "artifacts",
        sa.Column("simulation_id", sa.Text(), nullable=False),
        sa.Column("task", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("object", sa.Text(), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("crc32", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("simulation_id", "task", "name"),
    )
    with op.batch_alter_table("artifacts", schema=None) as batch_op:
        batch_op.create_index("artifacts_object", ["object"], unique=False)

    op.create_table(
        "events",
        sa.Column("simulation_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("simulation_id", "seq"),
    )
    op.create_table(
        "idempotency",
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("simulation_id", sa.Text(), nullable=True),
        sa.Column("expires_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("principal", "key"),
    )
    op.create_table(
        "launches",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("simulation_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("executor", sa.Text(), nullable=False),
        sa.Column("token_hash", sa.Text(), nullable=False),
        sa.Column("resources", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("seen_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("launches", schema=None) as batch_op:
        batch_op.create_index("launches_simulation", ["simulation_id"], unique=False)

    op.create_table(
        "leaders",
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("until", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("role"),
    )
    op.create_table(
        "logs",
        sa.Column("simulation_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("object", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("simulation_id", "seq"),
    )
    op.create_table(
        "models",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("filename", sa.Text(), nullable=True),
        sa.Column("runtime", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("project", "name", "version"),
    )
    with op.batch_alter_table("models", schema=None) as batch_op:
        batch_op.create_index("models_digest", ["digest"], unique=False)

    op.create_table(
        "ranges",
        sa.Column("stage_id", sa.Text(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("stop", sa.BigInteger(), nullable=False),
        sa.Column("mark", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("fence", sa.Text(), nullable=True),
        sa.Column("launch_id", sa.Text(), nullable=True),
        sa.Column("driver", sa.Text(), nullable=True),
        sa.Column("ttl", sa.Float(precision=53), nullable=True),
        sa.Column("beat_at", sa.Float(precision=53), nullable=True),
        sa.Column("moved_at", sa.Float(precision=53), nullable=True),
        sa.Column("rate", sa.Float(precision=53), nullable=True),
        sa.Column("task", sa.BigInteger(), server_default="-1", nullable=False),
        sa.Column("cuts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("twins", sa.Integer(), server_default="0", nullable=False),
        sa.Column("careful", sa.BigInteger(), server_default="-1", nullable=False),
        sa.Column("strikes", sa.Integer(), server_default="0", nullable=False),
        sa.Column("silences", sa.Integer(), server_default="0", nullable=False),
        sa.CheckConstraint("start <= mark AND mark <= stop"),
        sa.PrimaryKeyConstraint("stage_id", "start"),
        postgresql_with={"fillfactor": 70},
    )
    with op.batch_alter_table("ranges", schema=None) as batch_op:
        batch_op.create_index(
            "ranges_open",
            ["stage_id", "state", "start"],
            unique=False,
            sqlite_where=sa.text("state <> 'done'"),
            postgresql_where=sa.text("state <> 'done'"),
        )

    op.create_table(
        "segments",
        sa.Column("stage_id", sa.Text(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("stop", sa.BigInteger(), nullable=False),
        sa.Column("arrival", sa.BigInteger(), nullable=True),
        sa.Column("object", sa.Text(), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("crc32", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.BigInteger(), nullable=False),
        sa.Column("sketch", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("stage_id", "start"),
        sa.UniqueConstraint("stage_id", "arrival"),
    )
    with op.batch_alter_table("segments", schema=None) as batch_op:
        batch_op.create_index("segments_object", ["object"], unique=False)

    op.create_table(
        "simulations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="1", nullable=False),
        sa.Column("event_seq", sa.Integer(), server_default="0", nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("provenance", sa.Text(), nullable=False),
        sa.Column("dataset", sa.Text(), nullable=False),
        sa.Column("runtime", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("labels", sa.Text(), server_default="{}", nullable=False),
        sa.Column("summary", sa.Text(), nullable=True),
        sa.Column("progress", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("retry_of", sa.Text(), nullable=True),
        sa.Column("dry_run", sa.Integer(), server_default="0", nullable=False),
        sa.Column("claim", sa.Text(), nullable=True),
        sa.Column("claim_until", sa.Float(precision=53), server_default="0", nullable=False),
        sa.Column("not_before", sa.Float(precision=53), server_default="0", nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("started_at", sa.Float(precision=53), nullable=True),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.Column("deleted_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("simulations", schema=None) as batch_op:
        batch_op.create_index("simulations_state", ["state", "id"], unique=False)

    op.create_table(
        "stages",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("simulation_id", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.Column("next", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("prev", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("align", sa.Integer(), server_default="1", nullable=False),
        sa.Column("arrivals", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.CheckConstraint("next <= total"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("simulation_id", "ordinal"),
    )


def downgrade() -> None:
    op.drop_table("stages")
    with op.batch_alter_table("simulations", schema=None) as batch_op:
        batch_op.drop_index("simulations_state")

    op.drop_table("simulations")
    with op.batch_alter_table("segments", schema=None) as batch_op:
        batch_op.drop_index("segments_object")

    op.drop_table("segments")
    with op.batch_alter_table("ranges", schema=None) as batch_op:
        batch_op.drop_index(
            "ranges_open", sqlite_where=sa.text("state <> 'done'"), postgresql_where=sa.text("state <> 'done'")
        )

    op.drop_table("ranges")
    with op.batch_alter_table("models", schema=None) as batch_op:
        batch_op.drop_index("models_digest")

    op.drop_table("models")
    op.drop_table("logs")
    op.drop_table("leaders")
    with op.batch_alter_table("launches", schema=None) as batch_op:
        batch_op.drop_index("launches_simulation")

    op.drop_table("launches")
    op.drop_table("idempotency")
    op.drop_table("events")
    with op.batch_alter_table("artifacts", schema=None) as batch_op:
        batch_op.drop_index("artifacts_object")

    op.drop_table("artifacts")
