"""Recording: the transactions of a request write its audit entries themselves, so that neither is without the other.

A context variable has the recording of the request at hand, and `Database.write` looks for one. It belongs to the
thread of the request: transactions of other threads, and those of background jobs, have none.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from sqlalchemy import Connection

from common.ids import new_id
from core.domain.access.audit import AuditEntry, entries_of, sign_in_act
from core.store import audit

T = TypeVar("T")
_NOTED_KEY = "windtunnel.noted"
_SIGNED_IN_KEY, _TRIED_KEY = "windtunnel.signed_in", "windtunnel.tried"


class Recording:
    """The entries of one request. ``describe`` returns its act, as far as it is known at that time.

    ``noted_only``: a transaction that makes or changes nothing has no entry, as of jobs that look again and again.
    ``tried``: the user as whom the request tries to sign in; empty: as nobody, or nobody knows yet.
    """

    def __init__(self, describe: Callable[[], AuditEntry], *, noted_only: bool = False) -> None:
        self._describe = describe
        self._noted_only = noted_only
        self._noted: list[str] = []
        self._before: set[str] = set()
        self._inserts = False
        self.request = new_id(datetime.now(UTC))
        self.tried = ""
        self.written = False

    def around(
        self, work: Callable[[Connection], T], now: Callable[[Connection], float], *, durable: bool
    ) -> Callable[[Connection], T]:
        """Return a transaction that does the work, and then inserts its entries. It may run more than once.

        A transaction that is not durable has entries only if it names its subjects: others are signs of life.
        """
        act = replace(self._describe(), request=self.request)
        first = durable and not self.written and not self._noted_only

        def work_and_record(c: Connection) -> T:
            noted = c.info[_NOTED_KEY] = self._noted = []
            try:
                result = work(c)
            finally:
                del c.info[_NOTED_KEY]  # the connection serves others next
                signed_in: str | None = c.info.pop(_SIGNED_IN_KEY, None)
                self.tried = c.info.pop(_TRIED_KEY, self.tried)
            done = act if signed_in is None else sign_in_act(act, signed_in, known=True)
            entries = entries_of(done, noted, self._before, first=first)
            self._inserts = bool(entries)
            if entries:
                audit.add(c, [(entry, 1) for entry in entries], now(c))
            return result

        return work_and_record

    def note_commit(self) -> None:
        """Take note that the transaction of the last `around` is committed."""
        self.written = self.written or self._inserts
        self._before.update(self._noted)


#: The recording of this thread's request.
CURRENT_RECORDING: ContextVar[Recording | None] = ContextVar("recording", default=None)


@contextmanager
def recorded_act(act: AuditEntry) -> Iterator[None]:
    """Record what the transactions of this block make or change as an act of the platform, or of a row for its user."""
    token = CURRENT_RECORDING.set(Recording(lambda: act, noted_only=True))
    try:
        yield
    finally:
        CURRENT_RECORDING.reset(token)


@contextmanager
def recorded_request(act: AuditEntry) -> Iterator[None]:
    """Record the first transaction of this block as an act, and further ones that make or change something else."""
    token = CURRENT_RECORDING.set(Recording(lambda: act))
    try:
        yield
    finally:
        CURRENT_RECORDING.reset(token)


def note(c: Connection, subject: str) -> None:
    """Name something that this transaction makes or changes, such as ``models/<id>``, for the entry of its request."""
    if (noted := c.info.get(_NOTED_KEY)) is not None:
        noted.append(subject)


def note_sign_in(c: Connection, user: str) -> None:
    """Name the user who has shown in this transaction who he is: its entry is his."""
    if _NOTED_KEY in c.info:
        c.info[_SIGNED_IN_KEY] = user


def note_known(c: Connection, user: str) -> None:
    """Name the user as whom this transaction tries to sign in, for the entry of its refusal."""
    if _NOTED_KEY in c.info:
        c.info[_TRIED_KEY] = user


def note_try(user: str) -> None:
    """Name the user as whom the request at hand tries to sign in, as `note_known` does outside of a transaction."""
    if (recording := CURRENT_RECORDING.get()) is not None:
        recording.tried = user
