"""Run logging: the job that logs an ended simulation's metrics, state and address to the MLflow run of its model.

It repeats the same request until the server has accepted it, which changes nothing the second time. A failure is an
event of the simulation and never changes its state.
"""

import logging

from common.backoff import RetryPolicy
from common.errors import Invalid, OriginFailed, OriginRefused
from core.domain.access.scopes import PLATFORM
from core.domain.results.run_metrics import metrics_of, tags_of
from core.domain.submissions.provenance import provenance_of
from core.domain.submissions.stored_documents import load_document
from core.notifications.notifier import Notifier
from core.services.claims import Action, ClaimedJob, FailedAttempt, OnError
from core.services.submissions.model_origins import ModelOrigins
from core.store import events, simulations
from core.store import run_logs as store
from core.store.claims import HeldClaim
from core.store.database import Connection, Database

logger = logging.getLogger(__name__)

JOB = ClaimedJob(
    take=store.CLAIMS.take,
    what="the results of {id} for MLflow",
    outcomes=(
        OnError((OriginRefused, Invalid), Action.FAIL),
        OnError((OriginFailed,), Action.RETRY),
    ),
    retry=RetryPolicy(first=2.0, longest=600.0, patience=86_400.0),  # from the simulation's end on
)


class RunLogging:
    """Logs results to the runs that models came from. Idempotent, also after a crash at any point."""

    def __init__(self, database: Database, notifier: Notifier, origins: ModelOrigins) -> None:
        self._database = database
        self._notifier = notifier
        self._origins = origins

    def log(self, id: str) -> None:
        """Log the results of a simulation that has ended, unless another job does so or it is done."""
        JOB.run(self._database, id, self._log)

    def _log(self, claim: HeldClaim) -> None:
        with self._database.read() as c:
            waiting, row = store.find(c, claim.id), simulations.found(c, PLATFORM, [claim.id]).get(claim.id)
            now = self._database.now(c)
        if waiting is None or row is None or row.summary is None or row.ended_at is None:
            return
        provenance = provenance_of(row.provenance)
        run = (provenance.model.source or {}).get("run_id")
        try:
            if not run:
                raise OriginRefused("its model has no run")
            server = self._origins.server(row.project, waiting.connection)
            if not server.log_results:
                raise OriginRefused("the operator does not allow it any more (`log_results`)")
            metrics = metrics_of(row.dataset, load_document(row.summary))
            address = server.platform_url.rstrip("/")
            tags = tags_of(claim.id, row.state, address, trusted=provenance.play.trusted)
            self._origins.mlflow(row.project, waiting.connection).log_batch(run, metrics, tags, row.ended_at)
        except Exception as error:
            exhausted = now - row.ended_at > JOB.retry.patience
            failure = JOB.failure_of(error, failures=waiting.failures, exhausted=exhausted)
            if failure.action is Action.FAIL:
                self._end(claim, run, failure.reason)
            else:
                self._wait(claim, waiting, run, now, failure)
        else:
            self._end(claim, run, None)

    def _wait(
        self, claim: HeldClaim, row: store.RunLogRow, run: str | None, now: float, failure: FailedAttempt
    ) -> None:
        seconds, reason = failure.pause, failure.reason
        logger.warning("results of simulation %s are logged again in %.0f s: %s", claim.id, seconds, reason)
        changes = {"failures": row.failures + 1, "not_before": now + seconds}

        def wait(c: Connection) -> None:
            if store.CLAIMS.release(c, claim, **changes) and row.failures == 0:
                self._say(c, claim.id, run, f"tried again later: {reason}", logged=False)

        self._database.write(wait)
        self._notifier.publish(claim.id)

    def _end(self, claim: HeldClaim, run: str | None, reason: str | None) -> None:
        state, message = ("logged", "results are logged") if reason is None else ("failed", f"not logged: {reason}")

        def end(c: Connection) -> None:
            if store.CLAIMS.release(c, claim, state=state):
                self._say(c, claim.id, run, message, logged=reason is None)

        self._database.write(end)
        self._notifier.publish(claim.id)
        if reason is not None:
            logger.warning("results of simulation %s are not logged to MLflow: %s", claim.id, reason)

    def _say(self, c: Connection, id: str, run: str | None, message: str, *, logged: bool) -> None:
        body = {"run": run, "logged": logged, "message": message}
        events.say(c, id, "run_log", body, self._database.now(c))
