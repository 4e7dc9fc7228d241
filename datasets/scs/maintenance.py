"""What is done beside serving: writing down uses and counts each second, the page of metrics, the search for damage."""

import logging
import os
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from datasets.scs import metrics
from datasets.scs.config import Config
from datasets.scs.store import Store, scrubbing

logger = logging.getLogger(__name__)
#: Seconds between two looks at whether another process still scrubs, and between two rounds of one's own.
_LOOK, _PAUSE = 30.0, 60.0


class Keeper:
    """One process's. `note`, `page` and `close` are called by the loop; ``call`` has the loop do something."""

    def __init__(
        self, config: Config, store: Store, counts: metrics.Counts, call: Callable[[Callable[[], None]], None]
    ) -> None:
        self._config, self._store, self._counts, self._call = config, store, counts, call
        self.ready = True
        # one thread: what was counted is read in the order it was written
        self._pool = ThreadPoolExecutor(1, "keep")
        self._stopping = threading.Event()
        self._scrubber = threading.Thread(target=self._scrub, name="scrub", daemon=True)

    def start(self) -> None:
        """Begin to look for damage."""
        self._scrubber.start()

    def close(self) -> None:
        """Write down the last."""
        self._stopping.set()
        self._scrubber.join()
        self.note()
        self._pool.shutdown()

    def note(self) -> None:
        """Write down what was used and counted since the last time."""
        self._pool.submit(self._write_down, self._store.taken(), self._counts.take())

    def page(self, connections: int, done: Callable[[bytes | None], None]) -> None:
        """Have the loop call ``done`` with the page of metrics, None if it cannot be had."""
        self._pool.submit(self._gather, self._store.taken(), self._counts.take(), connections, done)

    def _write_down(self, used: dict[bytes, float], counted: dict[metrics.Key, float]) -> bool:
        try:
            self._store.note(used, counted)
            self.ready = True
        except (sqlite3.Error, OSError) as error:
            logger.error("the ledger cannot be written: %s", error)
            self.ready = False
            self._call(partial(self._counts.merge, counted))
        return self.ready

    def _gather(
        self,
        used: dict[bytes, float],
        counted: dict[metrics.Key, float],
        connections: int,
        done: Callable[[bytes | None], None],
    ) -> None:
        written = self._write_down(used, counted)
        gauges: dict[metrics.Key, float] = {("scs_connections", ""): connections}
        try:
            for name, account in self._store.ledger.accounts().items():
                gauges["scs_used_bytes", f'bucket="{name}"'] = account.bytes
                gauges["scs_objects", f'bucket="{name}"'] = account.objects
            for bucket in self._config.buckets.values():
                gauges["scs_quota_bytes", f'bucket="{bucket.name}"'] = bucket.quota
            sums = [self._store.ledger.counters(), gauges, {} if written else counted]
        except sqlite3.Error as error:
            logger.error("the ledger cannot be read: %s", error)
            self._call(partial(done, None))
        else:
            self._call(partial(done, metrics.text(sums)))

    def _scrub(self) -> None:
        """Read all objects over and over, in one process of all, to find flipped bits before a client does."""
        while self._config.scrub and not self._stopping.wait(1.0):
            if (held := scrubbing(self._store.folder)) is None:
                self._stopping.wait(_LOOK)
                continue
            try:
                for sound in self._store.verify(self._stopping, rate=self._config.scrub, start=os.urandom(16)):
                    labels = f'found="{"sound" if sound else "damaged"}"'
                    self._call(partial(self._counts.add, "scs_scrubbed_total", labels))
            except (sqlite3.Error, OSError) as error:
                logger.error("the scrub broke off: %s", error)
            finally:
                os.close(held)
            self._stopping.wait(_PAUSE)
