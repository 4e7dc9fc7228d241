"""Audit entries: who did what to what, from where, with which token, and how it ended. Pure values and decisions.

An entry holds names and ids, and never a credential: what was sent in a body or a header is in none of its fields.
"""

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

#: Most characters of a subject, and most further things that one entry names.
LONGEST_SUBJECT, MOST_AFFECTED_SUBJECTS = 300, 50
#: Text with the form of a token, a session or an invitation. Nobody has reason to write one into an address.
_CREDENTIAL = re.compile(r"wt[si]?_[0-9A-Za-z]{20,}")
_PARAMETER = re.compile(r"<(?:[a-z]+:)?([a-z_]+)>")


class AuditOutcome(StrEnum):
    """How an act ended."""

    DONE = "done"
    UNCHANGED = "unchanged"  # answered without a change of the database: read, checked, or done before
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditEntry:
    """An act, or several equal ones.

    ``project``: in which it was; empty: of the platform. ``outsider``: an operator who is not a member of the project.
    ``credential``: id of the token or session. ``act``: id of the API's operation. ``subject``: what it was done to, as
    its address below ``/v1``. ``request``: joins the entries of one request. ``problem``: type of the refusal.
    ``affected``: what else was made or changed.
    """

    act: str
    project: str = ""
    user: str = ""
    outsider: bool = False
    credential: str = ""
    address: str = ""
    subject: str = ""
    outcome: AuditOutcome = AuditOutcome.DONE
    status: int | None = None
    problem: str | None = None
    request: str = ""
    affected: tuple[str, ...] = ()

    @property
    def anonymous(self) -> bool:
        """Whether nobody is known to have done it."""
        return not self.user


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditFilter:
    """Entries that are asked for; None: all. ``subject``: it, what is below it, and entries that affect it."""

    since: datetime | None = None
    until: datetime | None = None
    user: str | None = None
    act: str | None = None
    subject: str | None = None
    outcome: AuditOutcome | None = None
    token: str | None = None
    words: tuple[str, ...] = ()


def subject_of(rule: str, path: str) -> str:
    """Return what an address names: the part below the version up to its last parameter, or its first segment.

    ``rule``: the route's, such as ``/v1/simulations/<id:id>/cancel``; ``path``: the address itself.
    """
    segments = rule.strip("/").split("/")[1:]
    named = [number for number, segment in enumerate(segments) if _PARAMETER.search(segment)]
    if not segments:
        return ""
    if not named:
        return segments[0]
    last = named[-1] + 1
    ends = last == len(segments)
    values = path.strip("/").split("/")[1:]
    # Parameters may have slashes; what follows the last of them has none.
    kept = values if ends else values[: len(values) - (len(segments) - last)]
    return without_credentials("/".join(kept))[:LONGEST_SUBJECT]


def without_credentials(text: str) -> str:
    """Return a text without what has the form of a credential."""
    return _CREDENTIAL.sub("wt_...", text)


def sign_in_act(act: AuditEntry, user: str, *, known: bool) -> AuditEntry:
    """Return the act of a sign-in as a user. ``known``: he has shown that it is him; else nobody knows who has tried.

    Both have the user as their subject, so that one search finds who came in as him and who did not.
    """
    subject = without_credentials(f"users/{user}")[:LONGEST_SUBJECT]
    return replace(act, user=user if known else act.user, subject=subject)


def entries_of(act: AuditEntry, noted: Sequence[str], before: AbstractSet[str], *, first: bool) -> list[AuditEntry]:
    """Return the entries of one transaction of a request.

    ``noted``: what the transaction has made or changed; ``before``: what earlier ones had. ``first``: there is no
    earlier one. The first transaction always has an entry, each further one if it concerns anything else. An address
    that names its subject has one entry, which lists the rest; for any other there is one entry for each subject.
    """
    new = [subject for subject in dict.fromkeys(noted) if subject not in before and subject != act.subject]
    if "/" in act.subject:
        listed = replace(act, affected=tuple(new[:MOST_AFFECTED_SUBJECTS]))
        return [listed] if first or new else []
    if not new:
        return [act] if first else []
    return [replace(act, subject=subject) for subject in new]
