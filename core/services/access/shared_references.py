"""Lookup of references: in one's own project first, then in what others share with it."""

from collections.abc import Callable
from typing import TypeVar

from common.errors import Invalid
from core.domain.access.references import local_reference, scope_of_owner, split_reference
from core.domain.access.scopes import Caller, ReadScope, Scope
from core.domain.access.shared_kinds import SharedKind
from core.store import shares
from core.store.database import Connection

Row = TypeVar("Row")


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
    """Return what a caller may read by a reference, such as ``brake@gold`` or ``team-a/brake``; None: nothing."""
    own = local_reference(ref, caller.scope.project)
    if "/" not in own and (row := find(c, caller.scope, own)) is not None:
        return row
    scope, rest = scope_of_name(c, caller, kind, own)
    return None if scope == caller.scope else find(c, scope, rest)
