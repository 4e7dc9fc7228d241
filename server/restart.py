"""Restart of processes that end: the pause before a process is started again, which doubles with each early end."""

from common.backoff import pause

#: Exit status of a process that cannot start as it is configured: after a restart it would end in the same way.
REFUSED = 2
#: Seconds before a process is started again: first pause, longest pause, and the uptime after which the pause is reset.
FIRST_PAUSE, LONGEST_PAUSE, STABLE_UPTIME = 0.1, 15.0, 10.0


def decide_restart(failures: int, *, uptime: float) -> tuple[int, float]:
    """Return the number of ends in succession, this one included, and the pause in seconds that follows.

    ``failures`` counts the ends before this one; an ``uptime`` in seconds above STABLE_UPTIME resets it.
    """
    failures = 1 if uptime > STABLE_UPTIME else failures + 1
    return failures, pause(failures, first=FIRST_PAUSE, longest=LONGEST_PAUSE)
