"""Run logging: the job that logs an ended simulation's metrics, state and address to the MLflow run of its model.

It repeats the same request until the server has accepted it, which changes nothing the second time. A failure is an
event of the simulation and never changes its state.
"""

import json
import logging
import secrets
from typing import Any

from common.backoff import RetryPolicy
from common.errors import Invalid, OriginFailed, OriginRefused, UnknownSimulation
from core.domain.results.run_metrics import metrics_of, tags_of
from core.notifications.notifier import Notifier
from core.services.claims import TERM, renewed_claim
from core.services.submissions.model_origins import ModelOrigins
from core.store import run_logs as store
from core.store import simulations
from core.store.database import Connection, Database

logger = logging.getLogger(__name__)

#: Retries of a server that does not answer, from the simulation's end on.
RETRY = RetryPolicy(first=2.0, longest=600.0, patience=86_400.0)


class RunLogging:
    """Logs results to the runs that models came from. Idempotent, also after a crash at any point."""

    def __init__(self, database: Database, notifier: Notifier, origins: ModelOrigins) -> None:
        self._database = database
        self._notifier = notifier
        self._origins = origins

    def log(self, id: str) -> None:
        """Log the results of a simulation that has ended, unless another job does so or it is done."""
        who = secrets.token_hex(8)

        def take() -> bool:
            return self._database.write(lambda c: store.claim(c, id, who, TERM, self._database.now(c)), durable=False)

        with renewed_claim(take, f"the results of {id} for MLflow") as acquired:
            if acquired:
                self._log(id, who)

    def _log(self, id: str, who: str) -> None:
        with self._database.read() as c:
            waiting = store.find(c, id)
            try:
                row = simulations.find(c, id)
            except UnknownSimulation:
                return
            now = self._database.now(c)
        if waiting is None or row.summary is None:
            return
        run = (json.loads(row.provenance)["model"].get("source") or {}).get("run_id")
        try:
            if not run:
                raise OriginRefused("its model has no run")
            server = self._origins.server(waiting.connection)
            if not server.log_results:
                raise OriginRefused("the operator does not allow it any more (`log_results`)")
            metrics = metrics_of(row.dataset, json.loads(row.summary))
            tags = tags_of(id, row.state, server.platform_url.rstrip("/"))
            self._origins.mlflow(waiting.connection).log_batch(run, metrics, tags, row.ended_at)
        except (OriginRefused, Invalid) as error:
            self._end(id, who, run, error.detail or "refused")
        except OriginFailed as error:
            if now - row.ended_at > RETRY.patience:
                self._end(id, who, run, error.detail or "no answer")
            else:
                self._wait(waiting, who, run, now, error.detail or "no answer")
        else:
            self._end(id, who, run, None)

    def _wait(self, row: Any, who: str, run: str | None, now: float, reason: str) -> None:
        failures = row.failures + 1
        seconds = RETRY.pause(failures)
        id = row.simulation_id
        logger.warning("results of simulation %s are logged again in %.0f s: %s", id, seconds, reason)

        def wait(c: Connection) -> None:
            if store.change(c, id, who, failures=failures, not_before=now + seconds) and failures == 1:
                self._say(c, id, run, f"tried again later: {reason}", logged=False)

        self._database.write(wait)
        self._notifier.publish(id)

    def _end(self, id: str, who: str, run: str | None, reason: str | None) -> None:
        state, message = ("logged", "results are logged") if reason is None else ("failed", f"not logged: {reason}")

        def end(c: Connection) -> None:
            if store.change(c, id, who, state=state):
                self._say(c, id, run, message, logged=reason is None)

        self._database.write(end)
        self._notifier.publish(id)
        if reason is not None:
            logger.warning("results of simulation %s are not logged to MLflow: %s", id, reason)

    def _say(self, c: Connection, id: str, run: str | None, message: str, *, logged: bool) -> None:
        body = {"run": run, "logged": logged, "message": message}
        simulations.say(c, id, "run_log", body, self._database.now(c))
