"""Records of accounts, as the platform describes them: projects, users, members, tokens, and who a client is."""

from datetime import datetime
from typing import TypedDict

import msgspec

from windtunnel.record import Record

#: Roles of members and of tokens, from the least to the most.
ROLES = ("viewer", "submitter", "maintainer")
#: Verbs: what a role consists of, and a token may be limited to.
VERBS = ("read", "upload", "submit", "change", "change-others", "administer", "operate")

#: How an act of the audit log ended.
AUDIT_OUTCOMES = ("done", "unchanged", "refused", "failed")


class AccountProject(Record, frozen=True, kw_only=True):
    """A project; ``state``: `open`, or `closed`, which accepts nothing new."""

    name: str
    state: str = "open"
    created_by: str = ""
    created_at: datetime | None = None


class User(Record, frozen=True, kw_only=True):
    """A user, or the service account of a project. ``invitation``: shown once, when the user is made."""

    name: str
    operator: bool = False
    service: str | None = None
    created_by: str = ""
    created_at: datetime | None = None
    invitation: str | None = None

    def __repr__(self) -> str:
        return f"User(name={self.name!r})"  # an invitation is a secret


class ProjectMember(Record, frozen=True, kw_only=True):
    """A member of a project."""

    user: str
    role: str
    since: datetime | None = None


class ProjectShare(Record, frozen=True, kw_only=True):
    """A model, a dataset or a simulation that another project may read. ``reference``: how it is named there."""

    owner: str
    shared_with: str
    kind: str
    name: str
    reference: str
    version: str | None = None
    shared_by: str = ""
    created_at: datetime | None = None


class AccessToken(Record, frozen=True, kw_only=True):
    """A token, or the session of a browser. ``token``: its text, shown once, when it is made.

    ``project``, ``role``, ``verbs``, ``models`` and ``datasets``: its limits, the last two as patterns of names; each
    None where it has none beside those of its user.
    """

    id: str
    name: str
    user: str
    project: str | None = None
    role: str | None = None
    verbs: list[str] | None = None
    models: list[str] | None = None
    datasets: list[str] | None = None
    session: bool = False
    created_by: str = ""
    created_at: datetime | None = None
    expires_at: datetime | None = None
    used_at: datetime | None = None
    used_from: str | None = None
    token: str | None = None

    def __repr__(self) -> str:
        return f"AccessToken(id={self.id!r}, name={self.name!r}, user={self.user!r})"  # its text is a secret


class ProjectQuota(Record, frozen=True, kw_only=True):
    """A quota: its limit in force (None: none), how much is used, and the limit that was given here itself.

    Cores, bytes and devices of running workers are quotas as well: ``resources.cpu``.
    """

    quota: str
    limit: int | None = None
    used: float | None = None
    own: int | None = None


class UsedLimit(Record, frozen=True, kw_only=True):
    """A limit of a project, or of a ``user`` in it, with how much is used; ``share``: of 1, None where it is 0."""

    project: str
    quota: str
    limit: int
    used: float
    user: str | None = None
    share: float | None = None


class ActFilters(TypedDict, total=False):
    """Members of acts of the audit log that are asked for; None: any. ``token``: its id."""

    user: str | None
    act: str | None
    subject: str | None
    outcome: str | None
    token: str | None


class AuditFilters(ActFilters, total=False):
    """Acts of the audit log that are asked for: also of a time, and with the words of a search."""

    since: datetime | None
    until: datetime | None
    search: str | None


class RecordedAct(Record, frozen=True, kw_only=True):
    """An entry of the audit log; ``outsider``: by an operator who is not a member; ``times``: number of equal acts."""

    id: str
    at: datetime
    act: str
    outcome: str
    project: str | None = None
    user: str | None = None
    outsider: bool = False
    token: str | None = None
    address: str | None = None
    subject: str | None = None
    status: int | None = None
    problem: str | None = None
    times: int = 1
    request: str | None = None
    affected: list[str] = msgspec.field(default_factory=list)


class OwnProject(Record, frozen=True, kw_only=True):
    """A project of a user, with his role there."""

    name: str
    role: str
    closed: bool = False


class OwnToken(Record, frozen=True, kw_only=True):
    """The token of a client; ``project``: that it is bound to, None for a personal one."""

    id: str
    project: str | None = None


class ClientIdentity(Record, frozen=True, kw_only=True):
    """Who a client is to a platform: its user, and what it may do in the project that it acts in.

    ``accounts``: whether the platform has users. ``by``: `token`, `session`, or `nothing` where no token is asked for.
    ``project``: None if it names none of several.
    """

    accounts: bool
    user: str | None
    by: str
    token: OwnToken | None = None
    operator: bool = False
    project: str | None = None
    verbs: list[str] = msgspec.field(default_factory=list)
    projects: list[OwnProject] = msgspec.field(default_factory=list)
