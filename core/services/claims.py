"""Claims: a job holds a renewable claim on its simulation in SQL, so that a job enqueued twice runs once."""

import logging
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from core.domain.scheduling.states import State
from core.store import simulations
from core.store.database import Database

logger = logging.getLogger(__name__)

#: Seconds after which the claim of a killed job expires; a running job renews it every third of that.
TERM = 9.0


@contextmanager
def claimed(database: Database, id: str, state: State, *, term: float = TERM) -> Iterator[bool]:
    """Claim a simulation in a state while the block runs; yields False if another job has it or its state changed."""
    holder = secrets.token_hex(8)

    def take() -> bool:
        return database.write(lambda c: simulations.claim(c, id, state, holder, term, database.now(c)))

    with renewed_claim(take, f"simulation {id}", term=term) as acquired:
        yield acquired


@contextmanager
def renewed_claim(take: Callable[[], bool], what: str, *, term: float = TERM) -> Iterator[bool]:
    """Renew a claim that ``take`` acquires for ``term`` seconds while the block runs; yields False if it fails."""
    if not take():
        yield False
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
        yield True
    finally:
        done.set()
        renewing.join()
