"""Sign-in by passwords, passkeys, identity providers and devices."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("users", sa.Column("operator_by", sa.Text))
    op.add_column("users", sa.Column("password", sa.Text))
    op.add_column("users", sa.Column("away_since", sa.Float(53)))
    op.add_column("members", sa.Column("given_by", sa.Text))
    op.create_table(
        "sign_ins",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("expires_at", sa.Float(53), nullable=False),
    )
    op.create_index("sign_ins_expires", "sign_ins", ["expires_at"])
    op.create_table(
        "passkeys",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("public_key", sa.LargeBinary, nullable=False),
        sa.Column("sign_count", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("used_at", sa.Float(53)),
    )
    op.create_index("passkeys_user", "passkeys", ["user"])
    op.create_table(
        "provided_users",
        sa.Column("provider", sa.Text, primary_key=True),
        sa.Column("subject", sa.Text, primary_key=True),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("refresh", sa.Text),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("read_at", sa.Float(53), nullable=False),
    )
    op.create_index("provided_users_user", "provided_users", ["user"])
    op.create_index("provided_users_read", "provided_users", ["read_at"])
    op.create_table(
        "known_browsers",
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
    )
    op.create_index("known_browsers_user", "known_browsers", ["user"])
    op.create_table(
        "device_sign_ins",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("code", sa.Text, nullable=False),
        sa.Column("client", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("user", sa.Text),
        sa.Column("token_id", sa.Text),
        sa.Column("expires_at", sa.Float(53), nullable=False),
        sa.UniqueConstraint("code"),
    )
    op.create_index("device_sign_ins_expires", "device_sign_ins", ["expires_at"])
