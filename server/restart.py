"""Restart of processes that end: the pause before a process is started again, which doubles with each early end."""

from common.backoff import RetryPolicy

#: Exit status of a process that cannot start as it is configured: after a restart it would end in the same way.
REFUSED = 2
#: Restarts of a process that ends early, and the uptime in seconds after which an end is no longer early.
RETRY, STABLE_UPTIME = RetryPolicy(first=0.1, longest=15.0), 10.0


def decide_restart(failures: int, *, uptime: float) -> tuple[int, float]:
    """Return the number of ends in succession, this one included, and the pause in seconds that follows.

    ``failures`` counts the ends before this one; an ``uptime`` in seconds above STABLE_UPTIME resets it.
    """
    failures = 1 if uptime > STABLE_UPTIME else failures + 1
    return failures, RETRY.pause(failures)
