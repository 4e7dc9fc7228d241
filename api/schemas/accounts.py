"""Schemas of accounts: projects, users, members, tokens, and who a request is."""

from marshmallow import fields

from api.schemas.fields import Choice, Flag, ListField, Open, Strict, Text, Whole
from api.schemas.members import array, boolean, document, documents, moment, string
from api.schemas.pages import PageSchema
from core.domain.access.identities import MEMBERS
from core.domain.access.name_patterns import LONGEST_PATTERN, MOST_PATTERNS, PATTERN
from core.domain.access.roles import Verb

LABEL = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
#: Of a user, or of a service account: its own, or that of its project, a slash and its own.
ACCOUNT_NAME = r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?/)?[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
_ROLES = [role.value for role in MEMBERS]
#: Longest life of a token, in seconds: ten years.
LONGEST_LIFE = 10 * 365 * 86_400


class NewProjectSchema(Strict):
    """A project to create."""

    name = Text(LABEL, longest=40, required=True, description="Name, which is never changed and never used again.")


class ProjectSchema(Open):
    """A project."""

    name = string("Name of the project.")
    state = string("`closed`: nothing new is accepted.", enum=["open", "closed"])
    created_by = string("The user who has created it.")
    created_at = moment("When it was created.")


class ProjectPageSchema(PageSchema):
    """A page of projects."""

    items = documents(ProjectSchema, "The projects, by name.")


class NewUserSchema(Strict):
    """A user to create."""

    name = Text(LABEL, longest=40, required=True, description="Name, which is never changed and never used again.")
    operator = Flag(load_default=False, description="Whether the user is an operator of the platform.")


class NewServiceSchema(Strict):
    """A service account to create."""

    name = Text(LABEL, longest=40, required=True, description="Name in the project, which is never used again there.")
    role = Choice(*_ROLES, required=True, description="Its role in the project.")


class UserSchema(Open):
    """A user, or the service account of a project."""

    name = string("Name of the user; of a service account `project/name`.")
    operator = boolean("Whether the user is an operator of the platform.")
    service = string("The project whose service account it is; null: a person.", allow_none=True)
    created_by = string("The user who has created it.")
    created_at = moment("When it was created.")
    invitation = string(
        "Shown once: with it the user gets the first token (`POST /v1/users/{user}/tokens`). Valid for a week.",
        required=False,
    )


class UserPageSchema(PageSchema):
    """A page of users."""

    items = documents(UserSchema, "The users, by name.")


class RoleSchema(Strict):
    """The role of a member."""

    role = Choice(*_ROLES, required=True, description="What the member may do: read, submit, or administer.")


class MemberSchema(Open):
    """A member of a project."""

    user = string("Name of the user; of a service account `project/name`.")
    role = string("The role that the user has there.", enum=_ROLES)
    service = boolean("Whether it is a service account of the project.")
    since = moment("Since when the user is a member.")


class MemberListSchema(Open):
    """The members of a project."""

    items = documents(MemberSchema, "The members, by name.")


def _patterns(description: str) -> ListField:
    return ListField(Text(PATTERN, longest=LONGEST_PATTERN), shortest=1, longest=MOST_PATTERNS, description=description)


class TokenScopeSchema(Strict):
    """The limits of a token beside its role."""

    verbs = ListField(
        Choice(*[verb.value for verb in Verb]),
        shortest=1,
        longest=len(Verb),
        description="The only verbs that it has, of those of its role.",
    )
    models = _patterns("The only models that it is for, as patterns of their names: `brake*`, `brake@gold`.")
    datasets = _patterns("The only datasets that it is for, as patterns of their names: `streets`, `streets@3`.")


class NewTokenSchema(Strict):
    """A token of a project to make."""

    name = Text(longest=100, required=True, description="What the token is for.")
    role = Choice(*_ROLES, required=True, description="Its role; at most that of its maker, now and later.")
    expires_in = Whole(1, LONGEST_LIFE, description="Seconds until it expires; without it, it does not.")
    scope = fields.Nested(TokenScopeSchema, metadata={"description": "Limits beside the role."})
    service = Text(
        ACCOUNT_NAME, longest=81, description="The service account whose token it is; without it, one's own."
    )


class NewPersonalTokenSchema(Strict):
    """A personal token to make."""

    name = Text(longest=100, required=True, description="What the token is for.")
    role = Choice(*_ROLES, description="Its role, at most; without it, that of the user in each project.")
    expires_in = Whole(1, LONGEST_LIFE, description="Seconds until it expires; without it, it does not.")
    scope = fields.Nested(TokenScopeSchema, metadata={"description": "Limits beside the role."})
    invitation = Text(longest=100, description="In place of a token in the request: for a new user's first one.")


class TokenSchema(Open):
    """A token, or a session of a browser."""

    id = string("Id, by which it is revoked.")
    name = string("What the token is for.")
    user = string("Name of the user whose it is.")
    project = string("The project that it is bound to; null: all of the user's.", allow_none=True)
    role = string("Its role, at most; null: the user's.", allow_none=True)
    verbs = array(fields.String(), "The only verbs that it has; null: all of the role.", allow_none=True)
    models = array(fields.String(), "Patterns of the only models that it is for; null: all.", allow_none=True)
    datasets = array(fields.String(), "Patterns of the only datasets that it is for; null: all.", allow_none=True)
    session = boolean("Whether it is the session of a browser.")
    created_by = string("Name of the user who has made it.")
    created_at = moment("When it was made.")
    expires_at = moment("When it expires; null: never.", allow_none=True)
    used_at = moment("When it was used last, to a minute; null: never.", allow_none=True)
    used_from = string("The address from which it was used last; null: never.", allow_none=True)
    token = string("Shown once: the token itself.", required=False)


class TokenListSchema(Open):
    """Tokens."""

    items = documents(TokenSchema, "The tokens, newest first.")


class OwnProjectSchema(Open):
    """A project of who asks, with his role."""

    name = string("Name of the project.")
    role = string("The role that the user has there.", enum=_ROLES)
    closed = boolean("Whether the project is closed.")


class OwnTokenSchema(Open):
    """The token or session of a request."""

    id = string("Its id, as in lists of tokens.")
    project = string("The project that it is bound to; null: it is a personal one.", allow_none=True)


class SessionSchema(Open):
    """Who a request is."""

    accounts = boolean("Whether this platform has users and projects.")
    user = string("The user; null without accounts.", allow_none=True)
    by = string("By what the request shows it.", enum=["token", "session", "cluster", "nothing"])
    token = document(OwnTokenSchema, "The token, or the session; null without accounts.", allow_none=True)
    operator = boolean("Whether the user is an operator of the platform.")
    project = string(
        "The project that the request acts in; null: none, because it names none of several.", allow_none=True
    )
    verbs = array(fields.String(), "What the request may do there.")
    projects = documents(OwnProjectSchema, "The projects that the request may act in, by name.")
