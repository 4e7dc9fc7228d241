"""Several executors: the executor of each simulation, its bundle, and the health of each executor."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "executors",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("cores", sa.Integer(), nullable=False),
        sa.Column("held", sa.Integer(), server_default="0", nullable=False),
        sa.Column("well", sa.Integer(), server_default="1", nullable=False),
        sa.Column("said", sa.Text(), nullable=True),
        sa.Column("since", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    with op.batch_alter_table("simulations", schema=None) as batch_op:
        batch_op.add_column(sa.Column("executor", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("packed", sa.Text(), nullable=True))
