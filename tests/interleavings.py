"""Model checker of transactions: runs actors against a database in every order of their steps, up to a bound.

The steps are those of the real code. On PostgreSQL each statement and each commit is one, and a statement that waits
for a lock lets the others go on; SQLite has one writer, so that a step is a transaction. A schedule is replayed from
its first step on a world that is made afresh; the next differs from it in the last step at which another actor could
go on (stateless search, as in VeriSoft; preemptions are bounded as in CHESS).
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, event, text

from core.store.database import Database

#: What an actor does: it calls the code under test in a thread of its own, and what it returns or raises is kept.
Actor = Callable[[], Any]
#: Seconds that an actor may compute between two statements, or PostgreSQL take for one that waits for no lock.
LONGEST_STEP = 60.0
#: Seconds between two looks at whether a statement waits for a lock.
POLL = 0.0005
#: Seconds that a statement waits before the others go on. PostgreSQL has looked for a deadlock then, after a
#: millisecond, so that of two that wait for each other the later one is ended, in each replay.
WAITED = 0.006

#: Runs of a schedule that diverges from what it was before it is left out; what it became is checked each time.
ATTEMPTS = 3


class Violation(AssertionError):
    """A property does not hold after a schedule; the text names the schedule."""


@dataclass(frozen=True, slots=True)
class Explored:
    """Number of schedules, and of those in which an actor waited for another's lock."""

    schedules: int
    blocked: int


@dataclass(frozen=True, slots=True)
class _Run:
    """A schedule that was run. ``diverged``: the choice that could not be made again, if there was one."""

    results: dict[str, Any]
    blocked: bool
    diverged: int | None


@dataclass(slots=True)
class _Choice:
    """A moment at which an actor was chosen. ``left``: those that could have been instead, and have not been yet."""

    chosen: str
    left: list[str]


@dataclass(slots=True)
class _Session:
    """An actor in its thread. It stops at each step until it is told to go on."""

    name: str
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    stopped: threading.Event = field(default_factory=threading.Event)
    over: bool = False
    pid: int = 0
    blockers: tuple[int, ...] = ()
    new_blockers: tuple[int, ...] = ()
    result: Any = None
    error: BaseException | None = None

    def stop(self) -> None:
        """Wait at a step."""
        self.stopped.set()
        self.go.acquire()


class Explorer:
    """Explores the interleavings of actors on a database."""

    def __init__(self, database: Database, *, preemptions: int | None = None) -> None:
        """``preemptions``: how often an actor may be left that could go on; None: always."""
        self._database = database
        self._preemptions = preemptions
        self._threads: dict[int, _Session] = {}
        self._admin: psycopg.Connection[Any] | None = None

    def explore(
        self,
        begin: Callable[[], Mapping[str, Actor]],
        check: Callable[[Mapping[str, Any]], None],
    ) -> Explored:
        """Run every schedule; raise Violation for the first after which ``check`` fails.

        ``begin`` makes the world afresh and returns the actors. ``check`` gets what they returned or raised.
        """
        path: list[_Choice] = []
        schedules = blocked = attempts = 0
        with self._stepwise():
            while True:
                run = self._run(begin(), path)
                schedules, blocked = schedules + 1, blocked + run.blocked
                try:
                    check(run.results)
                except AssertionError as error:
                    order = " ".join(choice.chosen for choice in path)
                    raise Violation(f"schedule {schedules} ({order}): {error}") from error
                attempts = attempts + 1 if run.diverged is not None else 0
                if 0 < attempts < ATTEMPTS:
                    continue
                if run.diverged is not None:
                    del path[run.diverged + 1 :]
                attempts = 0
                while path and not path[-1].left:
                    path.pop()
                if not path:
                    return Explored(schedules, blocked)
                path[-1].chosen = path[-1].left.pop()

    @contextmanager
    def _stepwise(self) -> Iterator[None]:
        """Stop the threads of actors before each statement and commit, or on SQLite before each transaction."""
        if self._database.embedded:
            write = self._database.write

            def transaction(work: Callable[[Connection], Any], *, durable: bool = True) -> Any:
                if (session := self._threads.get(threading.get_ident())) is not None:
                    session.stop()
                return write(work, durable=durable)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(self._database, "write", transaction)
                yield
            return

        def statement(connection: Connection, *_: Any) -> None:
            if (session := self._threads.get(threading.get_ident())) is not None:
                session.pid = connection.connection.driver_connection.info.backend_pid  # type: ignore[union-attr]
                session.stop()

        url = self._database.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        engine = self._database.engine
        with psycopg.connect(url, autocommit=True) as self._admin:
            name = engine.url.database
            self._admin.execute(f"ALTER DATABASE {name} SET deadlock_timeout = '1ms'")
            engine.dispose()  # connections made from now on have that setting
            for kind in ("before_cursor_execute", "commit"):
                event.listen(engine, kind, statement)
            try:
                yield
            finally:
                for kind in ("before_cursor_execute", "commit"):
                    event.remove(engine, kind, statement)

    def _run(self, actors: Mapping[str, Actor], path: list[_Choice]) -> "_Run":
        """Run a schedule: first the choices of ``path``, then the actor that ran last as long as it can."""
        sessions = {name: _Session(name) for name in actors}
        threads = [
            threading.Thread(target=self._act, args=(sessions[name], actor), daemon=True)
            for name, actor in actors.items()
        ]
        for thread in threads:
            thread.start()
        self._settle_all(sessions)
        at, last, preempted, waited = 0, "", 0, False
        diverged: int | None = None
        while any(not session.over for session in sessions.values()):
            waiting = [name for name, session in sessions.items() if not session.over and not session.stopped.is_set()]
            waited = waited or bool(waiting)
            ready = [name for name, session in sessions.items() if not session.over and session.stopped.is_set()]
            assert ready, f"all wait: {', '.join(waiting)}"
            if at == len(path) and diverged is None:
                preferred = last if last in ready else ready[0]
                may_preempt = last not in ready or self._preemptions is None or preempted < self._preemptions
                others = [name for name in ready if name != preferred] if may_preempt else []
                path.append(_Choice(preferred, others))
            chosen = path[at].chosen if at < len(path) else last
            if chosen not in ready:  # PostgreSQL has woken two that waited for one row in another order
                chosen, diverged = ready[0], at if diverged is None else diverged
            preempted += last in ready and chosen != last
            at, last = at + 1, chosen
            sessions[chosen].stopped.clear()
            sessions[chosen].go.release()
            self._settle_all(sessions)
        for thread in threads:
            thread.join()
        results = {name: session.error or session.result for name, session in sessions.items()}
        return _Run(results, waited, diverged)

    def _settle_all(self, sessions: Mapping[str, _Session]) -> None:
        """Wait until each actor has stopped at a step, has ended, or waits for the lock of one that has stopped."""
        while True:
            waiting = [session for session in sessions.values() if not session.stopped.is_set()]
            for session in waiting:
                self._settle(session)
            if all(not session.stopped.is_set() for session in waiting):
                return

    def _settle(self, session: _Session) -> None:
        """Wait until an actor has stopped at a step, has ended, or waits for a lock."""
        deadline = time.monotonic() + LONGEST_STEP
        since = time.monotonic()
        while not session.stopped.wait(POLL):
            now = time.monotonic()
            blockers = self._blockers(session)
            if blockers and blockers == session.blockers:
                return  # it waits as before
            if not blockers or blockers != session.new_blockers:
                since, session.new_blockers = now, blockers
            elif now - since >= WAITED:
                session.blockers = blockers
                return
            assert now < deadline, f"{session.name} neither ends a step nor waits for a lock"
        session.blockers = session.new_blockers = ()

    def _blockers(self, session: _Session) -> tuple[int, ...]:
        """Return the processes of PostgreSQL for whose locks an actor waits."""
        if self._admin is None or not session.pid:
            return ()
        found = self._admin.execute("SELECT pg_blocking_pids(%s)", (session.pid,)).fetchone()
        return tuple(found[0]) if found else ()

    def _act(self, session: _Session, actor: Actor) -> None:
        self._threads[threading.get_ident()] = session
        try:
            session.result = actor()
        except BaseException as error:  # kept, for `check` to judge
            session.error = error
        finally:
            del self._threads[threading.get_ident()]
            session.over = True
            session.stopped.set()


def raised(results: Mapping[str, Any], *expected: type[Exception]) -> Sequence[BaseException]:
    """Return the errors of actors that are none of the expected kinds."""
    return [
        result for result in results.values() if isinstance(result, BaseException) and not isinstance(result, expected)
    ]


def take_turn(database: Database) -> None:
    """Wait for a step of its own, so that what an actor changes outside the database happens in its turn."""
    database.write(lambda c: c.execute(text("SELECT 1")) and None)
