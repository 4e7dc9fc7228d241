"""Moments: seconds since 1970 in UTC, as rows have them, as times with a zone, as clients see them."""

from datetime import UTC, datetime
from typing import overload


@overload
def moment_of(seconds: float) -> datetime: ...
@overload
def moment_of(seconds: None) -> None: ...
@overload
def moment_of(seconds: float | None) -> datetime | None: ...
def moment_of(seconds: float | None) -> datetime | None:
    """Return a moment in UTC, or None.

    0 is a moment too: where a column means none by it, its reader says so.
    """
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
