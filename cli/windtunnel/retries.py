"""Retry policy of the client: whether and when a request is sent again; a pure decision.

A request that the platform may have served already is sent again only if it is repeatable: a GET, HEAD, PUT or DELETE,
or a POST under an idempotency key.
"""

import random

#: Statuses of a platform, or of a proxy before it, that is not able to serve for the moment.
TEMPORARY = frozenset({502, 503, 504})
#: Refusals before any work was done: too many requests of a kind. They may be repeated whatever the request.
NOT_SERVED = frozenset({429, 503})
REPEATABLE_METHODS = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS"})
#: Seconds of the longest pause between two attempts.
LONGEST_PAUSE = 10.0


def pause(
    attempt: int, *, elapsed: float, patience: float, retry_after: float | None = None, jitter: float | None = None
) -> float | None:
    """Return the seconds until the next attempt, or None if the request is given up.

    ``attempt`` counts from 1; ``elapsed`` and ``patience`` are seconds since the first attempt, and their limit;
    ``retry_after`` is the platform's header in seconds. Exponential back-off with full jitter above half.
    """
    share = random.random() if jitter is None else jitter
    delay = min(0.25 * 2 ** (attempt - 1), LONGEST_PAUSE) * (0.5 + share / 2)
    if retry_after is not None:
        delay = max(delay, retry_after)
    return delay if elapsed + delay <= patience else None


def after_status(status: int, *, repeatable: bool) -> bool:
    """Return whether a request that was answered with this status may be sent again."""
    return status in NOT_SERVED or (repeatable and status in TEMPORARY)


def seconds_of(header: str | None) -> float | None:
    """Return the seconds of a `Retry-After` header; None without it, or if it is a date."""
    try:
        return max(0.0, float(header)) if header else None
    except ValueError:
        return None
