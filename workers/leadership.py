"""Leadership: of the dispatchers on one PostgreSQL one acts at a time; its term is renewed while a pass lasts."""

import logging
import threading

from core.store import leaders
from core.store.database import Database

logger = logging.getLogger(__name__)

#: Seconds after which the leader row of a dispatcher that does not renew it may be taken over.
TERM = 10.0


class Leadership:
    """A dispatcher's part in the election. A thread renews the term: a pass may last longer than a term.

    A dispatcher that hangs is killed by its supervisor, as it shows no sign of life, and its term ends then.
    """

    def __init__(self, database: Database, holder: str, *, term: float = TERM) -> None:
        self._database = database
        self._holder = holder
        self._term = term
        self._leads = False
        self._over = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name="leadership", daemon=True)

    def __enter__(self) -> "Leadership":
        self._renewing.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._renewing.join()

    def take(self) -> int | None:
        """Acquire or renew the leadership; return its epoch, or None while another dispatcher leads."""
        database = self._database
        epoch = database.write(
            lambda c: leaders.take(c, "dispatch", self._holder, self._term, database.now(c)), durable=False
        )
        self._leads = epoch is not None
        return epoch

    def _renew(self) -> None:
        while not self._over.wait(self._term / 3):
            try:
                if self._leads:
                    self.take()
            except Exception as error:
                logger.warning("the leadership was not renewed; next attempt in %.1f s: %s", self._term / 3, error)
