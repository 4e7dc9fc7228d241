"""Resumable uploads."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "uploads",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("length", sa.BigInteger(), nullable=True),
        sa.Column("offset", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("metadata", sa.Text(), server_default="", nullable=False),
        sa.Column("sources", sa.Text(), nullable=True),
        sa.Column("writer", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("expires_at", sa.Float(precision=53), nullable=False),
        sa.Column("held_until", sa.Float(precision=53), server_default="0", nullable=False),
        sa.CheckConstraint('length IS NULL OR "offset" <= length'),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("uploads", schema=None) as batch_op:
        batch_op.create_index("uploads_expiry", ["expires_at"], unique=False)

    op.create_table(
        "upload_parts",
        sa.Column("upload_id", sa.Text(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("object", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("upload_id", "start"),
    )
    with op.batch_alter_table("upload_parts", schema=None) as batch_op:
        batch_op.create_index("upload_parts_object", ["object"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("upload_parts", schema=None) as batch_op:
        batch_op.drop_index("upload_parts_object")

    op.drop_table("upload_parts")
    with op.batch_alter_table("uploads", schema=None) as batch_op:
        batch_op.drop_index("uploads_expiry")

    op.drop_table("uploads")
