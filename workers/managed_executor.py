"""One executor at work: its health, its back-off, and a thread of its own, so that a slow place holds up no other."""

import logging
import random
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Later

from core.domain.executor_config import ExecutorConfig
from workers.executors.base import Executor, Warm

logger = logging.getLogger(__name__)

#: Seconds between two tries of a place that does not answer; doubled up to the second.
SHORTEST, LONGEST = 0.2, 30.0
#: Seconds for which a pass waits for one place before it goes on to the next.
PATIENCE = 1.0
#: Seconds between two searches for what nobody knows of, and two looks at what waits there, all of which does.
COMBING = 60.0
#: Seconds until what was taken of that is replaced, for whoever took it begins now; and between looks after what
#: lacks, so many of them; then twice as long each time.
LATER, EAGER = 1.0, 10


class ManagedExecutor:
    """An executor with its config. Everything that is asked of it is asked by one thread, in order.

    ``refill``: seconds until warm launches are looked after again when some were taken or are missing.
    """

    def __init__(
        self,
        config: ExecutorConfig,
        executor: Executor,
        *,
        refill: float = LATER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.executor = executor
        self._refill = refill
        self._clock = clock
        self.last_error: str | None = None  # why it does not answer
        self._failing_since: float | None = None
        self._failures = 0
        self._try_at = 0.0
        self._comb_at = 0.0
        self._keep_at = 0.0
        self._looks = 0
        self._refusals = 0
        self._shut_until = 0.0
        self._thread = ThreadPoolExecutor(1, f"site-{config.name}")
        self._at_work: Future[None] | None = None

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def healthy(self) -> bool:
        """Whether it answered when last asked."""
        return self._failing_since is None

    @property
    def takes(self) -> bool:
        """Whether it may be given launches: it answers, and has not just failed to take one."""
        return self.healthy and self._clock() >= self._shut_until

    @property
    def lost(self) -> bool:
        """Whether it has not answered for so long that its launches count as lost."""
        return self._failing_since is not None and self._clock() - self._failing_since > self.config.grace

    @property
    def may_be_asked(self) -> bool:
        """Whether its back-off is over."""
        return self._clock() >= self._try_at

    @property
    def due_for_combing(self) -> bool:
        """Whether it is time to look for what nobody knows of."""
        return self._clock() >= self._comb_at

    def combed(self) -> None:
        """It has been searched."""
        self._comb_at = self._clock() + COMBING

    def comb_soon(self) -> None:
        """Something may have been left behind there."""
        self._comb_at = 0.0

    @property
    def keeping(self) -> Warm | None:
        """Its executor, if it keeps launches waiting and it is time to look after them."""
        warm = self.executor if isinstance(self.executor, Warm) else None
        return warm if self._clock() >= self._keep_at else None

    def kept(self, whole: bool) -> None:
        """What waits was looked after: while not all of it is there the next time soon, and in the end rarely."""
        self._looks = 0 if whole else self._looks + 1
        pause = self._refill * 2.0 ** max(0, self._looks - EAGER)
        self._keep_at = self._clock() + (COMBING if whole else min(COMBING, pause))

    def keep_soon(self) -> None:
        """Somebody took what waited."""
        self._looks = 0
        self._keep_at = self._clock() + self._refill

    def do(self, work: Callable[[], None]) -> None:
        """Do something there, unless it is busy: then the next pass will. Wait for it, but not long."""
        if self._at_work is not None and not self._at_work.done():
            return
        self._at_work = self._thread.submit(self._guarded, work)
        try:
            self._at_work.result(PATIENCE)
        except Later:
            logger.info("%s is slow", self.name)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            self.failed(error)
        except Exception:
            logger.exception("%s: a pass failed", self.name)

    def answered(self) -> None:
        """It has answered."""
        if self._failing_since is not None:
            logger.warning("%s answers again", self.name)
            self.comb_soon()  # what was given up in the meantime may still run there
            self.last_error = None
        self._failing_since, self._failures, self._try_at = None, 0, 0.0

    def failed(self, error: OSError) -> None:
        """It has not answered: it is asked again later, and later each time."""
        if self._failing_since is None:
            self._failing_since = self._clock()
            logger.warning("%s does not answer: %s", self.name, error)
        self.last_error = str(error)[:500] or type(error).__name__
        pause = min(LONGEST, SHORTEST * 2.0**self._failures)
        self._failures += 1
        self._try_at = self._clock() + pause * random.uniform(0.5, 1.0)

    def took(self) -> None:
        """It has taken a launch."""
        self._refusals, self._shut_until = 0, 0.0
        self.last_error = None

    def refused(self, error: OSError) -> None:
        """It answers, but could not take a launch, as when one of a cluster's webhooks is away: none for a while."""
        logger.warning("%s takes no launch: %s", self.name, error)
        self.last_error = str(error)[:500] or type(error).__name__
        self._refusals += 1
        self._shut_until = self._clock() + min(LONGEST, SHORTEST * 2.0**self._refusals)
        self.comb_soon()  # it may have taken it all the same

    def close(self) -> None:
        """End its thread once it is done."""
        self._thread.shutdown(wait=False, cancel_futures=True)
