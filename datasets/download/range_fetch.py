"""Errands: stretches that are being fetched, and what becomes of each when a request for it ends."""

import logging

from datasets.download.partial_tree import Mismatch, Pouring, TooLong
from datasets.download.range_coalescing import Stretch
from datasets.objectstore.s3_reader import Patience, Place, Trouble
from errors import Corrupt, OriginFailed

logger = logging.getLogger(__name__)

#: Bytes that, once they came, make up for the failures before them: a bad line must not end a long download.
AMENDS = 1 << 20
#: Seconds an origin may ask us to wait; who asks for more is not there.
LONGEST_WAIT = 60.0


def pause(failures: int, patience: Patience, chance: float) -> float:
    """Return how long to wait after so many failures in a row; ``chance`` in [0, 1) spreads who failed at once."""
    return min(patience.longest, patience.first * 2.0 ** (failures - 1)) * (0.5 + chance / 2)


class Errand:
    """A stretch on its way from a place, however many requests that takes. Whoever runs it asks, waits, asks again."""

    def __init__(self, stretch: Stretch, place: Place | str, pouring: Pouring, patience: Patience) -> None:
        self.stretch = stretch
        self.place = place
        self.pouring = pouring
        self._patience = patience
        self._failures = self._mismatches = 0
        self._before = pouring.position

    @property
    def done(self) -> bool:
        """Whether every file is there."""
        return self.pouring.done

    def ended(self, problem: Exception | None, chance: float) -> float:
        """Take what a request ended with, and return for how long to wait before the next, if it is not done.

        Raise what asking again does not change, and what has happened too often.
        """
        words, wait = "it gave less than was asked for", 0.0
        match problem:
            case None:
                pass
            case Mismatch():
                self._mismatches += 1
                words = "its bytes are not those that were registered"
                self.pouring.restart()
            case TooLong():
                words = "it gave more than was asked for"
            case Trouble():
                words, wait = str(problem), problem.wait
            case _:
                raise problem
        if self.done:
            return 0.0
        self._failures = 1 if self.pouring.position - self._before >= AMENDS else self._failures + 1
        self._before = self.pouring.position
        if self._mismatches >= self._patience.mismatches:
            raise Corrupt(f"{self.place}: {words}, {self._mismatches} times over. They were not used.")
        if self._failures >= self._patience.tries or wait > LONGEST_WAIT:
            raise OriginFailed(f"{self.place}: {words}; given up after {self._failures} tries.")
        logger.info("%s: %s; trying again", self.place, words)
        return max(wait, pause(self._failures, self._patience, chance))
