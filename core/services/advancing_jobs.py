"""Jobs that advance a row to its end: one attempt, what follows an error, and when the next is possible.

Each step of an attempt is one transaction that checks the states before it, so that the job may be killed between any
two and another attempt goes on.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic

from common.backoff import RetryPolicy
from common.errors import Conflict, QuotaExceeded, StoreUnavailable, UnreadableRow
from core.domain.access.scopes import PLATFORM
from core.services.access.submitters import SubmitterAway
from core.services.claims import Action, ClaimedJob, OnError
from core.store.advanced_rows import AdvancedRows, R
from core.store.claims import HeldClaim
from core.store.database import Database

logger = logging.getLogger(__name__)

#: What may pass without anybody's mistake.
_PASSING_ERRORS = (QuotaExceeded, StoreUnavailable, SubmitterAway)
_OUTCOMES = (
    OnError((StoreUnavailable, SubmitterAway), Action.WAIT, "waits: {error}"),
    OnError((QuotaExceeded,), Action.WAIT, "waits for its quota: {error}"),
    # A mistake of this platform: the row goes on once it is mended.
    OnError((Exception,), Action.WAIT, "cannot go on: an internal error, which the log of jobs has"),
)


@dataclass(frozen=True)
class AdvancingJob(Generic[R]):
    """The job on the rows of a table."""

    rows: AdvancedRows[R]

    @cached_property
    def claimed(self) -> ClaimedJob:
        """How the job claims a row, and its table of outcomes."""
        return ClaimedJob(
            take=self.rows.claims.take,
            what=f"{self.rows.what} {{id}}",
            outcomes=_OUTCOMES,
            retry=RetryPolicy(first=2.0, longest=60.0),
        )

    def run(
        self, database: Database, id: str, advance: Callable[[str], float], end_unreadable: Callable[[str, str], None]
    ) -> None:
        """Take every step of a row that is possible now, unless another job does.

        ``advance`` takes them, and returns the seconds after which the next is possible at the earliest; 0: once the
        row is ready. ``end_unreadable`` ends a row with a document that cannot be read, with that reason, so that it
        can be deleted.
        """
        self.claimed.run(database, id, lambda claim: self._attempt(database, claim, advance, end_unreadable))

    def _attempt(
        self,
        database: Database,
        claim: HeldClaim,
        advance: Callable[[str], float],
        end_unreadable: Callable[[str, str], None],
    ) -> None:
        id, what = claim.id, self.rows.what
        wait, failures, reason = 0.0, 0, None
        try:
            wait = advance(id)
        except Conflict as error:  # it was cancelled at this moment: the next attempt sees that
            logger.info("%s %s: %s", what, id, error.detail)
        except self.rows.unknown:
            return
        except UnreadableRow as error:
            end_unreadable(id, error.detail or "")
        except Exception as error:
            with database.read() as c:
                before = self.rows.find(c, PLATFORM, id).failures
            failure = self.claimed.failure_of(error, failures=before)
            wait, failures, reason = failure.pause, before + 1, failure.reason
            log = logger.warning if isinstance(error, _PASSING_ERRORS) else logger.exception
            log("%s %s goes on in %.0f s: %s", what, id, wait, error)
        database.write(
            lambda c: self.rows.pause(c, claim, database.now(c), wait=wait, failures=failures, reason=reason)
        )
