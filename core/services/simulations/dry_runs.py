"""Dry runs: what they have found, how long one may take, and how many may be unfinished.

They take a worker before queued simulations.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from common.errors import TooManyDryRuns
from common.ids import first_id
from core.domain.submissions.records import Simulation
from core.store import simulations as store
from core.store.database import Connection

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


def check_of(simulation: Simulation, line: bytes) -> dict[str, Any]:
    """Return what a dry run that has ended found; ``line``: its result line, empty if it has none.

    Seconds and bytes; the sizes of the model's inputs and outputs are in ``model``.
    """
    result = msgspec.json.decode(line) if line else {}
    fits = result.get("status") == "ok"
    reason = None if fits else result.get("error") or simulation.reason or str(simulation.state)
    return checked(simulation, result.get("timing") or {}, reason)


def checked(simulation: Simulation, timing: Mapping[str, Any], reason: str | None) -> dict[str, Any]:
    """Return a check: whether the model fits (without a ``reason``), and what its dry run has measured."""
    model, inference = timing.get("model") or {}, timing.get("inference") or {}
    return {
        "fits": reason is None,
        "reason": reason,
        "dataset": simulation.dataset.name,
        "runtime": simulation.runtime.name,
        "format": simulation.model.format,
        "model": model.get("info"),
        "load_seconds": model.get("seconds"),
        "act_seconds": inference.get("p50") if reason is None else None,
        "slowest_act_seconds": inference.get("max") if reason is None else None,
        "memory": model.get("memory"),
    }
