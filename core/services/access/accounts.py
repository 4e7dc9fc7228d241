"""Accounts: projects, users, members and tokens, as operators and maintainers change them."""

import builtins
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime

from common.errors import Invalid, NameTaken, NotPermitted, Unauthorized, UnknownProject, UnknownToken, UnknownUser
from common.ids import new_id
from core.domain.access.credentials import INVITATION_PREFIX, digest_of, is_well_formed, new_credential
from core.domain.access.identities import (
    FIRST_OPERATOR,
    LEGACY_USER,
    MEMBERS,
    UNUSABLE_NAMES,
    ProjectState,
    check_gives,
    check_name,
    service_name,
)
from core.domain.access.name_patterns import ALL_NAMES, NamePatterns
from core.domain.access.roles import AccessRole, Verb
from core.domain.access.scopes import DEFAULT_PROJECT, NOWHERE, Caller
from core.services.access.browser_sessions import lock_token
from core.store import accounts as store
from core.store.accounts import MemberRow, ProjectRow, TokenRow, UserRow
from core.store.database import Connection, Database
from core.store.recording import note_sign_in

#: Seconds for which an invitation can be used.
INVITATION_LIFE = 7 * 86_400.0
#: Names that nobody gets: they mean something where names of users are shown.
RESERVED_NAMES = frozenset({"local", "platform", LEGACY_USER})
#: Name of the token that the operator has set himself.
OWN_TOKEN = "WINDTUNNEL_TOKEN"
#: Lock under which projects, users and members are made, so that each is made once.
BEGINNING = "accounts"
_BAD_INVITATION = "This invitation is not valid: it was used, is too old, or is that of another user."


@dataclass(frozen=True, kw_only=True, slots=True)
class NewToken:
    """A token that is asked for. ``expires_in``: seconds; None in any: it has no such limit."""

    name: str
    role: AccessRole | None = None
    verbs: Collection[Verb] | None = None
    expires_in: float | None = None
    patterns: NamePatterns = ALL_NAMES


class Accounts:
    """Service of projects, users, members and tokens. Whom a route lets in is decided before (`Caller.require`)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # -- projects

    def create_project(self, caller: Caller, name: str) -> ProjectRow:
        """Create a project. Raise Invalid, or NameTaken if there is or was one of this name."""
        check_name(name, "project")

        def write(c: Connection) -> ProjectRow:
            if not store.add_project(c, name, caller.user, self._database.now(c)):
                raise NameTaken(f"The name {name!r} is that of a project, or was; choose another one.")
            return _project(c, name)

        with self._database.exclusive(BEGINNING):
            return self._database.write(write)

    def project(self, caller: Caller) -> ProjectRow:
        """Return the project of a caller."""
        with self._database.read() as c:
            return _project(c, caller.scope.owner)

    def projects(self, *, after: str = "", limit: int = 50) -> tuple[list[ProjectRow], str | None]:
        """Return a page of all projects, by name, and the cursor of the next."""
        with self._database.read() as c:
            rows = store.projects_after(c, after, limit + 1)
        return rows[:limit], rows[limit - 1].name if len(rows) > limit else None

    # -- users

    def create_user(self, caller: Caller, name: str, *, operator: bool = False) -> tuple[UserRow, str]:
        """Create a user; return him and the text of his invitation, which is not kept. Raise Invalid, NameTaken."""
        check_name(name, "user")
        if operator:
            check_whole(caller)
            check_gives(caller, AccessRole.OPERATOR)
        if name in RESERVED_NAMES:
            raise NameTaken(f"The name {name!r} is the platform's; choose another one.")
        invitation = new_credential(INVITATION_PREFIX)

        def write(c: Connection) -> UserRow:
            now = self._database.now(c)
            values: dict[str, object] = {"state": "active", "operator": int(operator)}
            values |= {"invitation": digest_of(invitation), "invited_until": now + INVITATION_LIFE}
            if not store.add_user(c, name, values | {"created_by": caller.user, "created_at": now}):
                raise NameTaken(f"The name {name!r} is that of a user, or was; choose another one.")
            return _user(c, name)

        with self._database.exclusive(BEGINNING):
            return self._database.write(write), invitation

    def users(self, *, after: str = "", limit: int = 50) -> tuple[builtins.list[UserRow], str | None]:
        """Return a page of the users, by name, and the cursor of the next."""
        with self._database.read() as c:
            rows = store.users_after(c, after, limit + 1)
        return rows[:limit], rows[limit - 1].name if len(rows) > limit else None

    def remove_user(self, caller: Caller, name: str) -> None:
        """Let a user leave: his memberships end, and his tokens and sessions are refused from then on.

        Raise UnknownUser; Invalid for the last operator, without whom nobody could administer the platform.
        """

        def write(c: Connection) -> None:
            if store.operators(c) == [name]:
                raise Invalid(f"{name} is the last operator. Make another user one first.")
            if not store.leave(c, name, self._database.now(c)):
                raise UnknownUser(f"There is no user {name!r}.")

        with self._database.exclusive(BEGINNING):
            self._database.write(write)

    # -- members

    def members(self, caller: Caller) -> builtins.list[MemberRow]:
        """Return the members of the caller's project, by name."""
        with self._database.read() as c:
            return store.members_of(c, caller.scope.owner)

    def put_member(self, caller: Caller, user: str, role: AccessRole) -> None:
        """Give a user a role in the caller's project. Raise UnknownUser, NotPermitted, Invalid."""
        if role not in MEMBERS:
            raise Invalid(f"Members of a project are {', '.join(MEMBERS)}; an operator is one of the platform.")
        check_gives(caller, role)
        project = caller.scope.owner

        def write(c: Connection) -> None:
            known = store.account_in(c, project, user)
            if known is None:
                raise _unknown_user(user)
            store.put_member(c, project, known.name, role, self._database.now(c))

        with self._database.exclusive(BEGINNING):
            self._database.write(write)

    def drop_member(self, caller: Caller, user: str) -> None:
        """End a user's membership of the caller's project. Raise UnknownUser."""
        project = caller.scope.owner

        def write(c: Connection) -> bool:
            known = store.account_in(c, project, user)
            return known is not None and store.drop_member(c, project, known.name, self._database.now(c))

        if not self._database.write(write):
            raise UnknownUser(f"The project {project} has no member {user[:81]!r}.")

    def create_service(self, caller: Caller, name: str, role: AccessRole) -> UserRow:
        """Create a service account of the caller's project, with a role there. Raise Invalid, NotPermitted, NameTaken.

        Taken is what the project's own accounts and members are called: who else there is on the platform is not told.
        """
        check_name(name, "service account")
        check_gives(caller, role)
        if name in RESERVED_NAMES | UNUSABLE_NAMES:
            raise NameTaken(f"The name {name!r} is the platform's; choose another one.")
        project = caller.scope.owner
        stored = service_name(project, name)

        def write(c: Connection) -> UserRow:
            now = self._database.now(c)
            values = {"state": "active", "service": project, "created_by": caller.user, "created_at": now}
            if name in store.names_in(c, project) or not store.add_user(c, stored, values):
                raise NameTaken(f"The name {name!r} is taken in project {project}, or was; choose another one.")
            store.put_member(c, project, stored, role, now)
            return _user(c, stored)

        with self._database.exclusive(BEGINNING):
            return self._database.write(write)

    # -- tokens

    def issue(self, caller: Caller, asked: NewToken, *, user: str | None = None) -> tuple[TokenRow, str]:
        """Make a token that is bound to the caller's project; return it, and its text, which is not kept.

        ``user``: a service account of the project, whose token it is; None: the caller's own. A limited token makes one
        only if it administers the project. Raise NotPermitted if it would do more than the caller may.
        """
        if asked.role not in MEMBERS:
            raise Invalid(f"The role of a token of a project is {', '.join(MEMBERS)}.")
        check_gives(caller, AccessRole(asked.role), None if asked.verbs is None else frozenset(asked.verbs))
        if caller.limited and not caller.credential:  # it has no row, so that what it makes would not end with it
            raise NotPermitted("A service account of a cluster makes no tokens: they would outlive its pod.")
        if caller.patterns:
            raise NotPermitted("This token is limited to some models or datasets: it makes no other. Use another one.")
        if (
            user is not None or caller.limited
        ):  # it would go on when its maker leaves, or when a leaked token is revoked
            caller.require(Verb.ADMINISTER)
        project = caller.scope.owner

        def owner(c: Connection) -> str:
            if user is None:
                return caller.user
            known = store.account_in(c, project, user)
            if known is None or known.service != project:
                raise UnknownUser(f"The project {project} has no service account {user[:81]!r}.")
            return known.name

        return self._add(caller, asked, owner, bound_to=project)

    def issue_personal(self, caller: Caller, user: str, asked: NewToken) -> tuple[TokenRow, str]:
        """Make a token for all projects of a user: for oneself, or as an operator. Raise UnknownUser, NotPermitted."""
        check_whole(caller)
        if user != caller.user or asked.role is AccessRole.OPERATOR:
            caller.require(Verb.OPERATE)
        return self._add(caller, asked, lambda c: _user(c, user).name)

    def redeem(self, user: str, invitation: str, asked: NewToken) -> tuple[TokenRow, str]:
        """Use up a user's invitation for his first token. Raise Unauthorized, whatever is wrong with it."""
        digest = digest_of_invitation(invitation)

        def owner(c: Connection) -> str:
            use_invitation(c, user, digest, self._database.now(c))
            note_sign_in(c, user)
            return user

        return self._add(Caller(NOWHERE, user=user), asked, owner)

    def _add(
        self, caller: Caller, asked: NewToken, owner: Callable[[Connection], str], *, bound_to: str | None = None
    ) -> tuple[TokenRow, str]:
        text = new_credential()

        def write(c: Connection) -> TokenRow:
            now = self._database.now(c)
            ends = [] if asked.expires_in is None else [now + asked.expires_in]
            if caller.credential:  # what it makes ends with it at the latest
                ends += [made_with.expires_at] if (made_with := lock_token(c, caller.credential)).expires_at else []
            return store.add_token(
                c,
                {
                    "id": new_id(datetime.now(UTC)),
                    "digest": digest_of(text),
                    "user": owner(c),
                    "name": asked.name,
                    "bound_to": bound_to,
                    "role": asked.role,
                    "verbs": None if asked.verbs is None else json.dumps(sorted(asked.verbs)),
                    "patterns": asked.patterns.text,
                    "created_by": caller.user,
                    "created_at": now,
                    "expires_at": min(ends, default=None),
                },
            )

        return self._database.write(write), text

    def tokens(self, caller: Caller) -> builtins.list[TokenRow]:
        """Return the tokens of the caller's project: for a maintainer all, for others their own."""
        with self._database.read() as c:
            rows = store.tokens_of(c, project=caller.scope.owner)
        if Verb.ADMINISTER in caller.verbs:
            return rows
        own = [row for row in rows if caller.user in (row.user, row.created_by)]
        return [row for row in own if not caller.limited or row.id == caller.credential]

    def personal_tokens(self, caller: Caller, user: str) -> builtins.list[TokenRow]:
        """Return the personal tokens and the sessions of a user, for himself or an operator."""
        check_whole(caller)
        if user != caller.user:
            caller.require(Verb.OPERATE)
        with self._database.read() as c:
            return [row for row in store.tokens_of(c, user=_user(c, user).name) if row.bound_to is None]

    def revoke(self, caller: Caller, id: str) -> None:
        """Revoke a token of the caller's project, with the sessions that began with it. Raise UnknownToken."""

        def write(c: Connection) -> None:
            row = store.token(c, id)
            if row is None or row.bound_to != caller.scope.owner:
                raise UnknownToken
            own = caller.user in (row.user, row.created_by) and not caller.limited
            if Verb.ADMINISTER not in caller.verbs and not own and caller.credential != row.id:
                raise UnknownToken  # which others have is not shown either
            store.revoke(c, id, self._database.now(c))

        self._database.write(write)

    def revoke_personal(self, caller: Caller, user: str, id: str) -> None:
        """Revoke a personal token, or end a session, of oneself or as an operator. Raise UnknownToken.

        A limited token may end itself alone.
        """
        if caller.credential != id:
            check_whole(caller)
        if user != caller.user:
            caller.require(Verb.OPERATE)

        def write(c: Connection) -> None:
            row = store.token(c, id)
            if row is None or row.bound_to is not None or row.user != user:
                raise UnknownToken
            store.revoke(c, id, self._database.now(c))

        self._database.write(write)

    # -- the beginning

    def has_operator(self) -> bool:
        """Return whether there is an operator already."""
        with self._database.read() as c:
            return bool(store.operators(c))

    def begin(self, own_token: str) -> None:
        """Make sure that there are the first project and an operator, whose token ``own_token`` is from then on.

        It takes the place of the one that was set before; a revoked one stays revoked. Idempotent, also in several
        processes at once.
        """

        def write(c: Connection) -> None:
            now = self._database.now(c)
            store.add_project(c, DEFAULT_PROJECT, FIRST_OPERATOR, now)
            first: dict[str, object] = {"state": "active", "operator": 1}
            if store.add_user(c, FIRST_OPERATOR, first | {"created_by": "", "created_at": now}):
                store.put_member(c, DEFAULT_PROJECT, FIRST_OPERATOR, AccessRole.MAINTAINER, now)
            if not store.has_digest(c, digest_of(own_token)):
                store.revoke_named(c, FIRST_OPERATOR, OWN_TOKEN, now)  # a new one takes the place of the one before
                described: dict[str, object] = {"user": FIRST_OPERATOR, "name": OWN_TOKEN, "created_by": ""}
                identity = {"id": new_id(datetime.now(UTC)), "digest": digest_of(own_token), "created_at": now}
                store.add_token(c, described | identity)

        with self._database.exclusive(BEGINNING):
            self._database.write(write)


def digest_of_invitation(invitation: str) -> str:
    """Return the digest of an invitation. Raise Unauthorized for a text that is none."""
    if not is_well_formed(invitation, INVITATION_PREFIX):
        raise Unauthorized(_BAD_INVITATION)
    return digest_of(invitation)


def use_invitation(c: Connection, user: str, digest: str, now: float) -> None:
    """Use up an invitation of a user. Raise Unauthorized, whatever is wrong with it."""
    if not store.take_invitation(c, user, digest, now):
        raise Unauthorized(_BAD_INVITATION)


def check_whole(caller: Caller) -> None:
    """Raise NotPermitted for a limited token: with it, nobody gets or ends one that may do more."""
    if caller.limited:
        raise NotPermitted(
            "This token is limited to a project, a role, verbs or names. Sign in as yourself for personal tokens."
        )


def _project(c: Connection, name: str) -> ProjectRow:
    row = store.project(c, name)
    if row is None or row.state == ProjectState.DELETED:
        raise UnknownProject
    return row


def _user(c: Connection, name: str) -> UserRow:
    row = store.user(c, name)
    if row is None:
        raise _unknown_user(name)
    return row


def _unknown_user(name: str) -> UnknownUser:
    return UnknownUser(f"There is no user {name[:81]!r}.")
