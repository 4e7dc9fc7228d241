"""Tables of claimed jobs: what follows an error, by the first row that names it."""

import errno
import sqlite3
from collections.abc import Mapping

import pytest

from common.backoff import RetryPolicy
from common.errors import (
    Invalid,
    LargerThanCache,
    NodeFull,
    NotFound,
    OriginChanged,
    OriginFailed,
    OriginRefused,
    StorageFull,
    StoreUnavailable,
    UnknownSimulation,
)
from core.services.claims import Action, ClaimedJob, DiskFull, FailedAttempt, OnError
from core.services.comparisons import comparison_batches
from core.services.datasets import dataset_registration, prefetches
from core.services.pipelines import pipeline_steps
from core.services.scheduling import staging
from core.services.simulations import deletion, run_logging
from core.services.submissions import model_imports
from runtimes import environments

WAIT, RETRY, FAIL = Action.WAIT, Action.RETRY, Action.FAIL
JOBS: Mapping[str, ClaimedJob] = {
    "stage": staging.STAGE,
    "prefetch": prefetches.PREFETCH,
    "register": dataset_registration.JOB,
    "import": model_imports.JOB,
    "log": run_logging.JOB,
    "compare": comparison_batches.JOB.claimed,
    "pipeline": pipeline_steps.JOB.claimed,
    "delete": deletion.JOB,
}
FULL = OSError(errno.ENOSPC, "no space left")


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS.keys())
def test_every_row_of_a_table_is_reached(job: ClaimedJob) -> None:
    for position, row in enumerate(job.outcomes):
        earlier = tuple(error for before in job.outcomes[:position] for error in before.errors)
        assert not any(issubclass(error, earlier) for error in row.errors if earlier), row


@pytest.mark.parametrize(
    ("job", "error", "action"),
    [
        ("stage", StoreUnavailable(), WAIT),
        ("stage", environments.IndexUnavailable("away"), WAIT),
        ("stage", environments.CannotPrepare("refused"), RETRY),
        ("stage", NodeFull(), WAIT),
        ("stage", LargerThanCache(), FAIL),
        ("stage", NotFound(), RETRY),
        ("stage", UnknownSimulation(), FAIL),
        ("stage", OriginChanged(), FAIL),
        ("stage", FULL, WAIT),
        ("stage", RecursionError("a defect"), RETRY),
        ("prefetch", OriginRefused(), FAIL),
        ("prefetch", OriginFailed(), WAIT),
        ("prefetch", Invalid(), FAIL),
        ("register", StorageFull(), FAIL),
        ("register", StoreUnavailable(), WAIT),
        ("register", OriginFailed(), RETRY),
        ("register", OriginRefused(), RETRY),
        ("register", MemoryError(), FAIL),
        ("register", FULL, FAIL),
        ("import", OriginRefused(), FAIL),
        ("import", OriginFailed(), RETRY),
        ("import", OriginChanged(), RETRY),
        ("import", StorageFull(), WAIT),
        ("import", Invalid(), FAIL),
        ("import", FULL, WAIT),
        ("log", OriginRefused(), FAIL),
        ("log", OriginFailed(), RETRY),
        ("compare", StoreUnavailable(), WAIT),
        ("compare", KeyError("a defect"), WAIT),
        ("delete", StoreUnavailable(), WAIT),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_what_follows_an_error(job: str, error: Exception, action: Action) -> None:
    assert JOBS[job].failure_of(error, home="/home").action is action


@pytest.mark.parametrize("job", ["prefetch", "register", "import", "log", "delete"])
def test_a_defect_is_raised_for_the_queue_of_jobs(job: str) -> None:
    error = KeyError("a defect")
    with pytest.raises(KeyError) as raised:
        JOBS[job].failure_of(error)
    assert raised.value is error


def test_what_is_retried_fails_once_attempts_or_patience_are_exhausted_and_what_waits_does_not() -> None:
    job = ClaimedJob(
        take=lambda *_: True,
        what="{id}",
        outcomes=(OnError((OriginFailed,), RETRY, "it says: {error}"), OnError((DiskFull,), WAIT, "{place} is full")),
        retry=RetryPolicy(first=1.0, longest=30.0),
    )
    failed = FailedAttempt(action=FAIL, reason="it says: no", pause=4.0, exhausted=True)
    assert job.failure_of(OriginFailed("no"), failures=2, exhausted=True) == failed
    full = sqlite3.OperationalError("full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    waits = FailedAttempt(action=WAIT, reason="/data is full", pause=1.0, exhausted=False)
    assert job.failure_of(full, exhausted=True, place="/data") == waits
