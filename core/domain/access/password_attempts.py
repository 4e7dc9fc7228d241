"""Password attempts: which wrong passwords are too many, without a way to lock out who knows the right one.

Each user has a bucket for browsers that never signed in as him, and each browser that did has one of its own ("Slow
Down Online Guessing Attacks with Device Cookies", OWASP). Guessers from anywhere share the first; his browsers,
passkeys, identity providers and tokens do not care. Values only, no I/O.
"""

from collections import OrderedDict

#: Wrong passwords that may follow each other at once, and the seconds after which one of them is forgotten.
BURST_ATTEMPTS, FORGET_INTERVAL = 10, 30.0
#: Most buckets; of more, the one that was used longest ago is forgotten.
MOST_BUCKETS = 20_000


class PasswordAttempts:
    """Leaky buckets of attempts, by user and browser. Times in seconds on a monotonic clock."""

    def __init__(self) -> None:
        self._empty_at: OrderedDict[tuple[str, str], float] = OrderedDict()

    def begin(self, user: str, browser: str, now: float) -> float:
        """Count an attempt; return after how many seconds another one is accepted, 0: this one is.

        ``browser``: empty for one that has not signed in as this user.
        """
        empty_at = max(now, self._empty_at.get((user, browser), now))
        wait = empty_at + FORGET_INTERVAL - now - BURST_ATTEMPTS * FORGET_INTERVAL
        if wait > 0:
            return wait
        self._empty_at[user, browser] = empty_at + FORGET_INTERVAL
        self._empty_at.move_to_end((user, browser))
        if len(self._empty_at) > MOST_BUCKETS:
            self._empty_at.popitem(last=False)
        return 0.0

    def succeed(self, user: str, browser: str) -> None:
        """Forget the attempts that ended with the right password."""
        self._empty_at.pop((user, browser), None)
