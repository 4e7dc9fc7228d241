"""Model imports: a job reads a model by reference once, stores it by digest, and supplies the waiting simulation."""

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from common.ages import is_old_enough
from common.backoff import RetryPolicy
from common.errors import (
    Invalid,
    OriginChanged,
    OriginFailed,
    OriginRefused,
    PlatformError,
    StorageFull,
    StoreUnavailable,
    UnknownImport,
)
from common.ids import new_id
from core.domain.access.roles import Verb
from core.domain.access.scopes import PLATFORM, Caller, Scope, work_of
from core.domain.access.shared_kinds import SharedKind
from core.domain.scheduling.states import State
from core.domain.submissions.listing import search_text
from core.domain.submissions.provenance import provenance_of
from core.domain.submissions.records import Model
from core.domain.submissions.stored_documents import decode_document, update_document
from core.domain.submissions.tags import check_tags
from core.notifications.notifier import Notifier
from core.services.access.submitters import SubmitterAway, require_submitter
from core.services.claims import Action, ClaimedJob, ClaimLost, DiskFull, FailedAttempt, OnError
from core.services.submissions.model_origins import ModelOrigins
from core.services.submissions.resolving import Resolver
from core.services.uploads.models import Models, Properties
from core.store import events, leases, simulations
from core.store import model_imports as store
from core.store.claims import HeldClaim
from core.store.database import Connection, Database
from core.store.model_imports import ModelImportRow
from datasets.model_origins.base import OpenedModel

logger = logging.getLogger(__name__)

#: Attempts in a row that end without an answer, not even a failure, after which an import fails.
ATTEMPTS = 200
#: Option of an import with the name of its model.
NAME_OPTION = "name"
#: Seconds between two reports of progress.
PROGRESS_INTERVAL = 0.5
JOB = ClaimedJob(
    take=store.CLAIMS.take,
    what="import {id}",
    outcomes=(
        OnError((OriginRefused,), Action.FAIL),
        OnError((OriginFailed, OriginChanged), Action.RETRY),
        OnError((StoreUnavailable, SubmitterAway), Action.WAIT),
        OnError((PlatformError,), Action.FAIL),
        OnError((DiskFull,), Action.WAIT, str(StorageFull())),
        OnError((MemoryError,), Action.FAIL, "the model needs more memory to be read than an import may have"),
    ),
    retry=RetryPolicy(first=1.0, longest=30.0, patience=3600.0),  # from the request on
)


class ModelImports:
    """Imports models by reference. Idempotent, also after a crash at any point; a reference is resolved once."""

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        models: Models,
        resolver: Resolver,
        origins: ModelOrigins,
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._models = models
        self._resolver = resolver
        self.origins = origins

    # -- requests

    def request(
        self,
        caller: Caller,
        reference: str,
        connection: str | None = None,
        tags: Sequence[str] | None = None,
        **options: str | None,
    ) -> dict[str, object]:
        """Insert an import and enqueue its job; raise Invalid for a reference that may not be read here."""
        values = self.row(caller, reference, connection, tags, **options)
        self._database.write(lambda c: self.add(c, values))
        self.enqueue(values)
        return self.get(caller, values["id"])

    def row(
        self,
        caller: Caller,
        reference: str,
        connection: str | None,
        tags: Sequence[str] | None = None,
        **options: str | bool | None,
    ) -> dict[str, str]:
        """Return the row of a new import; raise Invalid for a reference that may not be read here, and for its tags."""
        caller.require(Verb.UPLOAD)  # also for a simulation whose model is named by a reference
        if SharedKind.MODELS in caller.patterns.by_kind:  # the job that reads it has no token
            if not isinstance(named := options.get(NAME_OPTION), str):
                raise Invalid("`name`: name the model, because your token is limited to some models.")
            caller.patterns.require(SharedKind.MODELS, named)
        _, name = self.origins.check(caller.scope.owner, reference, connection)
        check_tags(tags or ())
        given = {key: value for key, value in {**options, "tags": tags}.items() if value is not None}
        return {
            "id": new_id(datetime.now(UTC)),
            "project": caller.scope.owner,
            "made_by": caller.name,
            "reference": reference,
            "connection": name,
            "options": json.dumps(given),
        }

    def add(self, c: Connection, values: Mapping[str, str], simulation: str | None = None) -> None:
        """Insert an import, for a simulation that waits for it."""
        store.add(c, {**values, "simulation_id": simulation, "created_at": self._database.now(c)})

    def enqueue(self, values: Mapping[str, str]) -> None:
        """Enqueue the job of an import that was inserted."""
        self._notifier.enqueue("import", values["id"])

    def get(self, caller: Caller, id: str) -> dict[str, object]:
        """Return an import as clients see it, with its model once it is ready; raise UnknownImport."""
        with self._database.read() as c:
            row = store.find(c, caller.scope, id)
        if row is None:
            raise UnknownImport(f"There is no import {id[:64]!r}.")
        return {
            "id": row.id,
            "state": row.state,
            "model_reference": row.reference,
            "connection": row.connection or None,
            "reason": row.reason,
            "bytes": row.bytes,
            "model": row.model_id,
            "digest": row.digest,
            "source": decode_document(row.source, dict[str, object]) if row.source else None,
            "created_at": datetime.fromtimestamp(row.created_at, UTC),
            "ended_at": datetime.fromtimestamp(row.ended_at, UTC) if row.ended_at else None,
        }

    # -- the job

    def fetch(self, id: str) -> None:
        """Import a model, unless another job has claimed it or it has ended."""
        JOB.run(self._database, id, self._fetch)

    def _fetch(self, claim: HeldClaim) -> None:
        with self._database.read() as c:
            row = store.find(c, PLATFORM, claim.id)
        assert row is not None
        try:
            if not self._database.write(lambda c: store.CLAIMS.change(c, claim, failures=row.failures + 1)):
                raise ClaimLost
            if row.failures >= ATTEMPTS:
                self._fail(row, claim, "its import was interrupted again and again; see the log", State.ERRORED)
            else:
                self._finish(row, claim, *self._import(row, claim))
        except Exception as error:
            with self._database.read() as c:
                exhausted = is_old_enough(row.created_at, JOB.retry.patience, self._database.now(c))
            failure = JOB.failure_of(error, failures=row.failures, exhausted=exhausted)
            if failure.exhausted:
                tried = f"It was tried for {JOB.retry.patience / 60:.0f} minutes."
                self._fail(row, claim, f"{failure.reason} {tried}", State.ERRORED)
            elif failure.action is Action.FAIL:
                self._fail(row, claim, failure.reason)
            else:
                self._wait(row, claim, failure)

    def _import(self, row: ModelImportRow, claim: HeldClaim) -> tuple[Model, dict[str, object]]:
        """Read the model and store it by its digest."""
        if row.simulation_id is None:  # what a simulation waits for is part of it, and was submitted with it
            require_submitter(self._database, row.project, row.made_by)
        self._say(row, claim, done=0, total=None)
        options = decode_document(row.options, Properties)
        opened = self.origins.open(row.project, row.reference, row.connection)
        if opened.size is not None:
            self._models.check_size(opened.size)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        source = {
            "reference": row.reference,
            "connection": row.connection or None,
            **opened.resolved,
            "resolved_at": at,
        }
        filename = options.pop("filename", None) or opened.filename
        chunks = self._reported(row, claim, opened)
        properties: Properties = {**options, "filename": filename, "source": source}
        return self._models.add(work_of(row.project, row.made_by), chunks, **properties), source

    def _reported(self, row: ModelImportRow, claim: HeldClaim, opened: OpenedModel) -> Iterator[bytes]:
        reported_at, done = time.monotonic(), 0
        for chunk in opened.chunks:
            yield chunk
            done += len(chunk)
            if time.monotonic() - reported_at >= PROGRESS_INTERVAL:
                reported_at = time.monotonic()
                self._say(row, claim, done=done, total=opened.size)
        if opened.size is not None and done != opened.size:
            raise OriginFailed(f"{row.reference} has {done} bytes, not {opened.size} as announced.")

    def _finish(self, row: ModelImportRow, claim: HeldClaim, model: Model, source: dict[str, object]) -> None:
        values: dict[str, object] = {"state": "ready", "model_id": model.id, "digest": model.digest, "reason": None}
        values |= {"source": json.dumps(source), "bytes": model.size}
        id = row.simulation_id
        supplied = self._supplied(id, model, source) if id is not None else {}

        def finish(c: Connection) -> None:
            now = self._database.now(c)
            if not store.CLAIMS.change(c, claim, ended_at=now, **values):
                raise ClaimLost
            if id is not None:
                if not simulations.awaits_model(c, id):
                    raise ClaimLost
                Models.keep(c, Scope(row.project), model)
                simulations.supply_model(c, id, **supplied)
                body = {"what": "model", "message": f"{row.reference} is {model.digest}", "bytes": model.size}
                events.say(c, id, "staging", {**body, "total_bytes": model.size, "fraction": 1.0}, now)

        self._database.write(finish)
        if id is not None:
            self._notifier.wake("dispatch")
            self._notifier.publish(id)

    def _supplied(self, id: str, model: Model, source: Mapping[str, object]) -> dict[str, str]:
        """Return the columns of a simulation that follow from its model; raise a PlatformError if it does not fit."""
        with self._database.read() as c:
            row = simulations.find(c, PLATFORM, id)
        provenance, runtime = self._resolver.with_model(provenance_of(row.provenance), model, source)
        columns = {"provenance": update_document(row.provenance, provenance), "runtime": runtime, "model": model.name}
        columns["search"] = search_text(model.name, row.dataset, runtime, decode_document(row.labels, dict[str, str]))
        return columns | {"digest": model.digest}

    def _wait(self, row: ModelImportRow, claim: HeldClaim, failure: FailedAttempt) -> None:
        logger.warning("import %s is tried again in %.0f s: %s", row.id, failure.pause, failure.reason)
        counted = {"failures": 1} if failure.action is Action.WAIT else {}

        def wait(c: Connection) -> None:
            later = self._database.now(c) + failure.pause
            store.CLAIMS.release(c, claim, not_before=later, reason=failure.reason, **counted)
            if row.simulation_id is not None:
                simulations.explain_import(c, row.simulation_id, f"its model is not here yet: {failure.reason}")

        self._database.write(wait)
        if row.simulation_id is not None:
            self._notifier.publish(row.simulation_id)

    def _fail(self, row: ModelImportRow, claim: HeldClaim, reason: str, outcome: State = State.FAILED) -> None:
        logger.warning("import %s of %s failed: %s", row.id, row.reference, reason)
        id = row.simulation_id

        def fail(c: Connection) -> bool:
            if not store.CLAIMS.change(c, claim, state="failed", reason=reason, ended_at=self._database.now(c)):
                return False
            if id is None or not simulations.awaits_model(c, id):
                return False
            leases.close_early(c, id)
            simulations.conclude(c, id, State.QUEUED, outcome, f"{row.reference}: {reason}")
            return True

        if self._database.write(fail) and id is not None:
            self._notifier.enqueue("collect", id)
            self._notifier.wake("dispatch")

    def _say(self, row: ModelImportRow, claim: HeldClaim, *, done: int, total: int | None) -> None:
        """Report ``done`` of ``total`` bytes; raise ClaimLost if the import has become pointless."""
        id = row.simulation_id
        event = {"what": "model", "message": f"fetching {row.reference}", "bytes": done, "total_bytes": total}
        event["fraction"] = min(1.0, done / total) if total else None

        def say(c: Connection) -> bool:
            if not store.CLAIMS.change(c, claim, bytes=done):
                return False
            if id is not None and not simulations.awaits_model(c, id):
                store.CLAIMS.change(c, claim, state="failed", reason="no simulation waits for it any more")
                return False
            if id is not None:
                events.say(c, id, "staging", event, self._database.now(c))
            return True

        if not self._database.write(say):
            raise ClaimLost
        if id is not None:
            self._notifier.publish(id)
