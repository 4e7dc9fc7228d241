"""Password attempts: which wrong passwords are too many, without a way to lock out who knows the right one.

Each user has a bucket for browsers that never signed in as him, and each browser that did has one of its own ("Slow
Down Online Guessing Attacks with Device Cookies", OWASP). Guessers from anywhere share the first; his browsers,
passkeys, identity providers and tokens do not care. Values only, no I/O.
"""

from common.rate_buckets import RateBuckets

#: Wrong passwords that may follow each other at once, and the seconds after which one of them is forgotten.
BURST_ATTEMPTS, FORGET_INTERVAL = 10, 30.0
#: Most buckets; of more, the one that was used longest ago is forgotten.
MOST_BUCKETS = 20_000


class PasswordAttempts:
    """Attempts by user and browser, which is empty for one that has not signed in as this user. Times as of buckets."""

    def __init__(self) -> None:
        self._buckets = RateBuckets(1 / FORGET_INTERVAL, BURST_ATTEMPTS, MOST_BUCKETS)

    def __len__(self) -> int:
        return len(self._buckets)

    def begin(self, user: str, browser: str, now: float) -> float:
        """Count an attempt; return after how many seconds another one is accepted, 0: this one is."""
        return self._buckets.take(f"{user}/{browser}", now)

    def succeed(self, user: str, browser: str) -> None:
        """Forget the attempts that ended with the right password."""
        self._buckets.refill(f"{user}/{browser}")
