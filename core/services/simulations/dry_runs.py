"""Dry runs: what they have found, how long one may take, and how many may be unfinished.

They take a worker before queued simulations.
"""

from datetime import datetime, timedelta

import msgspec

from common.errors import TooManyDryRuns
from common.ids import first_id
from core.domain.access.scopes import Scope
from core.domain.submissions.records import Simulation
from core.store import simulations as store
from core.store.database import Connection

#: Most seconds of a dry run; the first dry run of a runtime installs its environment.
LONGEST_DRY_RUN = 300
#: Most unfinished dry runs of a project.
DRY_RUNS = 16
#: Most seconds after which a refused dry run is told to be repeated: others may end at any time.
_RETRY = 10.0


class _DryRunModel(msgspec.Struct, frozen=True):
    info: object = None
    seconds: object = None
    memory: object = None


class _DryRunLatencies(msgspec.Struct, frozen=True):
    p50: object = None
    max: object = None


class DryRunTiming(msgspec.Struct, frozen=True):
    """The members of a result's `timing` that a check has: how the model was loaded, and how fast it acted."""

    model: _DryRunModel | None = None
    inference: _DryRunLatencies | None = None


class _DryRunResult(msgspec.Struct, frozen=True):
    status: str | None = None
    error: str | None = None
    timing: DryRunTiming | None = None


def admit(c: Connection, scope: Scope, limit: int, moment: datetime, now: float) -> None:
    """Raise TooManyDryRuns if a project may not start another dry run, whatever other projects do.

    A dry run counts while a request may wait for it.
    """
    oldest_id = first_id(moment - timedelta(seconds=2 * LONGEST_DRY_RUN))
    unended, oldest = store.unended_dry_runs(c, scope, oldest_id, now - LONGEST_DRY_RUN)
    if unended >= limit:
        raise TooManyDryRuns(
            f"{unended:,} dry runs of the project are unfinished, and it may have {limit:,} (WINDTUNNEL_DRY_RUNS)."
            " Try again shortly, or submit a simulation: it is queued.",
            retry_after=min(_RETRY, max(1.0, oldest + LONGEST_DRY_RUN - now)),
        )


def check_of(simulation: Simulation, line: bytes) -> dict[str, object]:
    """Return what a dry run that has ended found; ``line``: its result line, empty if it has none.

    Seconds and bytes; the sizes of the model's inputs and outputs are in ``model``.
    """
    result = msgspec.json.decode(line or b"{}", type=_DryRunResult)
    reason = None if result.status == "ok" else result.error or simulation.reason or str(simulation.state)
    return check_document(simulation, result.timing or DryRunTiming(), reason)


def check_document(simulation: Simulation, timing: DryRunTiming, reason: str | None) -> dict[str, object]:
    """Return a check: whether the model fits (without a ``reason``), and what its dry run has measured."""
    model, inference = timing.model or _DryRunModel(), timing.inference or _DryRunLatencies()
    return {
        "fits": reason is None,
        "reason": reason,
        "dataset": simulation.dataset.name,
        "runtime": simulation.runtime.name,
        "format": simulation.model.format,
        "model": model.info,
        "load_seconds": model.seconds,
        "act_seconds": inference.p50 if reason is None else None,
        "slowest_act_seconds": inference.max if reason is None else None,
        "memory": model.memory,
    }
