"""Scopes: whose rows an act may see and change, and the caller on whose behalf it acts.

Everything that people own (models, uploads, datasets, simulations, comparisons, pipelines) belongs to one project. A
request acts in one project; a background job acts in that of its row. Only the platform itself, which schedules and
sweeps for everybody, sees all.
"""

from dataclasses import dataclass

#: The project of an installation without accounts, and of everything that was stored before there were projects.
DEFAULT_PROJECT = "default"


@dataclass(frozen=True, slots=True)
class Scope:
    """The rows of one project; those of every project if ``project`` is None."""

    project: str | None

    @property
    def owner(self) -> str:
        """The project of what is created in this scope; the platform itself owns nothing."""
        if self.project is None:
            raise ValueError("what is created belongs to a project")
        return self.project


#: What the platform does for everybody: scheduling, staging, sweeping, counting.
PLATFORM = Scope(None)


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf something is done.

    ``principal``: who it is, as idempotency keys and records name it. ``address``: where a request came from
    (common/client_addresses.py), which is stored as the submitter while all people have one token.
    """

    scope: Scope
    principal: str = "local"
    address: str = ""


#: Who uses an installation without accounts.
LOCAL_CALLER = Caller(Scope(DEFAULT_PROJECT))
#: The platform's own jobs, where they use what is made for callers.
OPERATION = Caller(PLATFORM, "platform")


def work_of(project: str, submitted_by: str = "") -> Caller:
    """Return the caller for whom a background job works on a row of a project."""
    return Caller(Scope(project), address=submitted_by)
