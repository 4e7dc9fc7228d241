"""Managed executor: an executor with its health, back-off and its own thread, so that a slow one delays no other."""

import logging
import random
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout

from common.backoff import RetryPolicy
from core.domain.scheduling.executor_config import ExecutorConfig
from workers.executors.base import Executor, KeepsWarmLaunches

logger = logging.getLogger(__name__)

#: Retries of an executor that does not answer.
RETRY = RetryPolicy(first=0.2, longest=30.0)
#: Seconds for which a pass of the dispatcher waits for an executor before it continues with the next.
PASS_TIMEOUT = 1.0
#: Seconds between two searches for orphans, and between two checks of a complete warm pool.
ORPHAN_INTERVAL = 60.0
#: Seconds until the warm pool is refilled after a launch was taken (which starts up meanwhile) and between attempts to
#: complete it; and the number of such attempts after which the interval doubles each time.
REFILL, QUICK_REFILLS = 1.0, 10
#: Seconds for which an executor that has never answered may be starting; then it is a failure.
STARTUP = 10.0


class ManagedExecutor:
    """An executor with its config. All calls to it are made by one thread, in order.

    ``refill``: seconds until the warm pool is refilled when launches were taken or are missing.
    """

    def __init__(
        self,
        config: ExecutorConfig,
        executor: Executor,
        *,
        refill: float = REFILL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.executor = executor
        self._refill = refill
        self._clock = clock
        self.last_error: str | None = None  # of the last call; None: it succeeded
        self._failing_since: float | None = None
        self._has_answered = self._warned = False
        self._failures = 0
        self._try_at = 0.0
        self._search_at = 0.0
        self._refill_at = 0.0
        self._refills = 0
        self._refusals = 0
        self._refusing_until = 0.0
        self._thread = ThreadPoolExecutor(1, f"executor-{config.name}")
        self._at_work: Future[None] | None = None

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def healthy(self) -> bool:
        """Whether the last call was answered."""
        return self._failing_since is None

    @property
    def accepts_launches(self) -> bool:
        """Whether launches may be submitted: it answers, and has not just refused a launch."""
        return self.healthy and self._clock() >= self._refusing_until

    @property
    def lost(self) -> bool:
        """Whether it has not answered for longer than its ``grace``, so that its launches count as lost."""
        return self._failing_since is not None and self._clock() - self._failing_since > self.config.grace

    @property
    def may_be_called(self) -> bool:
        """Whether its back-off has passed."""
        return self._clock() >= self._try_at

    @property
    def orphan_search_due(self) -> bool:
        """Whether it is time to search it for orphans."""
        return self._clock() >= self._search_at

    def orphans_searched(self) -> None:
        """Schedule the next search for orphans after the interval."""
        self._search_at = self._clock() + ORPHAN_INTERVAL

    def search_orphans_soon(self) -> None:
        """Schedule a search for orphans at the next pass."""
        self._search_at = 0.0

    @property
    def due_warm_pool(self) -> KeepsWarmLaunches | None:
        """Its executor, if it has a warm pool that is due to be refilled; otherwise None."""
        warm = self.executor if isinstance(self.executor, KeepsWarmLaunches) else None
        return warm if self._clock() >= self._refill_at else None

    def refilled(self, complete: bool) -> None:
        """Schedule the next refill: soon while the warm pool is incomplete, with back-off after QUICK_REFILLS tries."""
        self._refills = 0 if complete else self._refills + 1
        pause = self._refill * 2.0 ** max(0, self._refills - QUICK_REFILLS)
        self._refill_at = self._clock() + (ORPHAN_INTERVAL if complete else min(ORPHAN_INTERVAL, pause))

    def refill_soon(self) -> None:
        """Schedule a refill, because a warm launch was taken."""
        self._refills = 0
        self._refill_at = self._clock() + self._refill

    def do(self, work: Callable[[], None]) -> None:
        """Run ``work`` on the executor's thread and wait up to PASS_TIMEOUT; skipped while a previous call runs."""
        if not self.idle:
            return
        self._at_work = self._thread.submit(self._guarded, work)
        try:
            self._at_work.result(PASS_TIMEOUT)
        except FutureTimeout:
            logger.info("executor %s has not answered within %s s; the dispatcher continues", self.name, PASS_TIMEOUT)

    @property
    def idle(self) -> bool:
        """Whether no call is running."""
        return self._at_work is None or self._at_work.done()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            self.failed(error)
        except Exception:
            logger.exception("executor %s: a pass of the dispatcher failed", self.name)

    def answered(self) -> None:
        """Record an answer: healthy, no back-off."""
        if self._warned:
            logger.warning("executor %s answers again", self.name)
        if self._failing_since is not None:
            self.search_orphans_soon()  # launches given up in the meantime may still run there
            self.last_error = None
        self._has_answered, self._warned = True, False
        self._failing_since, self._failures, self._try_at = None, 0, 0.0

    def failed(self, error: OSError) -> None:
        """Record an unanswered call: retry with exponential back-off."""
        if self._failing_since is None:
            self._failing_since = self._clock()
        starts = not self._has_answered and self._clock() - self._failing_since < STARTUP
        if not self._warned and not starts:
            logger.warning("executor %s does not answer: %s", self.name, error)
            self._warned = True
        self.last_error = str(error)[:500] or type(error).__name__
        self._failures += 1
        self._try_at = self._clock() + RETRY.pause(self._failures) * random.uniform(0.5, 1.0)

    def launch_accepted(self) -> None:
        """Record an accepted launch."""
        self._refusals, self._refusing_until = 0, 0.0
        self.last_error = None

    def launch_refused(self, error: Exception) -> None:
        """Record a launch that it could not take though it answers (e.g. a webhook is down): pause submissions."""
        logger.warning("executor %s refused a launch; submissions pause: %s", self.name, error)
        self.last_error = str(error)[:500] or type(error).__name__
        self._refusals += 1
        self._refusing_until = self._clock() + RETRY.pause(self._refusals + 1)
        self.search_orphans_soon()  # the launch may exist in spite of the error

    def close(self) -> None:
        """Let its thread end after the current call."""
        self._thread.shutdown(wait=False, cancel_futures=True)
