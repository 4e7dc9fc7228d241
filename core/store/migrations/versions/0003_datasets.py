"""Registered datasets."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "dataset_versions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("tags", sa.Text(), server_default="[]", nullable=False),
        sa.Column("manifest", sa.Text(), nullable=True),
        sa.Column("digest", sa.Text(), nullable=True),
        sa.Column("files", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("described", sa.Text(), nullable=True),
        sa.Column("same_as", sa.Text(), nullable=True),
        sa.Column("progress", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("claim", sa.Text(), nullable=True),
        sa.Column("claim_until", sa.Float(precision=53), server_default="0", nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("project", "name", "version"),
    )
    with op.batch_alter_table("dataset_versions", schema=None) as batch_op:
        batch_op.create_index("dataset_versions_state", ["state"], unique=False)
        batch_op.create_index("dataset_versions_digest", ["digest"], unique=False)

    op.create_table(
        "dataset_tags",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.Column("version_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("project", "name", "tag"),
    )
    with op.batch_alter_table("dataset_tags", schema=None) as batch_op:
        batch_op.create_index("dataset_tags_version", ["version_id"], unique=False)

    op.create_table(
        "dataset_objects",
        sa.Column("version_id", sa.Text(), nullable=False),
        sa.Column("object", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("version_id", "object"),
    )
    with op.batch_alter_table("dataset_objects", schema=None) as batch_op:
        batch_op.create_index("dataset_objects_object", ["object"], unique=False)

    op.create_table(
        "dataset_prefetches",
        sa.Column("version_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("progress", sa.Text(), server_default="{}", nullable=False),
        sa.Column("claim", sa.Text(), nullable=True),
        sa.Column("claim_until", sa.Float(precision=53), server_default="0", nullable=False),
        sa.Column("asked_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("version_id"),
    )


def downgrade() -> None:
    op.drop_table("dataset_prefetches")
    with op.batch_alter_table("dataset_objects", schema=None) as batch_op:
        batch_op.drop_index("dataset_objects_object")

    op.drop_table("dataset_objects")
    with op.batch_alter_table("dataset_tags", schema=None) as batch_op:
        batch_op.drop_index("dataset_tags_version")

    op.drop_table("dataset_tags")
    with op.batch_alter_table("dataset_versions", schema=None) as batch_op:
        batch_op.drop_index("dataset_versions_digest")
        batch_op.drop_index("dataset_versions_state")

    op.drop_table("dataset_versions")
