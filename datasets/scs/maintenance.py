"""Maintenance: writes uses and counters once a second, renders the metrics page, scrubs for damaged objects."""

import logging
import os
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from datasets.scs import metrics
from datasets.scs.config import Config
from datasets.scs.scrub import acquire_scrub_lock, scrub
from datasets.scs.store import Store

logger = logging.getLogger(__name__)
#: Seconds between two attempts at the scrub lock, and between two rounds of the scrub.
_LOCK_RETRY, _ROUND_PAUSE = 30.0, 60.0


class Maintenance:
    """Background work of one process. The loop calls its methods; ``call`` schedules a function on the loop."""

    def __init__(
        self, config: Config, store: Store, counts: metrics.ProcessMetrics, call: Callable[[Callable[[], None]], None]
    ) -> None:
        self._config, self._store, self._counts, self._call = config, store, counts, call
        self.ready = True
        # one thread: the metrics page is read after the counters before it are written
        self._pool = ThreadPoolExecutor(1, "maintenance")
        self._stopping = threading.Event()
        self._scrubber = threading.Thread(target=self._scrub, name="scrub", daemon=True)

    def start(self) -> None:
        """Start the scrub thread."""
        self._scrubber.start()

    def close(self) -> None:
        """Write what is pending, and stop."""
        self._stopping.set()
        self._scrubber.join()
        self.flush()
        self._pool.shutdown()

    def flush(self) -> None:
        """Write the uses and counters since the last call, in the background."""
        self._pool.submit(self._flush_now, self._store.take_uses(), self._counts.take())

    def collect_metrics(self, connections: int, done: Callable[[bytes | None], None]) -> None:
        """Have the loop call ``done`` with the metrics page, None if the object index cannot be read."""
        self._pool.submit(self._collect_metrics, self._store.take_uses(), self._counts.take(), connections, done)

    def _flush_now(self, used: dict[bytes, float], metric_values: dict[metrics.Key, float]) -> bool:
        try:
            self._store.record(used, metric_values)
            self.ready = True
        except (sqlite3.Error, OSError) as error:
            logger.error("the object index cannot be written: %s", error)
            self.ready = False
            self._call(partial(self._counts.merge, metric_values))
        return self.ready

    def _collect_metrics(
        self,
        used: dict[bytes, float],
        metric_values: dict[metrics.Key, float],
        connections: int,
        done: Callable[[bytes | None], None],
    ) -> None:
        written = self._flush_now(used, metric_values)
        gauges: dict[metrics.Key, float] = {("scs_connections", ""): connections}
        try:
            for name, account in self._store.index.accounts().items():
                gauges["scs_used_bytes", f'bucket="{name}"'] = account.bytes
                gauges["scs_objects", f'bucket="{name}"'] = account.objects
            for bucket in self._config.buckets.values():
                gauges["scs_quota_bytes", f'bucket="{bucket.name}"'] = bucket.quota
            sums = [self._store.index.counters(), gauges, {} if written else metric_values]
        except sqlite3.Error as error:
            logger.error("the object index cannot be read: %s", error)
            self._call(partial(done, None))
        else:
            self._call(partial(done, metrics.exposition(sums)))

    def _scrub(self) -> None:
        """Read all objects repeatedly, in one process per folder, to find flipped bits before a client does."""
        while self._config.scrub and not self._stopping.wait(1.0):
            if (scrub_lock := acquire_scrub_lock(self._store.folder)) is None:
                self._stopping.wait(_LOCK_RETRY)
                continue
            try:
                for intact in scrub(self._store, self._stopping, rate=self._config.scrub, start=os.urandom(16)):
                    labels = f'found="{"sound" if intact else "damaged"}"'
                    self._call(partial(self._counts.add, "scs_scrubbed_total", labels))
            except (sqlite3.Error, OSError) as error:
                logger.error("scrub failed: %s", error)
            finally:
                os.close(scrub_lock)
            self._stopping.wait(_ROUND_PAUSE)
