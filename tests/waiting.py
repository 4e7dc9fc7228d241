"""Waiting in tests: polls a condition until it holds. The time limit only bounds a test that fails."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
#: Seconds until a wait fails. A wait that succeeds ends with its condition, so a long limit costs nothing.
TIMEOUT = 60.0
#: Seconds between two polls: the first pause, the longest pause, and the factor from each pause to the next.
FIRST, LONGEST, GROWTH = 0.005, 0.1, 1.2


def until(
    condition: Callable[[], Value],
    timeout: float = TIMEOUT,
    message: str | Callable[[], str] = "the condition does not hold",
    *,
    every: float | None = None,
) -> Value:
    """Poll a condition until it returns a truthy value; return that value, or fail with the message.

    A message that is a function is called when the wait fails, so it can describe the state at that moment. ``every``
    fixes the seconds between two polls. A condition that can no longer hold, as after a process ended, raises an error.
    """
    deadline = time.monotonic() + timeout
    pause = FIRST if every is None else every
    while not (value := condition()):
        if time.monotonic() > deadline:
            text = message if isinstance(message, str) else message()
            raise AssertionError(f"after {timeout:.0f} s: {text}")
        time.sleep(pause)
        pause = min(pause * GROWTH, LONGEST) if every is None else every
    return value
