"""Identities: who a credential is at this moment, and what that lets a request do in a project. Pure decisions.

A token's right is its grant and its maker's right, both at the time of the request: who leaves a project takes with him
what his tokens could do there.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from common.errors import Invalid, NotPermitted, UnknownProject
from core.domain.access.name_patterns import ALL_NAMES, NamePatterns
from core.domain.access.roles import VERBS, AccessRole, Verb
from core.domain.access.scopes import IN_CLOSED, LOCAL_CALLER, NOWHERE, Caller, Scope

#: Names of projects and users: DNS labels (RFC 1123, section 2.1) of at most 40 characters.
NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
#: Names of accounts in records: a user's, or those of a service account's project and its own.
ACCOUNT = re.compile(rf"(?:{NAME.pattern}/)?{NAME.pattern}")
#: What service accounts are not called, because it follows the name of a user in addresses.
UNUSABLE_NAMES = frozenset({"quotas", "tokens"})
#: User with whom a platform with accounts begins.
FIRST_OPERATOR = "operator"
#: Roles that members of a project have; an operator is one of the platform.
MEMBERS = (AccessRole.VIEWER, AccessRole.SUBMITTER, AccessRole.MAINTAINER)


class ProjectState(StrEnum):
    """A project accepts work, or is closed, or is being deleted, or is removed; its name is never used again."""

    OPEN = "open"
    CLOSED = "closed"
    DELETED = "deleted"  # for everybody; jobs delete what it has
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class ProjectMembership:
    """A role in a project, and whether that is closed."""

    role: AccessRole
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """The limits of a credential: a project, a role, verbs; None: it has no such limit.

    ``closed``: whether that project is. ``patterns``: of the names of models and datasets; with some it administers
    nothing, because what it gave others would have no such limit.
    """

    project: str | None = None
    role: AccessRole | None = None
    verbs: frozenset[Verb] | None = None
    closed: bool = False
    patterns: NamePatterns = ALL_NAMES


@dataclass(frozen=True, slots=True)
class UserIdentity:
    """Who a credential is: a user with memberships by project, as an ``operator`` or not, and the credential's grant.

    ``credential``: the id of the token or session, for records; ``by``: its kind.
    """

    user: str
    operator: bool = False
    memberships: Mapping[str, ProjectMembership] = field(default_factory=dict)
    grant: Grant = Grant()
    credential: str = ""
    by: str = "token"

    @property
    def projects(self) -> dict[str, ProjectMembership]:
        """The memberships that the credential may use, by project."""
        grant = self.grant
        usable = {name: one for name, one in self.memberships.items() if grant.project in (None, name)}
        if self.operator and grant.project is not None:
            usable.setdefault(grant.project, ProjectMembership(AccessRole.MAINTAINER, grant.closed))
        return usable

    def act_in(self, project: str | None, address: str = "", *, closed: bool = False) -> Caller:
        """Return the caller that this identity is in a project; None: in its only one, or in none.

        An operator acts in any project by naming it, as a maintainer; whether there is such a project is not known
        here, nor whether it is ``closed``. Raise UnknownProject for a project that is not one of the identity's.
        """
        projects = self.projects
        if project is None and len(projects) == 1:
            [project] = projects
        platform = VERBS[AccessRole.OPERATOR] - VERBS[AccessRole.MAINTAINER] if self._operates else frozenset[Verb]()
        if project is None:
            return self._caller(NOWHERE, platform, address)
        membership = projects.get(project)
        if self._operates:
            closed = membership.closed if membership is not None else closed
            membership = ProjectMembership(AccessRole.MAINTAINER, closed)
        if membership is None:
            raise UnknownProject
        verbs = VERBS[membership.role] & VERBS[self.grant.role or AccessRole.MAINTAINER]
        if membership.closed:
            verbs &= IN_CLOSED
        caller = self._caller(Scope(project), verbs | platform, address)
        return replace(caller, closed=True) if membership.closed else caller

    @property
    def _operates(self) -> bool:
        return self.operator and self.grant.project is None and self.grant.role in (None, AccessRole.OPERATOR)

    def _caller(self, scope: Scope, verbs: frozenset[Verb], address: str) -> Caller:
        if self.grant.verbs is not None:
            verbs &= self.grant.verbs
        if self.grant.patterns:
            verbs -= {Verb.ADMINISTER, Verb.OPERATE}
        limited = self.grant != Grant()
        # The first operator's token is that of the platform before it had accounts, and so are its idempotency keys.
        local = self.user in ("", FIRST_OPERATOR)
        principal = LOCAL_CALLER.principal if local else f"user:{self.user}"
        return Caller(
            scope, principal, address, verbs, self.user, limited, self.credential, patterns=self.grant.patterns
        )


#: The user in records of what requests without a token submit; nobody may have the name.
LEGACY_USER = "legacy"


def legacy_identity(project: str) -> UserIdentity:
    """Return who a request of API 1.0 without a token is: a submitter in one project, who may do nothing else."""
    membership = {project: ProjectMembership(AccessRole.SUBMITTER)}
    return UserIdentity(
        LEGACY_USER, memberships=membership, grant=Grant(project, verbs=frozenset({Verb.SUBMIT})), by="nothing"
    )


def check_name(name: str, what: str) -> None:
    """Raise Invalid for a text that cannot be the name of a project or a user."""
    if not NAME.fullmatch(name):
        raise Invalid(
            f"The name of a {what} has up to 40 lower-case letters, digits and dashes, and begins and ends with a"
            " letter or a digit."
        )


def service_name(project: str, name: str) -> str:
    """Return the name in records of a project's service account, which no person and no other project's can have."""
    return name if "/" in name else f"{project}/{name}"


def check_gives(giver: Caller, role: AccessRole, verbs: frozenset[Verb] | None = None) -> None:
    """Raise NotPermitted if a user would give a role, or verbs, with more than he has himself."""
    given = VERBS[role] if verbs is None else VERBS[role] & verbs
    if not given <= giver.verbs:
        raise NotPermitted(
            f"Nobody gives what he has not: you may not {' or '.join(sorted(given - giver.verbs))} here."
        )
