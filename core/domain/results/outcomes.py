"""Outcome of a simulation: whether its results make it SUCCEEDED or FAILED, and the reason."""

from collections import Counter

from core.domain.scheduling.states import State

#: Different errors that are counted; others count together. A model may put the task's number into each message.
DISTINCT = 1000
#: Characters of an error in a reason, and how many of them are of its beginning, where it is longer.
SHOWN, BEGINNING = 500, 150


class ErrorTally:
    """Counts the errors of tasks that are not ``ok``, in memory that does not grow with the tasks."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, status: str, error: str | None) -> None:
        """Add a task that is not ``ok``."""
        text = f"{status}: {shorten_error(error)}" if error else status
        if text not in self._counts and len(self._counts) >= DISTINCT:
            text = f"{status}, for other reasons"
        self._counts[text] += 1

    @property
    def commonest(self) -> tuple[str, int] | None:
        """The commonest error and its count; among equals the first. None without errors."""
        return max(self._counts.items(), key=lambda item: item[1], default=None)


def shorten_error(error: str) -> str:
    """Return an error without its middle if it is long: it begins with what failed, and Python says why at the end."""
    return error if len(error) <= SHOWN else f"{error[:BEGINNING]}…{error[len(error) - SHOWN + BEGINNING + 1 :]}"


def too_many(max_failures: int | None, failed: int) -> str | None:
    """Return the reason why a simulation with ``failed`` tasks fails; None if it may continue."""
    if max_failures is None or failed <= max_failures:
        return None
    return f"{failed} tasks failed; max_failures is {max_failures}"


def outcome_of(max_failures: int | None, done: int, failed: int, errors: ErrorTally) -> tuple[State, str | None]:
    """Return the final state of a simulation whose tasks all have results, and the reason if it is not SUCCEEDED."""
    if (reason := too_many(max_failures, failed)) is not None:
        return State.FAILED, reason
    commonest = errors.commonest
    if failed < done or commonest is None:
        return State.SUCCEEDED, None
    error, count = commonest
    if done == 1:
        return State.FAILED, f"its only task is not ok: {error}"
    how_many = "each" if count == done else f"most often, {count} times"
    return State.FAILED, f"none of its {done} tasks is ok; {how_many}: {error}"
