"""Ends of projects: what a closed one has under way is cancelled, and what a deleted one has is deleted.

Each step may be repeated: a job goes on where another one was killed, until nothing is left.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from common.errors import Invalid, NotFound, PlatformError, ProjectOpen, StoreUnavailable, UnknownProject
from core.domain.access.audit import AuditEntry
from core.domain.access.identities import ProjectState
from core.domain.access.scopes import DEFAULT_PROJECT, Caller, work_of
from core.domain.comparisons.comparison_states import ComparisonState
from core.domain.pipelines.pipeline_states import PipelineState
from core.domain.scheduling.states import UNENDED
from core.notifications.notifier import Notifier
from core.services.comparisons.comparisons import Comparisons
from core.services.datasets.datasets import Datasets
from core.services.due_jobs import SWEEP
from core.services.pipelines.pipelines import Pipelines
from core.services.retention.bin import Bin
from core.services.simulations.simulations import Simulations
from core.services.uploads.models import Models
from core.services.uploads.uploads import Uploads
from core.store import accounts, audit, owned_rows, shares
from core.store.accounts import ProjectRow
from core.store.database import Connection, Database
from core.store.recording import recorded_act, recorded_request

logger = logging.getLogger(__name__)

#: Most rows of a kind that are read at once.
PAGE = 200
#: The operation of who deletes a project, whose acts the deletions are.
DELETION_ACT = "delete_project"
#: Where each kind of what is deleted is below `/v1`, by its table.
_SUBJECTS = {
    "pipelines": "pipelines",
    "comparisons": "comparisons",
    "simulations": "simulations",
    "models": "models",
    "dataset_versions": "datasets",
    "uploads": "uploads",
    "bin_items": "bin",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectContent:
    """Services of what a project has."""

    simulations: Simulations
    comparisons: Comparisons
    pipelines: Pipelines
    models: Models
    datasets: Datasets
    uploads: Uploads
    bin: Bin


class ProjectEnds:
    """Takes closed and deleted projects to their ends."""

    def __init__(self, database: Database, notifier: Notifier, content: ProjectContent) -> None:
        self._database = database
        self._notifier = notifier
        # What submits others comes before what it has submitted.
        self._cancelled: tuple[tuple[str, frozenset[str], Callable[[Caller, str], object]], ...] = (
            ("pipelines", frozenset({PipelineState.RUNNING}), content.pipelines.cancel),
            ("comparisons", frozenset({ComparisonState.RUNNING}), content.comparisons.cancel),
            ("simulations", frozenset(UNENDED), content.simulations.cancel),
        )
        self._deleted: tuple[tuple[str, Callable[[Caller, str], object]], ...] = (
            ("pipelines", content.pipelines.delete),
            ("comparisons", content.comparisons.delete),
            ("simulations", content.simulations.delete),
            ("models", content.models.delete),
            ("dataset_versions", content.datasets.delete),
            ("uploads", content.uploads.delete),
            ("bin_items", content.bin.purge),  # last: what is deleted may go there
        )

    def close(self, caller: Caller) -> ProjectRow:
        """Accept nothing new in the caller's project, and cancel what it has under way. Idempotent. Raise Invalid."""
        return self._move(caller, ProjectState.OPEN, ProjectState.CLOSED)

    def delete(self, caller: Caller) -> None:
        """Let nobody see the caller's project any more, and delete what it has. Raise ProjectOpen, Invalid.

        Its shares end at once, those with it as well.
        """
        self._move(caller, ProjectState.CLOSED, ProjectState.DELETED)

    def _move(self, caller: Caller, before: ProjectState, after: ProjectState) -> ProjectRow:
        name = caller.scope.owner
        if name == DEFAULT_PROJECT:
            raise Invalid(f"The project {name} stays: it has what was there before there were projects.")

        def write(c: Connection) -> ProjectRow:
            moved = accounts.move_project(c, name, before, after, self._database.now(c))
            row = accounts.project(c, name)
            if row is None:
                raise UnknownProject
            if not moved and row.state != after:
                raise ProjectOpen(
                    f"The project {name} is {row.state}. Close it first: `windtunnel projects close {name}`."
                )
            if after is ProjectState.DELETED:
                shares.forget_project(c, name)
            return row

        row = self._database.write(write)
        self._notifier.enqueue("sweep", SWEEP)
        return row

    def sweep(self) -> None:
        """Do all that is possible now for each closed or deleted project."""
        with self._database.read() as c:
            ending = accounts.ending_projects(c)
        for name, state in ending:
            caller = work_of(name)
            with recorded_act(AuditEntry(act="close_project", project=name, subject=f"projects/{name}")):
                self.cancel(caller)
            if state == ProjectState.DELETED and self._remove(caller):
                self._database.write(lambda c, name=name: owned_rows.forget_project(c, name))  # type: ignore[misc]
                logger.info("project %s is deleted, with all that it had", name)

    def cancel(self, caller: Caller) -> None:
        """Cancel what a project has under way."""
        for table, states, cancel in self._cancelled:
            after = ""
            while ids := self._ids(caller, table, after, states):
                for id in ids:
                    with suppress(PlatformError):  # it has just ended, or the next sweep tries again
                        cancel(caller, id)
                after = ids[-1]

    def _remove(self, caller: Caller) -> bool:
        """Delete what a project has, each with its audit entry; return whether nothing is left of it."""
        left, project = False, caller.scope.owner
        with self._database.read() as c:
            user = audit.newest_user(c, project, DELETION_ACT, f"projects/{project}")
        for table, delete in self._deleted:
            after = ""
            while ids := self._ids(caller, table, after):
                for id in ids:
                    entry = AuditEntry(act=DELETION_ACT, project=project, user=user, subject=f"{_SUBJECTS[table]}/{id}")
                    try:
                        with recorded_request(entry):
                            delete(caller, id)
                    except NotFound:
                        pass
                    except StoreUnavailable:
                        return False
                    except PlatformError as error:  # in use, or not ended: the next sweep tries again
                        logger.info("project %s: %s %s stays for now: %s", project, table, id, error)
                        left = True
                after = ids[-1]
        return not left

    def _ids(self, caller: Caller, table: str, after: str, states: frozenset[str] = frozenset()) -> list[str]:
        with self._database.read() as c:
            return owned_rows.ids(c, caller.scope, table, after, PAGE, states)
