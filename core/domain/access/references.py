"""References to what another project shares: ``team-a/brake@gold`` is the version gold of what team-a calls brake."""

from core.domain.access.scopes import Scope


def split_reference(ref: str) -> tuple[str, str]:
    """Return the project that a reference names, or an empty text, and the rest of it."""
    project, _, rest = ref.rpartition("/")
    return project, rest


def scope_of_owner(name: str, scope: Scope) -> tuple[Scope, str]:
    """Return the scope of the project that a name begins with, or else ``scope``, and the name within it."""
    owner, rest = split_reference(name)
    return Scope(owner) if owner else scope, rest


def local_reference(ref: str, project: str | None) -> str:
    """Return a reference as it is within a project: without the name of that project, if it begins with it."""
    return ref.removeprefix(f"{project}/") if project else ref


def shared_name(owner: str, name: str, reader: str | None) -> str:
    """Return the name of what an owner has for a reader: its own for the owner, and for those who read everything."""
    return name if reader in (None, "", owner) else f"{owner}/{name}"
