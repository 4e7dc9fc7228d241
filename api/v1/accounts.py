"""Routes of accounts: /v1/projects with members, service accounts and tokens; /v1/users with personal tokens."""

import msgspec
from flask import Response

from api.blueprint import Blueprint, Success
from api.body import json_body, validated
from api.context import access_services, caller
from api.paging import LINK, page
from api.schemas.accounts import (
    MemberListSchema,
    NewPersonalTokenSchema,
    NewProjectSchema,
    NewServiceSchema,
    NewTokenSchema,
    NewUserSchema,
    ProjectPageSchema,
    ProjectSchema,
    RoleSchema,
    TokenListSchema,
    TokenSchema,
    UserPageSchema,
    UserSchema,
)
from api.schemas.pages import PageQuery
from common.errors import (
    AccountsOff,
    Invalid,
    NameTaken,
    NotPermitted,
    ProjectOpen,
    TooLarge,
    UnknownProject,
    UnknownToken,
    UnknownUser,
    UnsupportedMedia,
)
from common.moments import moment_of
from core.domain.access.name_patterns import NamePatterns
from core.domain.access.roles import AccessRole, Verb
from core.services.access.accounts import Accounts, NewToken
from core.store.accounts import MemberRow, ProjectRow, TokenRow, UserRow

blueprint = Blueprint("accounts", __name__, url_prefix="/v1", description="Projects, users, members and tokens.")

_BODY_ERRORS = [AccountsOff, Invalid, NotPermitted, TooLarge, UnknownProject, UnsupportedMedia]
_PROJECT_ERRORS = [AccountsOff, NotPermitted, UnknownProject]


class _NewName(msgspec.Struct):
    """A project or a user to create, as its schema has accepted it."""

    name: str
    operator: bool = False


class _NewRole(msgspec.Struct):
    """A role to give, as its schema has accepted it."""

    role: AccessRole


class _NewService(msgspec.Struct):
    """A service account to create, as its schema has accepted it."""

    name: str
    role: AccessRole


class _TokenLimits(msgspec.Struct, frozen=True):
    verbs: list[Verb] | None = None
    models: tuple[str, ...] | None = None
    datasets: tuple[str, ...] | None = None


class _TokenBody(msgspec.Struct):
    """A request for a token as its schema has accepted it."""

    name: str
    role: AccessRole | None = None
    expires_in: int | None = None
    scope: _TokenLimits = _TokenLimits()
    service: str | None = None
    invitation: str | None = None

    def as_new_token(self) -> NewToken:
        patterns = NamePatterns(self.scope.models, self.scope.datasets)
        return NewToken(
            name=self.name,
            role=self.role,
            verbs=self.scope.verbs,
            expires_in=self.expires_in,
            patterns=patterns,
        )


class _AccountListQuery(msgspec.Struct):
    """The query of a list as its schema has accepted it."""

    limit: int
    after: str = ""


def services() -> Accounts:
    """Return the service of accounts; raise AccountsOff where there are none."""
    return access_services().accounts


def _project(row: ProjectRow) -> dict[str, object]:
    described = {"name": row.name, "state": row.state, "created_by": row.created_by}
    return described | {"created_at": moment_of(row.created_at)}


def _user(row: UserRow) -> dict[str, object]:
    described = {"name": row.name, "operator": bool(row.operator), "service": row.service, "created_by": row.created_by}
    return described | {"created_at": moment_of(row.created_at)}


def _member(row: MemberRow) -> dict[str, object]:
    return {"user": row.user, "role": row.role, "service": row.service is not None, "since": moment_of(row.since)}


def _token(row: TokenRow) -> dict[str, object]:
    patterns = NamePatterns.of_text(row.patterns)
    return {
        "id": row.id,
        "name": row.name,
        "user": row.user,
        "project": row.bound_to,
        "role": row.role,
        "verbs": None if row.verbs is None else msgspec.json.decode(row.verbs),
        "models": patterns.models,
        "datasets": patterns.datasets,
        "session": row.session_of is not None,
        "created_by": row.created_by,
        "created_at": moment_of(row.created_at),
        "expires_at": moment_of(row.expires_at),
        "used_at": moment_of(row.used_at),
        "used_from": row.used_from,
    }


# -- projects


@blueprint.operation(
    "GET /projects",
    Success(schema=ProjectPageSchema, headers=LINK, description="A page of projects."),
    errors=[AccountsOff, Invalid, NotPermitted],
    verb=Verb.OPERATE,
)
@blueprint.takes(PageQuery)
def list_projects(query: object) -> Response:
    """List all projects

    For operators; one's own are in `GET /v1/session`.
    """
    asked = msgspec.convert(query, _AccountListQuery)
    rows, next = services().projects(after=asked.after, limit=asked.limit)
    return page([_project(row) for row in rows], next)


@blueprint.operation(
    "POST /projects",
    Success(status=201, schema=ProjectSchema, plain=True, description="The project."),
    body={"application/json": NewProjectSchema},
    errors=[NameTaken, *_BODY_ERRORS],
    verb=Verb.OPERATE,
)
def create_project() -> dict[str, object]:
    """Create a project

    It owns what its members make in it. It has no members yet: `PUT /v1/projects/{project}/members/{user}`.
    """
    body = msgspec.convert(validated(NewProjectSchema(), json_body()), _NewName)
    return _project(services().create_project(caller(), body.name))


@blueprint.operation(
    "GET /projects/<name:project>",
    Success(schema=ProjectSchema, plain=True, description="The project."),
    errors=_PROJECT_ERRORS,
)
def get_project(project: str) -> dict[str, object]:
    """Describe a project of one's own

    Its state says whether new work is accepted.
    """
    return _project(services().project(caller()))


@blueprint.operation(
    "POST /projects/<name:project>/close",
    Success(schema=ProjectSchema, plain=True, description="The project."),
    errors=[Invalid, *_PROJECT_ERRORS],
    verb=Verb.OPERATE,
)
def close_project(project: str) -> dict[str, object]:
    """Close a project

    Nothing new begins in it, and what it has under way is cancelled within a minute. Its members read what it has.
    """
    return _project(access_services().project_ends.close(caller()))


@blueprint.operation(
    "DELETE /projects/<name:project>",
    Success(status=204, description="Nobody sees the project any more."),
    errors=[Invalid, ProjectOpen, *_PROJECT_ERRORS],
    verb=Verb.OPERATE,
)
def delete_project(project: str) -> None:
    """Delete a project that is closed

    With all that it has: models, datasets, simulations and tokens, which jobs delete. Its name is never used again.
    """
    access_services().project_ends.delete(caller())


@blueprint.operation(
    "GET /projects/<name:project>/members",
    Success(schema=MemberListSchema, plain=True, description="The members."),
    errors=_PROJECT_ERRORS,
)
def list_members(project: str) -> dict[str, object]:
    """List the members of a project

    With their roles, service accounts among them.
    """
    return {"items": [_member(row) for row in services().members(caller())]}


@blueprint.operation(
    "PUT /projects/<name:project>/members/<account:user>",
    Success(status=204, description="The user has the role."),
    body={"application/json": RoleSchema},
    errors=[UnknownUser, *_BODY_ERRORS],
    verb=Verb.ADMINISTER,
)
def put_member(project: str, user: str) -> None:
    """Give a user a role in a project

    In place of the one that he has there. Nobody gives what he has not.
    """
    body = msgspec.convert(validated(RoleSchema(), json_body()), _NewRole)
    services().put_member(caller(), user, body.role)


@blueprint.operation(
    "DELETE /projects/<name:project>/members/<account:user>",
    Success(status=204, description="The membership has ended."),
    errors=[UnknownUser, *_PROJECT_ERRORS],
    verb=Verb.ADMINISTER,
)
def remove_member(project: str, user: str) -> None:
    """End a membership

    His tokens of the project do nothing from then on; what he has made stays.
    """
    services().drop_member(caller(), user)


@blueprint.operation(
    "POST /projects/<name:project>/services",
    Success(status=201, schema=UserSchema, plain=True, description="The service account."),
    body={"application/json": NewServiceSchema},
    errors=[NameTaken, *_BODY_ERRORS],
    verb=Verb.ADMINISTER,
)
def create_service(project: str) -> dict[str, object]:
    """Create a service account

    For CI and schedules: it is a member of this project alone, and its tokens go on when people leave.
    """
    body = msgspec.convert(validated(NewServiceSchema(), json_body()), _NewService)
    return _user(services().create_service(caller(), body.name, body.role))


@blueprint.operation(
    "GET /projects/<name:project>/tokens",
    Success(schema=TokenListSchema, plain=True, description="The tokens."),
    errors=_PROJECT_ERRORS,
)
def list_project_tokens(project: str) -> dict[str, object]:
    """List the tokens of a project

    A maintainer sees all of them, others their own.
    """
    return {"items": [_token(row) for row in services().tokens(caller())]}


@blueprint.operation(
    "POST /projects/<name:project>/tokens",
    Success(status=201, schema=TokenSchema, plain=True, description="The token, which is shown this once."),
    body={"application/json": NewTokenSchema},
    errors=[UnknownUser, *_BODY_ERRORS],
    verb=None,
)
def create_project_token(project: str) -> dict[str, object]:
    """Make a token of a project

    What it may do is its role and its verbs, and at most what its maker may at the time of each request.
    """
    caller().require(Verb.READ)  # and what the token is to do
    body = msgspec.convert(validated(NewTokenSchema(), json_body()), _TokenBody)
    row, token = services().issue(caller(), body.as_new_token(), user=body.service)
    return _token(row) | {"token": token}


@blueprint.operation(
    "DELETE /projects/<name:project>/tokens/<id:token>",
    Success(status=204, description="The token is revoked."),
    errors=[UnknownToken, *_PROJECT_ERRORS],
    verb=None,
)
def revoke_project_token(project: str, token: str) -> None:
    """Revoke a token of a project

    Within two seconds it is refused everywhere, with the sessions that began with it.
    """
    caller().require(Verb.READ)
    services().revoke(caller(), token)


# -- users


@blueprint.operation(
    "GET /users",
    Success(schema=UserPageSchema, headers=LINK, description="A page of users."),
    errors=[AccountsOff, Invalid, NotPermitted],
    verb=Verb.OPERATE,
)
@blueprint.takes(PageQuery)
def list_users(query: object) -> Response:
    """List all users

    For operators; the members of a project are listed by the project.
    """
    asked = msgspec.convert(query, _AccountListQuery)
    rows, next = services().users(after=asked.after, limit=asked.limit)
    return page([_user(row) for row in rows], next)


@blueprint.operation(
    "POST /users",
    Success(status=201, schema=UserSchema, plain=True, description="The user, with the invitation."),
    body={"application/json": NewUserSchema},
    errors=[NameTaken, *_BODY_ERRORS],
    verb=Verb.OPERATE,
)
def create_user() -> dict[str, object]:
    """Create a user

    The invitation is shown this once; with it the user gets the first token.
    """
    body = msgspec.convert(validated(NewUserSchema(), json_body()), _NewName)
    row, invitation = services().create_user(caller(), body.name, operator=body.operator)
    return _user(row) | {"invitation": invitation}


@blueprint.operation(
    "DELETE /users/<account:user>",
    Success(status=204, description="The user has left."),
    errors=[AccountsOff, Invalid, NotPermitted, UnknownUser],
    verb=Verb.OPERATE,
)
def remove_user(user: str) -> None:
    """Let a user leave

    Within two seconds his tokens and sessions are refused everywhere; what he has made stays.
    """
    services().remove_user(caller(), user)


@blueprint.operation(
    "GET /users/<account:user>/tokens",
    Success(schema=TokenListSchema, plain=True, description="The tokens and sessions."),
    errors=[AccountsOff, NotPermitted, UnknownUser],
    verb=None,
)
def list_personal_tokens(user: str) -> dict[str, object]:
    """List one's personal tokens and sessions

    An operator may list those of any user.
    """
    return {"items": [_token(row) for row in services().personal_tokens(caller(), user)]}


@blueprint.operation(
    "POST /users/<account:user>/tokens",
    Success(status=201, schema=TokenSchema, plain=True, description="The token, which is shown this once."),
    body={"application/json": NewPersonalTokenSchema},
    errors=[UnknownUser, *_BODY_ERRORS],
    verb=None,
)
def create_personal_token(user: str) -> dict[str, object]:
    """Make a personal token

    It may do in each project what the user may there. A new user sends his invitation in place of a token.
    """
    body = msgspec.convert(validated(NewPersonalTokenSchema(), json_body()), _TokenBody)
    if body.invitation is not None:
        row, token = services().redeem(user, body.invitation, body.as_new_token())
    else:
        row, token = services().issue_personal(caller(), user, body.as_new_token())
    return _token(row) | {"token": token}


@blueprint.operation(
    "DELETE /users/<account:user>/tokens/<id:token>",
    Success(status=204, description="The token is revoked, or the session has ended."),
    errors=[AccountsOff, NotPermitted, UnknownToken],
    verb=None,
)
def revoke_personal_token(user: str, token: str) -> None:
    """Revoke a personal token, or end a session

    Within two seconds it is refused everywhere. An operator may do it for any user.
    """
    services().revoke_personal(caller(), user, token)
