"""Range fetch: a coalesced range being downloaded, and whether to retry, finish or fail when a request for it ends."""

import logging

from common.backoff import RetryPolicy
from common.errors import Corrupt, OriginFailed
from datasets.download.partial_tree import CorruptDownload, ExcessBytes, RangeWriter
from datasets.download.range_coalescing import CoalescedRange
from datasets.objectstore.s3_reader import ObjectLocation, ReadError, RetryLimits

logger = logging.getLogger(__name__)

#: Bytes of progress that reset the failure count: an unreliable network must not end a long download.
PROGRESS_BYTES = 1 << 20
#: Longest Retry-After in seconds that is honoured; an origin that asks for more counts as unavailable.
LONGEST_WAIT = 60.0


def pause(failures: int, retry_limits: RetryLimits, jitter: float) -> float:
    """Return the exponential back-off in seconds after so many failures in a row; ``jitter`` in [0, 1)."""
    return RetryPolicy(first=retry_limits.first, longest=retry_limits.longest).pause(failures) * (0.5 + jitter / 2)


class RangeFetch:
    """The download of one range from one location, over as many requests as it takes. The caller sends the requests."""

    def __init__(
        self, range: CoalescedRange, location: ObjectLocation | str, writer: RangeWriter, retry_limits: RetryLimits
    ) -> None:
        self.range = range
        self.location = location
        self.writer = writer
        self._retry_limits = retry_limits
        self._failures = self._mismatches = 0
        self._last_position = writer.position

    @property
    def done(self) -> bool:
        """Whether every file of the range is written and verified."""
        return self.writer.done

    def request_ended(self, error: Exception | None, jitter: float) -> float:
        """Handle the end of a request, and return the seconds to wait before the next request if the range is not done.

        Raise errors that a retry does not fix, and OriginFailed or Corrupt when the retry limits are exhausted.
        """
        reason, wait = "it sent fewer bytes than requested", 0.0
        match error:
            case None:
                pass
            case CorruptDownload():
                self._mismatches += 1
                reason = "its bytes do not match the registered digest"
                self.writer.restart()
            case ExcessBytes():
                reason = "it sent more bytes than requested"
            case ReadError():
                reason, wait = str(error), error.wait
            case _:
                raise error
        if self.done:
            return 0.0
        progressed = self.writer.position - self._last_position >= PROGRESS_BYTES
        self._failures = 1 if progressed else self._failures + 1
        self._last_position = self.writer.position
        if self._mismatches >= self._retry_limits.mismatches:
            raise Corrupt(f"{self.location}: {reason} ({self._mismatches} attempts). The bytes were not used.")
        if self._failures >= self._retry_limits.tries or wait > LONGEST_WAIT:
            raise OriginFailed(f"{self.location}: {reason}; given up after {self._failures} tries.")
        logger.info("download: %s: %s; retrying", self.location, reason)
        return max(wait, pause(self._failures, self._retry_limits, jitter))
