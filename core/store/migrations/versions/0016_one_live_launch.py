"""A simulation has one live launch: of two, which a leader that was stopped could leave, the newest stays."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "UPDATE launches SET state='over' WHERE state='live' AND EXISTS(SELECT 1 FROM launches later"
        " WHERE later.simulation_id=launches.simulation_id AND later.state='live'"
        " AND (later.created_at>launches.created_at"
        " OR (later.created_at=launches.created_at AND later.id>launches.id)))"
    )
    live = sa.text("state = 'live'")
    op.create_index(
        "launches_one_live", "launches", ["simulation_id"], unique=True, sqlite_where=live, postgresql_where=live
    )
