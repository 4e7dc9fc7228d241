"""Shares: what a project lets another one read, which then finds it as ``team-a/brake``."""

from collections.abc import Callable
from datetime import UTC, datetime

from common.errors import (
    Invalid,
    NotFound,
    PlatformError,
    UnknownDataset,
    UnknownModel,
    UnknownProject,
    UnknownSimulation,
)
from common.ids import new_id
from core.domain.access.identities import ProjectState
from core.domain.access.references import local_reference
from core.domain.access.scopes import Caller
from core.domain.access.shared_kinds import SharedKind
from core.store import accounts, datasets, models, simulations
from core.store import shares as store
from core.store.database import Connection, Database
from core.store.shares import ShareRow

#: What is not there, by kind.
_UNKNOWN_ERRORS: dict[SharedKind, Callable[[str], PlatformError]] = {
    SharedKind.MODELS: UnknownModel,
    SharedKind.DATASETS: UnknownDataset,
    SharedKind.SIMULATIONS: UnknownSimulation,
}


class Shares:
    """Service of shares."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def share(self, caller: Caller, kind: SharedKind, ref: str, project: str) -> None:
        """Let a project read what a reference names: by a name alone all its versions, also later ones. Idempotent.

        Raise UnknownProject; UnknownModel, UnknownDataset or UnknownSimulation for what is not one's own project's.
        """
        if project == caller.scope.owner:
            raise Invalid(f"It is of the project {project} already. Name the project that may read it.")

        def write(c: Connection) -> None:
            name, version = _share_name(c, caller, kind, ref)
            other = accounts.project(c, project)
            if other is None or other.state not in (ProjectState.OPEN, ProjectState.CLOSED):
                raise UnknownProject(f"There is no project {project!r} to share it with.")
            share = {"owner": caller.scope.owner, "kind": kind.value, "name": name, "version_id": version}
            made = {"shared_by": caller.name, "created_at": self._database.now(c)}
            store.add(c, {"id": new_id(datetime.now(UTC))} | share | {"shared_with": project} | made)

        self._database.write(write)

    def unshare(self, caller: Caller, kind: SharedKind, ref: str, project: str) -> None:
        """End a share: at once what was shared is not found there any more. Raise NotFound.

        Simulations there go on, and results stay.
        """

        def write(c: Connection) -> bool:
            name, version = _share_name(c, caller, kind, ref)
            return store.remove(c, caller.scope.owner, kind, name, version, project)

        if not self._database.write(write):
            raise NotFound(f"{ref[:100]!r} is not shared with {project!r}. `GET /v1/shares` lists what is.")

    def page(self, caller: Caller, *, after: str | None = None, limit: int = 50) -> tuple[list[ShareRow], str | None]:
        """Return a page of what the caller's project shares and what is shared with it, and the cursor of the next."""
        with self._database.read() as c:
            rows = store.page(c, caller.scope.owner, after, limit + 1)
        return rows[:limit], rows[limit - 1].id if len(rows) > limit else None


def _share_name(c: Connection, caller: Caller, kind: SharedKind, ref: str) -> tuple[str, str]:
    """Return the name that a share has, and the id of the version; empty: all of the name."""
    ref = local_reference(ref, caller.scope.project)
    if kind is SharedKind.SIMULATIONS:
        return simulations.find(c, caller.scope, ref).id, ref
    find = models.find if kind is SharedKind.MODELS else datasets.find
    row = find(c, caller.scope, ref)
    if row is None:
        raise _UNKNOWN_ERRORS[kind](
            f"Your project has no such thing: {ref[:100]!r}. Only what is its own can be shared."
        )
    if kind is SharedKind.MODELS:  # a deletion that comes between would leave a share of what is not there
        models.hold_version(c, caller.scope, row.id)
    else:
        datasets.lock_ready(c, caller.scope, row.id)
    return row.name, "" if ref == row.name else row.id
