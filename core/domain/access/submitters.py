"""Submitters of work that goes on by itself: whether one may submit in the project of his row. A pure decision."""

from enum import Enum

from core.domain.access.roles import VERBS, AccessRole, Verb


class SubmitterRight(Enum):
    """Whether something new may be submitted in a user's name."""

    MAY = "may"
    AWAY = "away"  # his identity provider does not stand for him at present, which may pass
    GONE = "gone"  # he has left, or has no role any more in which he may


def submitter_right(*, active: bool, operator: bool, role: AccessRole | None, away: bool) -> SubmitterRight:
    """Return the right of a user with this role in the project of a row; None: he is not a member of it."""
    may = operator or (role is not None and Verb.SUBMIT in VERBS[role])
    if not (active and may):
        return SubmitterRight.GONE
    return SubmitterRight.AWAY if away else SubmitterRight.MAY
