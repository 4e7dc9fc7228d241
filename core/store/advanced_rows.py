"""Rows in SQL that a job advances to their end in steps, as comparisons and pipelines: state, reason, claim, events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from sqlalchemy import Connection, TextClause, bindparam, insert, select, text, update

from common.errors import NotFound
from core.domain.access.audit import AuditEntry
from core.domain.access.identities import ACCOUNT
from core.domain.access.scopes import Caller, ReadScope, Scope, work_of
from core.domain.submissions.stored_documents import decode_document
from core.store import webhook_events
from core.store.claims import Claims, HeldClaim
from core.store.events import insert_event
from core.store.owned import within
from core.store.recording import note
from core.store.rows import StoredRow, StoredTable, columns_of, read_row

#: States of each such table whose rows have a job.
RUNNING_STATE, CANCELLING_STATE = "running", "cancelling"


class AdvancedRow(StoredRow, frozen=True, gc=False):
    """The columns that all such rows have. ``failures``: of the job, in a row."""

    id: str
    project: str
    state: str
    event_seq: int
    labels: str
    submitted_by: str
    reason: str | None
    failures: int
    created_at: float
    ended_at: float | None

    @property
    def caller(self) -> Caller:
        """For whom the job works."""
        return work_of(self.project, self.submitted_by)

    def act(self, act: str, table: str) -> AuditEntry:
        """Return the act of a job that works on this row, for its user; ``table``: the row's.

        A row from before there were accounts has an address in place of a user.
        """
        user = self.submitted_by if ACCOUNT.fullmatch(self.submitted_by) else ""
        return AuditEntry(act=act, project=self.project, user=user, subject=f"{table}/{self.id}")

    @property
    def label_values(self) -> dict[str, str]:
        """Labels by name."""
        return decode_document(self.labels, dict[str, str])


R = TypeVar("R", bound=AdvancedRow)


@dataclass(frozen=True, kw_only=True)
class AdvancedRows(Generic[R]):
    """The rows of a table, called ``what`` in words.

    ``row``: their record. ``unknown``: raised where there is none. ``ready``: SQL, which of those that run the job can
    advance now.
    """

    table: StoredTable
    row: type[R]
    what: str
    unknown: type[NotFound]
    ready: str

    @cached_property
    def claims(self) -> Claims:
        """Claims of the job: on those that run, and on those that are being cancelled."""
        return Claims(
            table=self.table,
            needed=f"state IN ('{RUNNING_STATE}', '{CANCELLING_STATE}')",
            ready=f"not_before<=:now AND (state='{CANCELLING_STATE}' OR {self.ready})",
        )

    def add(self, c: Connection, id: str, values: Mapping[str, object], now: float) -> None:
        """Insert a row that runs, with its first event."""
        state = {"state": RUNNING_STATE}
        c.execute(insert(self.table).values(id=id, created_at=now, **state, **values))
        note(c, f"{self.table.name}/{id}")
        self.say(c, id, "state", state, now)

    def find(self, c: Connection, scope: Scope | ReadScope, id: str, *, lock: bool = False) -> R:
        """Return a row, or raise ``unknown``; ``lock``: until the transaction ends."""
        query = select(*columns_of(self.table, self.row)).where(within(self.table, scope), self.table.c.id == id)
        row = read_row(c.execute(query.with_for_update() if lock else query).first(), self.row)
        if row is None:
            raise self.unknown(f"There is no {self.what} {id[:64]!r}. `GET /v1/{self.table.name}` lists them.")
        return row

    def move(self, c: Connection, id: str, state: str, now: float, **values: object) -> None:
        """Change a row's state, with the event; the claim of a job ends. ``values``: of other columns."""
        ended = None if state in (RUNNING_STATE, CANCELLING_STATE) else now
        idle = {"claim": None, "claim_until": 0.0, "failures": 0, "not_before": 0.0}
        changing = update(self.table).where(self.table.c.id == id)
        moving = changing.values(state=str(state), ended_at=ended, **idle, **values)
        project = c.scalar(moving.returning(self.table.c.project))
        note(c, f"{self.table.name}/{id}")
        told = {name: value for name, value in values.items() if name == "reason" and value}
        self.say(c, id, "state", {"state": str(state), **told}, now)
        if ended is not None:
            webhook_events.advanced_end(c, self.table, str(project), id, str(state), now)

    def hand_over(self, c: Connection, id: str, user: str) -> None:
        """Let a row go on in the name of another user."""
        c.execute(update(self.table).where(self.table.c.id == id).values(submitted_by=user))

    def say(self, c: Connection, id: str, type: str, body: Mapping[str, object], now: float) -> None:
        """Insert an event; the row numbers it in the same transaction, so that events appear in order."""
        seq = c.scalar(self._next_event, {"i": id})
        if seq is None:
            raise self.unknown()
        insert_event(c, id, int(seq), type, body, now)

    def versions(self, c: Connection, ids: Sequence[str]) -> dict[str, int]:
        """Return the number of the newest event of each of these rows."""
        return {id: seq for id, seq in c.execute(self._versions, {"ids": list(ids)})}

    def pause(
        self, c: Connection, claim: HeldClaim, now: float, *, wait: float, failures: int, reason: str | None
    ) -> None:
        """End a claim; the next attempt follows after ``wait`` seconds, or once the row is ready.

        A row that still runs has the ``reason`` why it waits; one that has ended keeps that of its end.
        """
        running = (self.table.c.id == claim.id, self.table.c.state == RUNNING_STATE)
        c.execute(update(self.table).where(*running).values(reason=reason))
        self.claims.release(c, claim, failures=failures, not_before=now + wait if wait else 0.0)

    @cached_property
    def _versions(self) -> TextClause:
        query = text(f"SELECT id, event_seq FROM {self.table.name} WHERE id IN :ids")
        return query.bindparams(bindparam("ids", expanding=True))

    @cached_property
    def _next_event(self) -> TextClause:
        return text(f"UPDATE {self.table.name} SET event_seq=event_seq+1 WHERE id=:i RETURNING event_seq")
