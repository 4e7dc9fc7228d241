"""Dry runs: how long one may take, and how many may be unfinished. They take a worker before queued simulations."""

from datetime import datetime, timedelta

from core.domain.ids import first_id
from core.store import simulations as store
from core.store.database import Connection
from errors import TooManyDryRuns

#: Most seconds of a dry run; the first dry run of a runtime installs its environment.
LONGEST_DRY_RUN = 300
#: Most unfinished dry runs of all callers.
DRY_RUNS = 16
#: Most seconds after which a refused dry run is told to be repeated: others may end at any time.
_RETRY = 10.0


def admit(c: Connection, limit: int, moment: datetime, now: float) -> None:
    """Raise TooManyDryRuns if another dry run may not start. A dry run counts while a request may wait for it."""
    oldest_id = first_id(moment - timedelta(seconds=2 * LONGEST_DRY_RUN))
    unended, oldest = store.unended_dry_runs(c, oldest_id, now - LONGEST_DRY_RUN)
    if unended >= limit:
        raise TooManyDryRuns(
            f"{unended:,} dry runs are unfinished, and this platform has room for {limit:,} (WINDTUNNEL_DRY_RUNS)."
            " Try again shortly, or submit a simulation: it is queued.",
            retry_after=min(_RETRY, max(1.0, oldest + LONGEST_DRY_RUN - now)),
        )
