"""Submission failures: what the dispatcher does with a simulation whose launch could not be submitted, by error."""

from dataclasses import dataclass

from common.errors import (
    ClusterFull,
    NotGranted,
    NotPrepared,
    OriginFailed,
    OriginRefused,
    PlatformError,
    StoreUnavailable,
)
from workers.executors.base import Missed


@dataclass(frozen=True, kw_only=True, slots=True)
class SubmissionFailure:
    """A row of the table: ``errors`` of a simulation's attempt ``since_attempt`` or later, and the action.

    ``requeue``: queue the simulation again, after ``pause`` seconds at least; otherwise it ends as FAILED.
    ``counted``: the launch counts as an attempt without result, which too many in a row end the simulation for.
    ``staged``: the next attempt stages the simulation, which waits for the store with a reason, whatever is ready.
    ``pauses_executor``: the executor gets no launches for a while, since it answers but takes none.
    ``reason``: the reason shown to the user, with the fields ``error`` and ``executor``.
    """

    errors: tuple[type[Exception], ...]
    reason: str = "{error}"
    requeue: bool = True
    counted: bool = True
    pause: float = 0.0
    since_attempt: int = 1
    staged: bool = False
    pauses_executor: bool = False


#: The first row that matches an error and an attempt decides. The order matters: PlatformError is a base class.
FAILURES: tuple[SubmissionFailure, ...] = (
    SubmissionFailure(errors=(Missed,), counted=False),
    SubmissionFailure(errors=(OriginRefused,)),
    # The store may recover.
    SubmissionFailure(errors=(StoreUnavailable, OriginFailed), counted=False, pause=1.0, staged=True),
    # A job of another machine may have staged it; it will be done here sooner or later.
    SubmissionFailure(errors=(NotPrepared,), pause=1.0, staged=True),
    # Until other launches release capacity.
    SubmissionFailure(errors=(ClusterFull,), counted=False, pause=5.0),
    # It was permitted before: probably a change in progress, e.g. a namespace is being recreated.
    SubmissionFailure(errors=(NotGranted,), pause=10.0, since_attempt=2),
    SubmissionFailure(errors=(PlatformError,), requeue=False),
    # Another executor may take it, or this one later.
    SubmissionFailure(
        errors=(OSError,),
        reason="executor {executor} refused the launch: {error}",
        counted=False,
        pauses_executor=True,
    ),
)
#: Every error that the table covers; any other is a defect.
COVERED: tuple[type[Exception], ...] = tuple(error for row in FAILURES for error in row.errors)


def failure_of(error: Exception, attempt: int) -> SubmissionFailure:
    """Return the row for an error of a simulation's ``attempt`` (from 1). Raise LookupError if no row matches."""
    for row in FAILURES:
        if isinstance(error, row.errors) and attempt >= row.since_attempt:
            return row
    raise LookupError(f"no action for {type(error).__name__}")
