"""Job usage: how long background jobs have worked, for the project and the user of what they worked on."""

import logging
from datetime import UTC, datetime

from common.errors import StoreUnavailable
from common.ids import new_id
from core.store import usage_intervals
from core.store.database import Database

logger = logging.getLogger(__name__)


class JobUsage:
    """Service of the usage of background jobs: one write for each attempt, after its end."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, kind: str, id: str, seconds: float) -> None:
        """Record an attempt of a kind of job on a row; a database that does not answer now has none of it."""
        attempt, milliseconds = f"{kind}-{new_id(datetime.now(UTC))}", round(seconds * 1000)
        try:
            self._database.write(
                lambda c: usage_intervals.record_job(c, attempt, id, milliseconds, self._database.now(c)), durable=False
            )
        except StoreUnavailable as error:
            logger.warning("%.1f s of the job %s of %s are not counted: %s", seconds, kind, id, error.detail)
