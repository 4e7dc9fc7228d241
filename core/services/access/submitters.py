"""Submitters of rows that go on by themselves: a job submits in the name of a user only while he may submit himself.

A name without a row of a user is not asked about: it is an address from before there were accounts, or an account of a
cluster, whose right follows from its token alone.
"""

from common.errors import NotPermitted
from core.domain.access.scopes import Caller
from core.domain.access.submitters import SubmitterRight
from core.store import accounts
from core.store.advanced_rows import AdvancedRows, R
from core.store.database import Connection, Database


class SubmitterAway(Exception):
    """The identity provider of a submitter does not stand for him at present: his work waits until it does."""


def require_submitter(database: Database, project: str, user: str) -> None:
    """Raise NotPermitted if who has submitted a row may submit in its project no more, SubmitterAway for a pause."""
    with database.read() as c:
        right = accounts.right_to_submit(c, project, user)
    if right is SubmitterRight.GONE:
        raise NotPermitted(
            f"{user} may not submit in {project} any more. Who may can try it again, and it goes on in his name."
        )
    if right is SubmitterRight.AWAY:
        raise SubmitterAway(f"the identity provider of {user} does not stand for him; he has to sign in there again")


def take_over(c: Connection, rows: AdvancedRows[R], row: R, caller: Caller) -> None:
    """Let a row go on in the name of who tries it again, if its submitter may submit no more."""
    if accounts.right_to_submit(c, row.project, row.submitted_by) is not SubmitterRight.MAY:
        rows.hand_over(c, row.id, caller.name)
