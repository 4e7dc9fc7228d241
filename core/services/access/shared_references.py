"""Lookup of references: in one's own project first, then in what others share with it."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from common.errors import Invalid
from core.domain.access.references import local_reference, scope_of_owner, shared_name, split_reference
from core.domain.access.scopes import Caller, ReadScope, Scope
from core.domain.access.shared_kinds import SharedKind
from core.store import datasets, models, shares
from core.store.database import Connection


class NamedVersion(Protocol):
    """A version of a model or a dataset."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def project(self) -> str:
        """Whose it is."""

    @property
    def name(self) -> str:
        """Its name there."""

    @property
    def version(self) -> int | None:
        """Its number; a dataset that is being registered has none yet."""


Row = TypeVar("Row", bound=NamedVersion)
_TAGS = {SharedKind.MODELS: models.tags, SharedKind.DATASETS: datasets.tags}


def scope_of_name(c: Connection, caller: Caller, kind: SharedKind, ref: str) -> tuple[Scope | ReadScope, str]:
    """Return where a reference is looked up that one's own project does not have, and what is looked up there.

    Raise Invalid for a name that several projects share.
    """
    project = caller.scope.project
    if not project:
        return scope_of_owner(ref, caller.scope)
    owner, rest = split_reference(local_reference(ref, project))
    if not owner:
        owners = shares.owners(c, project, kind, rest.partition("@")[0])
        if len(owners) > 1:
            named = " or ".join(f"{each}/{rest[:100]}" for each in owners[:5])
            raise Invalid(f"Several projects share {kind} of this name with yours. Say which: {named}.")
        owner = "".join(owners)
    return ReadScope(project, owner), rest


def find_readable(
    c: Connection,
    caller: Caller,
    kind: SharedKind,
    ref: str,
    find: Callable[[Connection, Scope | ReadScope, str], Row | None],
) -> Row | None:
    """Return what a caller may read by a reference, such as ``brake@gold`` or ``team-a/brake``; None: nothing.

    Raise NotPermitted for what its token is not for.
    """
    own = local_reference(ref, caller.scope.project)
    if "/" not in own and (row := find(c, caller.scope, own)) is not None:
        return checked_version(c, caller, kind, row)
    scope, rest = scope_of_name(c, caller, kind, own)
    return None if scope == caller.scope else checked_version(c, caller, kind, find(c, scope, rest))


def checked_version(c: Connection, caller: Caller, kind: SharedKind, row: Row | None) -> Row | None:
    """Return a version, if there is one; raise NotPermitted if the caller's token is not for it."""
    if row is not None and kind in caller.patterns.by_kind:
        versions = [] if row.version is None else [str(row.version)]
        if caller.patterns.needs_versions(kind):
            versions += _TAGS[kind].of_versions(c, Scope(row.project), [row.id]).get(row.id, [])
        caller.patterns.require(kind, shared_name(row.project, row.name, caller.scope.project), versions)
    return row


def tags_of_rows(c: Connection, kind: SharedKind, rows: Sequence[NamedVersion]) -> dict[str, list[str]]:
    """Return the tags of versions of several projects, by version id."""
    by_version: dict[str, list[str]] = {}
    for owner in sorted({row.project for row in rows}):
        by_version |= _TAGS[kind].of_versions(c, Scope(owner), [row.id for row in rows if row.project == owner])
    return by_version
