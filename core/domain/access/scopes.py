"""Scopes: whose rows an act may see and change, and the caller on whose behalf it acts.

Everything that people own (models, uploads, datasets, simulations, comparisons, pipelines) belongs to one project. A
request acts in one project; a background job acts in that of its row. Only the platform itself, which schedules and
sweeps for everybody, sees all.
"""

from dataclasses import dataclass

from common.errors import NotPermitted, ProjectClosed, ProjectRequired
from core.domain.access.name_patterns import ALL_NAMES, NamePatterns
from core.domain.access.roles import MEANINGS, VERBS, AccessRole, Verb

#: The project of an installation without accounts, and of everything that was stored before there were projects.
DEFAULT_PROJECT = "default"


@dataclass(frozen=True, slots=True)
class Scope:
    """The rows of one project, or of every project if ``project`` is None."""

    project: str | None

    @property
    def owner(self) -> str:
        """The project of what is created in this scope; the platform itself owns nothing."""
        if not self.project:
            raise ValueError("what is created belongs to a project")
        return self.project


@dataclass(frozen=True, slots=True)
class ReadScope:
    """The rows that a project may read: its own, and those that others share with it; of one ``owner``, if not empty.

    Nothing is changed or created in it.
    """

    reader: str
    owner: str = ""

    @property
    def of_names(self) -> Scope:
        """The project whose names and tags are meant."""
        return Scope(self.owner or self.reader)


#: What is left to do in a project that is closed: nothing new begins.
IN_CLOSED = frozenset({Verb.READ, Verb.CHANGE, Verb.CHANGE_OTHERS, Verb.ADMINISTER, Verb.OPERATE})
#: What the platform does for everybody: scheduling, staging, sweeping, counting.
PLATFORM = Scope(None)
#: Of a request that names no project, of a user who has none or several: no row is in it.
NOWHERE = Scope("")


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf something is done, and which verbs he may there.

    ``principal``: who it is, for idempotency keys. ``address``: where a request came from (common/client_addresses.py).
    ``user``: the user's name; empty without accounts. ``limited``: its token may do less than the user.
    ``credential``: the id of the token. ``closed``: the project accepts nothing new. ``patterns``: the models and
    datasets to which the token is limited.
    """

    scope: Scope
    principal: str = "local"
    address: str = ""
    verbs: frozenset[Verb] = VERBS[AccessRole.OPERATOR]
    user: str = ""
    limited: bool = False
    credential: str = ""
    closed: bool = False
    patterns: NamePatterns = ALL_NAMES

    @property
    def name(self) -> str:
        """Who it is in records, such as the submitter of a simulation: the user, or without accounts the address."""
        return self.user or self.address

    @property
    def reading(self) -> Scope | ReadScope:
        """The scope of what it may read: the rows of its project, and what is shared with it."""
        return ReadScope(self.scope.project) if self.scope.project else self.scope

    def require(self, verb: Verb) -> None:
        """Raise NotPermitted unless it may do this, ProjectRequired if no project was named in which it might."""
        if verb in self.verbs:
            return
        if self.scope == NOWHERE and verb is not Verb.OPERATE:
            raise ProjectRequired
        if self.closed and verb not in IN_CLOSED:
            raise ProjectClosed(f"The project {self.scope.project} is closed: nothing new begins in it.")
        giver = "An operator of the platform" if verb is Verb.OPERATE else "A maintainer of the project"
        raise NotPermitted(f"You may not {verb} here: {MEANINGS[verb]} {giver} gives such roles.")

    def require_change(self, made_by: str) -> None:
        """Raise NotPermitted unless it may change what a user has made: its own, or everybody's."""
        if Verb.CHANGE_OTHERS not in self.verbs and made_by != self.name:
            raise NotPermitted(f"It belongs to {made_by or 'nobody'}: a maintainer of the project may change it.")


#: Who uses an installation without accounts.
LOCAL_CALLER = Caller(Scope(DEFAULT_PROJECT))
#: The platform's own jobs, where they use what is made for callers.
OPERATION = Caller(PLATFORM, "platform")


def work_of(project: str, submitted_by: str = "") -> Caller:
    """Return the caller for whom a background job works on a row of a project."""
    return Caller(Scope(project), user=submitted_by)
