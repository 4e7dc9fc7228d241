"""Claims: a job takes a simulation for as long as it lives, so that a notifier that rang twice does its work once."""

import logging
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from core.domain.states import State
from core.store import simulations
from core.store.database import Database

logger = logging.getLogger(__name__)

#: Seconds after which the claim of a job that was killed is free again; a living one renews it in time.
TERM = 9.0


@contextmanager
def claimed(database: Database, id: str, state: State, *, term: float = TERM) -> Iterator[bool]:
    """Hold a simulation in a state while the block runs; False if somebody else holds it, or it has moved on."""
    who = secrets.token_hex(8)

    def take() -> bool:
        return database.write(lambda c: simulations.claim(c, id, state, who, term, database.now(c)))

    with held(take, f"simulation {id}", term=term) as ours:
        yield ours


@contextmanager
def held(take: Callable[[], bool], what: str, *, term: float = TERM) -> Iterator[bool]:
    """Hold whatever ``take`` takes for ``term`` seconds while the block runs; False if it cannot be had."""
    if not take():
        yield False
        return
    done = threading.Event()

    def renew() -> None:
        while not done.wait(term / 3):
            try:
                if not take():
                    return  # it has moved on, or we were away for too long: the move itself will tell
            except Exception:
                logger.exception("the claim on %s was not renewed; next try in %s s", what, term / 3)

    renewing = threading.Thread(target=renew, name="claim", daemon=True)
    renewing.start()
    try:
        yield True
    finally:
        done.set()
        renewing.join()
