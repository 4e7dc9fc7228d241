"""Token guesses: for how long the check of a caller's token is delayed, after wrong ones; values only, no I/O.

A delay of wrong tokens alone would not slow a guesser down, who takes an answer that does not come at once for "wrong"
and goes on. So the check itself waits, whatever its outcome, unless the caller has had the right token before.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeVar

from core.domain.access.credentials import PREFIX, SESSION_PREFIX, digest_of, is_well_formed

K = TypeVar("K")
V = TypeVar("V")
#: Wrong tokens of a caller that are answered at once, and seconds after which one of them is forgotten.
BURST, INTERVAL = 10, 1.0
#: Longest delay in seconds, so that guesses of others at the same address lock a user out for no longer.
LONGEST = 10.0
#: Most checks of a caller that wait. With LONGEST it bounds its guesses: two a second, however many it sends at once.
MOST_WAITING = 20
#: Most callers that are remembered, of those with wrong tokens and of those with the right one; and most right tokens.
MOST_CALLERS = 10_000


@dataclass(slots=True)
class _Bucket:
    """When a caller's wrong tokens are forgotten, and the last of them, which tells nothing when it is sent again."""

    empty_at: float
    last: bytes | None = None


class TokenGuesses:
    """A leaky bucket of wrong tokens for each client address, the addresses that had a right one, and the right ones.

    Times in seconds on a monotonic clock.
    """

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._known: OrderedDict[str, None] = OrderedDict()
        self._proven: OrderedDict[str, None] = OrderedDict()

    def is_proven(self, caller: str, token: bytes) -> bool:
        """Return whether a token was right before, so that it need not wait behind the wrong ones of its address.

        A token that an operator has chosen might be guessed: only an address that has had a right one proves it.
        """
        if digest_of(token) not in self._proven:
            return False
        text = token.decode(errors="replace")
        return caller in self._known or is_well_formed(text, PREFIX) or is_well_formed(text, SESSION_PREFIX)

    def is_guessing(self, caller: str, token: bytes, now: float) -> bool:
        """Return whether a caller has sent so many wrong tokens that another one, which is not known yet, waits."""
        bucket = self._buckets.get(caller)
        return bucket is not None and token != bucket.last and bucket.empty_at - now > (BURST - 1) * INTERVAL

    def delay(self, caller: str, token: bytes, now: float, *, right: bool) -> float:
        """Return the seconds for which the check of a token is delayed; a wrong one makes the next wait longer."""
        bucket = self._buckets.get(caller) or _Bucket(now)
        if (right and (caller in self._known or self.is_proven(caller, token))) or (not right and token == bucket.last):
            return 0.0
        bucket.empty_at = max(now, bucket.empty_at)
        if not right:
            bucket.empty_at = min(bucket.empty_at + INTERVAL, now + BURST * INTERVAL + LONGEST)
            _remember(self._buckets, caller, bucket)
        return min(LONGEST, max(0.0, bucket.empty_at - now - BURST * INTERVAL))

    def checked(self, caller: str, token: bytes, *, right: bool) -> None:
        """Take note of the outcome of a check that has waited."""
        if right:
            _remember(self._known, caller, None)
            _remember(self._proven, digest_of(token), None)
            return
        self._proven.pop(digest_of(token), None)
        if (bucket := self._buckets.get(caller)) is not None:
            bucket.last = token


def _remember(known: OrderedDict[K, V], key: K, value: V) -> None:
    """Set what is known of a caller or a token; of more than MOST_CALLERS, the one set longest ago is forgotten."""
    known[key] = value
    known.move_to_end(key)
    if len(known) > MOST_CALLERS:
        known.popitem(last=False)
