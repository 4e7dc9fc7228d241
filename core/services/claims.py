"""Claimed jobs: a job works on a row under a renewable claim in SQL, so that a job enqueued twice runs once.

A job's table says what follows an error. An error that no row names is a defect: the queue of jobs retries it.
"""

import logging
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from common.backoff import RetryPolicy
from common.full_disks import is_disk_full
from core.domain.scheduling.states import State
from core.store import simulations
from core.store.claims import HeldClaim
from core.store.database import Connection, Database

logger = logging.getLogger(__name__)

#: Seconds after which the claim of a killed job expires; a running job renews it every third of that.
TERM = 9.0
#: Takes or renews a claim for so many seconds from a time on.
Take = Callable[[Connection, HeldClaim, float, float], bool]
#: Errors of Python itself, and of files that were taken to be there: of code, not of what it works on.
DEFECTS = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, NameError, RuntimeError, TypeError, ValueError),
    *(FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError),
)
_AT_ONCE = RetryPolicy(first=0.0, longest=0.0)


class ClaimLost(Exception):
    """Another job has the claim, or nothing waits for the work any more; the attempt ends without a trace."""


class DiskFull(Exception):
    """A disk is full; stands in tables for the errors of the system and of SQLite that say so."""


class Action(Enum):
    """Consequence of an error."""

    WAIT = "wait"  # the next attempt follows after a pause, without end: an outage
    RETRY = "retry"  # the next attempt follows after a pause, until attempts or patience are exhausted
    FAIL = "fail"  # it ends


@dataclass(frozen=True, slots=True)
class OnError:
    """A row of a table: what follows these errors, and the reason, with the field ``error``."""

    errors: tuple[type[Exception], ...]
    action: Action
    reason: str = "{error}"


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedAttempt:
    """Consequence of a failed attempt: ``pause`` seconds to the next. ``exhausted``: none follows any more."""

    action: Action
    reason: str
    pause: float
    exhausted: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimedJob:
    """A kind of job: how it claims a row, what the log calls the row, and its table of outcomes.

    The first row of ``outcomes`` that matches an error decides. The order matters: some errors are base classes.
    """

    take: Take
    what: str
    outcomes: tuple[OnError, ...] = ()
    retry: RetryPolicy = _AT_ONCE

    @contextmanager
    def claimed(self, database: Database, id: str, *, term: float = TERM) -> Iterator[HeldClaim | None]:
        """Claim a row while the block runs, and renew the claim; yields None if another job has it or it needs none."""
        claim, what = HeldClaim(id, secrets.token_hex(8)), self.what.format(id=id)

        def take() -> bool:
            return database.write(lambda c: self.take(c, claim, term, database.now(c)), durable=False)

        if not take():
            yield None
            return
        done = threading.Event()

        def renew() -> None:
            while not done.wait(term / 3):
                try:
                    if not take():
                        return  # lost: the state changed or the claim expired; the final state change detects that
                except Exception:
                    logger.exception("the claim on %s was not renewed; next attempt in %s s", what, term / 3)

        renewing = threading.Thread(target=renew, name="claim", daemon=True)
        renewing.start()
        try:
            yield claim
        except ClaimLost:
            logger.info("the job on %s ends: its claim is lost, or nothing waits for it any more", what)
        finally:
            done.set()
            renewing.join()

    def run(self, database: Database, id: str, work: Callable[[HeldClaim], None]) -> None:
        """Work on a row, unless another job does or it needs none."""
        with self.claimed(database, id) as claim:
            if claim is not None:
                work(claim)

    def failure_of(
        self, error: Exception, *, failures: int = 0, exhausted: bool = False, **fields: object
    ) -> FailedAttempt:
        """Return what follows an error after ``failures`` others; raise the error again if no row names it.

        ``exhausted``: what may be retried has been, for as often or as long as it may. ``fields``: of reasons.
        """
        kind = DiskFull if is_disk_full(error) else type(error)
        row = next((row for row in self.outcomes if issubclass(kind, row.errors)), None)
        if row is None:
            raise error
        exhausted = exhausted and row.action is Action.RETRY
        return FailedAttempt(
            action=Action.FAIL if exhausted else row.action,
            reason=row.reason.format(error=getattr(error, "detail", error), **fields),
            pause=self.retry.pause(failures + 1),
            exhausted=exhausted,
        )


@contextmanager
def claimed(database: Database, id: str, state: State, *, term: float = TERM) -> Iterator[bool]:
    """Claim a simulation in a state while the block runs; yields False if another job has it or its state changed."""

    def take(c: Connection, claim: HeldClaim, seconds: float, now: float) -> bool:
        return simulations.claim(c, claim.id, state, claim.who, seconds, now)

    with ClaimedJob(take=take, what="simulation {id}").claimed(database, id, term=term) as claim:
        yield claim is not None
