"""Accounts in SQL: projects, users, members and tokens. Rows of projects and users stay, so that no name is used again.

They are not owned by a project: who may read and change them is decided by the service (core/services/access).
"""

from collections.abc import Mapping
from typing import cast

from sqlalchemy import ColumnElement, Connection, Float, and_, bindparam, delete, func, insert, or_, select, update

from common.errors import ProjectClosed
from core.domain.access.identities import ProjectState, service_name
from core.domain.access.roles import AccessRole
from core.domain.access.submitters import SubmitterRight, submitter_right
from core.store import sign_ins
from core.store.database_clock import DatabaseClock
from core.store.recording import note
from core.store.rows import StoredRow, columns_of, read_row, read_rows
from core.store.tables import members, projects, tokens, users


class ProjectRow(StoredRow, frozen=True, gc=False):
    """A project."""

    name: str
    state: str
    created_by: str
    created_at: float
    closed_at: float | None


class UserRow(StoredRow, frozen=True, gc=False):
    """A person, or the service account of a project."""

    name: str
    state: str
    operator: int
    service: str | None
    away_since: float | None
    invitation: str | None
    invited_until: float
    created_by: str
    created_at: float
    left_at: float | None


class MemberRow(StoredRow, frozen=True, gc=False):
    """Who is in a project, as what. ``service``: the project whose service account the member is."""

    member_of: str
    user: str
    role: str
    since: float
    service: str | None


class TokenRow(StoredRow, frozen=True, gc=False):
    """A token, without what it is: that is known to who has it."""

    id: str
    user: str
    name: str
    session_of: str | None
    bound_to: str | None
    role: str | None
    verbs: str | None
    patterns: str | None
    created_by: str
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    used_at: float | None
    used_from: str | None


class CredentialRow(StoredRow, frozen=True, gc=False):
    """A valid token with a membership of its user; a row for each, one with None if there is none."""

    id: str
    user: str
    session_of: str | None
    bound_to: str | None
    role: str | None
    verbs: str | None
    patterns: str | None
    used_at: float | None
    operator: int
    its_project: str | None
    member_role: str | None
    project_state: str | None
    bound_state: str | None
    now: float


#: The time of the check, read by the query that checks: by the database's clock, unless it is given.
_CHECK_TIME = func.coalesce(bindparam("now", type_=Float(53)), DatabaseClock(), type_=Float(53))
#: The project that a token is bound to, whose user need not be a member of it.
_BOUND = projects.alias()
_CREDENTIAL = (
    select(
        *columns_of(
            tokens,
            CredentialRow,
            operator=users.c.operator,
            its_project=members.c.member_of,
            member_role=members.c.role,
            project_state=projects.c.state,
            bound_state=_BOUND.c.state,
            now=cast(ColumnElement[object], _CHECK_TIME),
        )
    )
    .join(users, and_(users.c.name == tokens.c.user, users.c.state == "active", users.c.away_since.is_(None)))
    .join(members, members.c.user == tokens.c.user, isouter=True)
    .join(projects, projects.c.name == members.c.member_of, isouter=True)
    .join(_BOUND, _BOUND.c.name == tokens.c.bound_to, isouter=True)
    .where(
        tokens.c.digest == bindparam("digest"),
        tokens.c.revoked_at.is_(None),
        or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > _CHECK_TIME),
    )
)


# -- projects

_LISTED_STATES = (ProjectState.OPEN.value, ProjectState.CLOSED.value)


def add_project(c: Connection, name: str, by: str, now: float) -> bool:
    """Insert a project; False if there is or was one of this name."""
    if project(c, name) is not None:
        return False
    c.execute(insert(projects).values(name=name, state=ProjectState.OPEN.value, created_by=by, created_at=now))
    note(c, f"projects/{name}")
    return True


def move_project(c: Connection, name: str, before: ProjectState, after: ProjectState, now: float) -> bool:
    """Change the state of a project; False if it is not ``before``. Tokens of a deleted one are revoked."""
    moving = update(projects).where(projects.c.name == name, projects.c.state == before.value)
    if c.execute(moving.values(state=after.value, closed_at=now).returning(projects.c.name)).first() is None:
        return False
    if after is ProjectState.DELETED:
        bound = update(tokens).where(tokens.c.bound_to == name, tokens.c.revoked_at.is_(None))
        c.execute(bound.values(revoked_at=now))
    return True


def ending_projects(c: Connection) -> list[tuple[str, str]]:
    """Return name and state of the projects that are closed, or that are being deleted."""
    ending = (ProjectState.CLOSED.value, ProjectState.DELETED.value)
    rows = c.execute(select(projects.c.name, projects.c.state).where(projects.c.state.in_(ending)))
    return [(name, state) for name, state in rows]


def require_open(c: Connection, name: str) -> None:
    """Raise ProjectClosed if a project accepts nothing new."""
    if (row := project(c, name)) is not None and row.state != ProjectState.OPEN:
        raise ProjectClosed(f"The project {name} is closed: nothing new begins in it.")


def project(c: Connection, name: str) -> ProjectRow | None:
    """Return a project, also one that is closed or deleted."""
    query = select(*columns_of(projects, ProjectRow)).where(projects.c.name == name)
    return read_row(c.execute(query).first(), ProjectRow)


def projects_after(c: Connection, after: str, limit: int) -> list[ProjectRow]:
    """Return projects that are not deleted, by name."""
    query = select(*columns_of(projects, ProjectRow)).where(
        projects.c.name > after, projects.c.state.in_(_LISTED_STATES)
    )
    return read_rows(c.execute(query.order_by(projects.c.name).limit(limit)), ProjectRow)


# -- users


def add_user(c: Connection, name: str, values: Mapping[str, object]) -> bool:
    """Insert a user; False if there is or was one of this name."""
    if c.execute(select(users.c.name).where(users.c.name == name)).first() is not None:
        return False
    c.execute(insert(users).values(name=name, **values))
    note(c, f"users/{name}")
    return True


def user(c: Connection, name: str) -> UserRow | None:
    """Return a user who has not left."""
    query = select(*columns_of(users, UserRow)).where(users.c.name == name, users.c.state == "active")
    return read_row(c.execute(query).first(), UserRow)


def account_in(c: Connection, project: str, name: str) -> UserRow | None:
    """Return who has a name in a project: its service account, or else a user; not that of another project.

    A service account of earlier versions has a short name in its row too.
    """
    for stored in dict.fromkeys((service_name(project, name), name)):
        if (row := user(c, stored)) is not None and row.service in (None, project):
            return row
    return None


def users_after(c: Connection, after: str, limit: int) -> list[UserRow]:
    """Return users who have not left, by name."""
    query = select(*columns_of(users, UserRow)).where(users.c.name > after, users.c.state == "active")
    return read_rows(c.execute(query.order_by(users.c.name).limit(limit)), UserRow)


def operators(c: Connection) -> list[str]:
    """Return the operators who have not left."""
    return list(c.scalars(select(users.c.name).where(users.c.operator == 1, users.c.state == "active")))


def take_invitation(c: Connection, name: str, digest: str, now: float) -> bool:
    """Use up the invitation of a user; False if it is another one, was used, or is too old."""
    invited = and_(users.c.name == name, users.c.state == "active", users.c.invitation == digest)
    using = update(users).where(invited, users.c.invited_until > now).values(invitation=None)
    return c.execute(using.returning(users.c.name)).first() is not None


def leave(c: Connection, name: str, now: float) -> bool:
    """Let a user leave: his memberships end, and his tokens are revoked; False if there is no such user."""
    leaving = update(users).where(users.c.name == name, users.c.state == "active")
    if c.execute(leaving.values(state="left", left_at=now, invitation=None).returning(users.c.name)).first() is None:
        return False
    c.execute(delete(members).where(members.c.user == name))
    c.execute(update(tokens).where(tokens.c.user == name, tokens.c.revoked_at.is_(None)).values(revoked_at=now))
    sign_ins.forget_ways(c, name)
    return True


# -- members


def put_member(c: Connection, project: str, user: str, role: str, now: float, *, given_by: str | None = None) -> None:
    """Give a user a role in a project, in place of the one that he has there; ``given_by``: an identity provider."""
    where = and_(members.c.member_of == project, members.c.user == user)
    changing = update(members).where(where).values(role=role, given_by=given_by)
    if c.execute(changing.returning(members.c.user)).first() is None:
        c.execute(insert(members).values(member_of=project, user=user, role=role, since=now, given_by=given_by))


def drop_member(c: Connection, project: str, user: str, now: float) -> bool:
    """End a membership, and revoke the tokens of the project that the user has; False if there is none."""
    where = and_(members.c.member_of == project, members.c.user == user)
    bound = update(tokens).where(tokens.c.user == user, tokens.c.bound_to == project, tokens.c.revoked_at.is_(None))
    c.execute(bound.values(revoked_at=now))
    return c.execute(delete(members).where(where).returning(members.c.user)).first() is not None


def members_of(c: Connection, project: str) -> list[MemberRow]:
    """Return the members of a project, by name."""
    columns = columns_of(members, MemberRow, service=users.c.service)
    query = select(*columns).join(users, users.c.name == members.c.user).where(members.c.member_of == project)
    return read_rows(c.execute(query.order_by(members.c.user)), MemberRow)


def names_in(c: Connection, project: str) -> frozenset[str]:
    """Return the names of the members of a project, and of its service accounts, also of those that have left."""
    services = c.scalars(select(users.c.name).where(users.c.service == project))
    return frozenset([*services, *c.scalars(select(members.c.user).where(members.c.member_of == project))])


def right_to_submit(c: Connection, project: str, user: str) -> SubmitterRight:
    """Return whether something new may be submitted in a project in a user's name; who has no row may."""
    joined = and_(members.c.user == users.c.name, members.c.member_of == project)
    query = select(users.c.state, users.c.operator, users.c.away_since, members.c.role)
    row = c.execute(query.join(members, joined, isouter=True).where(users.c.name == user)).first()
    if row is None:
        return SubmitterRight.MAY
    state, operator, away_since, role = row
    return submitter_right(
        active=state == "active",
        operator=bool(operator),
        role=None if role is None else AccessRole(role),
        away=away_since is not None,
    )


# -- tokens


def add_token(c: Connection, values: Mapping[str, object]) -> TokenRow:
    """Insert a token."""
    adding = insert(tokens).values(**values).returning(*columns_of(tokens, TokenRow))
    [added] = read_rows(c.execute(adding), TokenRow)
    note(c, f"tokens/{added.id}")
    return added


def tokens_of(c: Connection, *, project: str | None = None, user: str | None = None) -> list[TokenRow]:
    """Return the tokens that are bound to a project, or those of a user, which are not revoked, newest first."""
    owned = tokens.c.bound_to == project if project is not None else tokens.c.user == user
    query = select(*columns_of(tokens, TokenRow)).where(owned, tokens.c.revoked_at.is_(None))
    return read_rows(c.execute(query.order_by(tokens.c.id.desc())), TokenRow)


def token(c: Connection, id: str, *, lock: bool = False) -> TokenRow | None:
    """Return a token that is not revoked; ``lock``: until the transaction ends."""
    query = select(*columns_of(tokens, TokenRow)).where(tokens.c.id == id, tokens.c.revoked_at.is_(None))
    return read_row(c.execute(query.with_for_update() if lock else query).first(), TokenRow)


def has_digest(c: Connection, digest: str) -> bool:
    """Return whether there is, or was, a token of a digest."""
    return c.execute(select(tokens.c.id).where(tokens.c.digest == digest)).first() is not None


def revoke(c: Connection, id: str, now: float) -> bool:
    """Revoke a token, with the sessions that began with it; False if there is none, or it is revoked."""
    of_it = or_(tokens.c.id == id, tokens.c.session_of == id)
    revoking = update(tokens).where(of_it, tokens.c.revoked_at.is_(None)).values(revoked_at=now)
    return len(c.execute(revoking.returning(tokens.c.id)).all()) > 0


def revoke_named(c: Connection, user: str, name: str, now: float) -> None:
    """Revoke the tokens of a user that have a name, with the sessions that began with them."""
    named = select(tokens.c.id).where(tokens.c.user == user, tokens.c.name == name, tokens.c.created_by == "")
    for id in c.scalars(named.where(tokens.c.revoked_at.is_(None))).all():
        revoke(c, id, now)


def credential(c: Connection, digest: str, now: float | None) -> list[CredentialRow]:
    """Return a valid token with the memberships of its user, in one query; nothing if there is none.

    ``now``: None: it is valid by the database's clock.
    """
    return read_rows(c.execute(_CREDENTIAL, {"digest": digest, "now": now}), CredentialRow)


def note_use(c: Connection, id: str, address: str, now: float) -> None:
    """Record when and from where a token was used last."""
    c.execute(update(tokens).where(tokens.c.id == id).values(used_at=now, used_from=address))


def forget_tokens(c: Connection, before: float) -> None:
    """Delete sessions that are over since a time."""
    over = func.coalesce(tokens.c.revoked_at, tokens.c.expires_at) < before
    c.execute(delete(tokens).where(tokens.c.session_of.is_not(None), over))
