"""Ages: whether a period is over that began at a time of a wall clock, which may be set, or be another machine's.

A beginning in the future says nothing of its age. What follows from that depends on what the period is for, so there
are two questions. Within one process, durations are differences of `time.monotonic()`.
"""

#: Seconds by which the clocks of two machines may differ.
TOLERANCE = 1.0


def is_overdue(began: float, seconds: float, now: float) -> bool:
    """Return whether a sign of life is older than ``seconds``; one from the future is: nobody else would notice."""
    return now - began > seconds or began > now + TOLERANCE


def is_old_enough(began: float, seconds: float, now: float) -> bool:
    """Return whether something may be removed after ``seconds``; what is from the future is kept until it is older."""
    return now - began >= seconds


def seconds_since(began: float, now: float) -> float:
    """Return the age for people to read: never negative."""
    return max(0.0, now - began)
