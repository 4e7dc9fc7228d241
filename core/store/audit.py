"""Audit log in SQL: entries are inserted, read, and deleted when they are too old; nothing changes one."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import Connection, and_, delete, func, or_, select, text, tuple_

from common.ids import new_id
from core.domain.access.audit import AuditEntry, AuditFilter, AuditOutcome
from core.domain.access.scopes import Scope
from core.store.owned import within
from core.store.rows import StoredRow, columns_of, read_rows
from core.store.tables import audit

#: Characters of an id, and how those begin that are numbers: others do not after the first second of 1970.
ID_LENGTH, NUMBER_BEGIN = 26, "00000000"


class AuditRow(StoredRow, frozen=True, gc=False):
    """An entry. ``times``: how many equal acts it stands for.

    ``id`` orders entries of the same time. It counts those of all projects, so it is shown to nobody.
    """

    id: int
    at: float
    project: str
    user: str
    outsider: int
    credential: str
    address: str
    act: str
    subject: str
    outcome: str
    status: int | None
    problem: str | None
    times: int
    request: str
    affected: str
    entry: str | None

    @property
    def shown_id(self) -> str:
        """The id by which it is known outside; of an entry that an earlier version has written, the one it had."""
        return self.entry or f"{self.id:0{ID_LENGTH}}"


#: In words, which takes a quarter less time than `insert(audit)`: every act waits for it.
_INSERT = text(
    'INSERT INTO audit (at, project, "user", outsider, credential, address, act, subject, outcome, status, problem,'
    " times, request, affected, entry) VALUES (:at, :project, :user, :outsider, :credential, :address, :act, :subject,"
    " :outcome, :status, :problem, :times, :request, :affected, :entry)"
)
_COLUMNS = columns_of(audit, AuditRow)
_SEARCHED_COLUMNS = (audit.c.user, audit.c.act, audit.c.subject, audit.c.address, audit.c.affected)


def add(c: Connection, entries: Sequence[tuple[AuditEntry, int]], now: float) -> None:
    """Insert entries, each with the number of acts that it stands for."""
    c.execute(_INSERT, [_values(entry, times, now) for entry, times in entries])


def _values(entry: AuditEntry, times: int, now: float) -> dict[str, object]:
    who = {"user": entry.user, "outsider": int(entry.outsider), "credential": entry.credential}
    what = {
        "act": entry.act,
        "subject": entry.subject,
        "affected": json.dumps(entry.affected) if entry.affected else "",
    }
    end = {"outcome": entry.outcome.value, "status": entry.status, "problem": entry.problem}
    where = {"project": entry.project, "address": entry.address, "request": entry.request}
    entry_id = new_id(datetime.fromtimestamp(now, UTC))
    return {"entry": entry_id, "at": now, "times": times, **who, **what, **end, **where}


def page(c: Connection, scope: Scope, asked: AuditFilter, *, after: str | None, limit: int) -> list[AuditRow]:
    """Return entries, newest first, older than the entry ``after``."""
    query = select(*_COLUMNS).where(within(audit, scope))
    if asked.since is not None:
        query = query.where(audit.c.at >= asked.since.timestamp())
    if asked.until is not None:
        query = query.where(audit.c.at < asked.until.timestamp())
    for column, value in (
        (audit.c.user, asked.user),
        (audit.c.act, asked.act),
        (audit.c.outcome, asked.outcome),
        (audit.c.credential, asked.token),
    ):
        if value is not None:
            query = query.where(column == str(value))
    if asked.subject is not None:
        below = audit.c.subject.startswith(f"{asked.subject}/", autoescape=True)
        affects = audit.c.affected.contains(json.dumps(asked.subject), autoescape=True)
        query = query.where(or_(audit.c.subject == asked.subject, below, affects))
    for word in asked.words:
        query = query.where(
            or_(*(func.lower(column).contains(word.lower(), autoescape=True) for column in _SEARCHED_COLUMNS))
        )
    if after is not None:
        numbered = after.startswith(NUMBER_BEGIN) and after.isdecimal()
        named = audit.c.id == int(after) if numbered else audit.c.entry == after
        place = c.execute(select(audit.c.at, audit.c.id).where(within(audit, scope), named)).first()
        if place is None:  # it was too old meanwhile, and so is what follows
            return []
        query = query.where(tuple_(audit.c.at, audit.c.id) < (place.at, place.id))
    return read_rows(c.execute(query.order_by(audit.c.at.desc(), audit.c.id.desc()).limit(limit)), AuditRow)


def newest_user(c: Connection, project: str, act: str, subject: str) -> str:
    """Return who has done an act in a project to a subject last; empty: it is not known, or not any more."""
    same = and_(audit.c.project == project, audit.c.act == act, audit.c.subject == subject)
    done = and_(same, audit.c.outcome == AuditOutcome.DONE.value)
    query = select(audit.c.user).where(done).order_by(audit.c.at.desc(), audit.c.id.desc()).limit(1)
    return c.scalar(query) or ""


def forget(c: Connection, before: float, limit: int) -> int:
    """Delete up to ``limit`` of the oldest entries that are older than a time; return how many."""
    oldest = select(audit.c.id).where(audit.c.at < before).order_by(audit.c.at, audit.c.id).limit(limit)
    return len(c.execute(delete(audit).where(audit.c.id.in_(oldest)).returning(audit.c.id)).all())
