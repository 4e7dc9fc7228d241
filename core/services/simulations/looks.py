"""Looks into tasks that run: the folders of a program's task, and its files while they grow; each look is recorded.

A look is a row that the task's runner takes, and answers through the runner API, which may be another process. The
operator allows looks, for the whole platform: a submission has no say.
"""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from common.errors import (
    LooksNotAllowed,
    PortNotReached,
    RunnerSilent,
    TaskNotAtWork,
    TooManyStreams,
    UnknownTask,
    UnknownTaskFile,
)
from common.ids import new_id
from core.domain.access.roles import Verb
from core.domain.access.scopes import Caller
from core.domain.scheduling.launches import Gang
from core.domain.scheduling.states import FINAL, State
from core.domain.submissions.submission_spec import spec_of
from core.notifications.change_notifier import ChangeNotifier, Waiters
from core.notifications.notifier import Notifier
from core.services.scheduling.runner_looks import LOOK_KEY
from core.services.scheduling.tunnels import ABSENCE, Tunnels
from core.store import looks, simulations, tunnels
from core.store.database import Connection, Database
from core.store.looks import LookRow, LookSubject
from core.store.tunnels import TunnelRow
from runtimes.harness.runner.runner_api_messages import LookAnswer, LookRequest

#: Seconds after which a runner that has not answered is given up: a heartbeat, by which it hears of the first look,
#: comes every third of the time for which a lease lives.
PATIENCE = 15.0
#: Most connections to programs of a simulation.
MOST_TUNNELS = 24
#: Seconds after which a request is left over from a process that has ended.
LEFT_OVER = 120.0


@dataclass(frozen=True, slots=True)
class LookedAt:
    """The sight of a look: ``answer`` with the entries of a folder, or with where the bytes of a file are from."""

    answer: LookAnswer
    data: bytes


class TaskLooks:
    """Looks of people into tasks. ``allowed``: whether the operator lets them; ``slots``: most at the same time.

    ``ports``: of programs, to which people may connect.
    """

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        changes: ChangeNotifier,
        *,
        allowed: bool,
        slots: int,
        ports: Collection[int] = (),
    ) -> None:
        self.tunnels = Tunnels(database, notifier, changes)
        self._ports = ports
        self._database = database
        self._notifier = notifier
        self._allowed = allowed
        self._waiters: Waiters = changes.waiters(_versions, slots=slots, full=lambda: TooManyStreams(retry_after=5))

    def list(self, caller: Caller, id: str, task: int, path: str) -> LookedAt:
        """Return the entries of a folder of a task, or with an empty path the folders that are shown."""
        return self._look(caller, id, LookRequest(id=_new_id(), task=task, kind="list", path=path))

    def read(self, caller: Caller, id: str, task: int, path: str, *, offset: int, length: int, wait: float) -> LookedAt:
        """Return bytes of a file of a task; if there are none yet, wait for some, ``wait`` seconds at most."""
        look = LookRequest(id=_new_id(), task=task, kind="read", path=path, offset=offset, length=length, wait=wait)
        return self._look(caller, id, look)

    def connect(self, caller: Caller, id: str, task: int, port: int) -> str:
        """Connect to a port of a task's program; return the id of the tunnel, which has the bytes.

        Raise PortNotReached if the operator does not let it be forwarded, or nothing listens there.
        """
        self._require_shown(caller, id, task)
        if port not in self._ports:
            raise LooksNotAllowed(
                f"The operator does not let port {port} be forwarded (WINDTUNNEL_FORWARDED_PORTS:"
                f" {', '.join(map(str, sorted(self._ports))) or 'none'})."
            )
        with self._database.read() as c:
            caller.require_change(simulations.find(c, caller.scope, id).submitted_by)
        look = LookRequest(id=_new_id(), task=task, kind="connect", path=str(port))

        def open(c: Connection) -> None:
            now = self._database.now(c)
            tunnels.close_absent(c, id, now - ABSENCE)
            if tunnels.count(c, id) >= MOST_TUNNELS:
                raise TooManyStreams(f"There are {MOST_TUNNELS} connections to this simulation.", retry_after=5)
            tunnels.open(c, TunnelRow(look.id, id, task, look.path, caller.name, now))

        self._database.write(open, durable=False)
        try:
            self._look(caller, id, look)
        except UnknownTaskFile as error:
            self.tunnels.close(id, look.id)
            raise PortNotReached(f"Port {error.detail}") from None
        except Exception:
            self.tunnels.close(id, look.id)
            raise
        return look.id

    def is_connected(self, caller: Caller, id: str, connection: str) -> bool:
        """Return whether a connection to a simulation is the caller's own, and is not over."""
        with self._database.read() as c:
            tunnel = tunnels.find(c, connection) if simulations.found(c, caller.scope, [id]) else None
        if tunnel is None or tunnel.simulation_id != id:
            return False
        return tunnel.opened_by == caller.name or Verb.CHANGE_OTHERS in caller.verbs

    def records(self, caller: Caller, id: str, after: int, limit: int) -> Sequence[LookRow]:
        """Return who has looked at what in the tasks of a simulation, but for the first ``after`` of them."""
        with self._database.read() as c:
            simulations.find(c, caller.scope, id)
            return looks.records(c, id, after, limit)

    def _look(self, caller: Caller, id: str, look: LookRequest) -> LookedAt:
        """Have the runner answer a look, and record it.

        Raise UnknownSimulation, LooksNotAllowed, UnknownTask, TaskNotAtWork, UnknownTaskFile, RunnerSilent or
        TooManyStreams.
        """
        self._require_shown(caller, id, look.task)
        with self._waiters.watching(look.id):
            request = msgspec.json.encode(look).decode()
            self._database.write(lambda c: looks.ask(c, id, look.id, request, self._database.now(c)), durable=False)
            self._notifier.publish(LOOK_KEY + id)
            answered = self._await(look.id, time.monotonic() + PATIENCE + look.wait)
            seen = 0 if answered is None else len(answered.data)
            self._database.write(lambda c: self._record(c, id, look, caller.name, seen), durable=False)
        if answered is None:
            raise RunnerSilent()
        if answered.answer.ended:
            raise TaskNotAtWork(f"Task {look.task} cannot be looked into: {answered.answer.problem}.")
        if answered.answer.problem is not None:
            raise UnknownTaskFile(f"{look.path or 'The task'}: {answered.answer.problem}.")
        return answered

    def _require_shown(self, caller: Caller, id: str, task: int) -> None:
        """Raise UnknownSimulation, LooksNotAllowed, UnknownTask, or TaskNotAtWork if no program of it runs."""
        with self._database.read() as c:
            row = simulations.find(c, caller.scope, id)
            total, *_ = simulations.counts(c, id)
        if not self._allowed:
            raise LooksNotAllowed()
        if not 0 <= task < total:
            raise UnknownTask(f"There is no task {task}: the simulation has {total}, numbered from 0.")
        gang = spec_of(row.spec).gang
        if not gang or not msgspec.convert(gang, Gang).attended:
            raise TaskNotAtWork("Only tasks of a program that a runner leads can be looked into (docs/gangs.md).")
        if State(row.state) is not State.RUNNING:
            now = (
                f"has ended ({row.state}); its artifacts and its log are kept"
                if row.state in FINAL
                else f"is {row.state}"
            )
            raise TaskNotAtWork(f"The simulation {now}. Its tasks can be looked into while they run.")

    def _await(self, id: str, until: float) -> LookedAt | None:
        """Wait for the answer to a look; None: there is none in time."""
        while True:
            version = self._waiters.version(id)
            with self._database.read() as c:
                answer = looks.answer_of(c, id)
            if answer is not None:
                document, data = answer
                return LookedAt(msgspec.json.decode(document, type=LookAnswer), data)
            if not self._waiters.wait(id, version, max(0.0, until - time.monotonic())):
                return None

    def _record(self, c: Connection, simulation: str, look: LookRequest, by: str, seen: int) -> None:
        """Record a look, before the person gets the sight of it; it is not waited for any more."""
        now = self._database.now(c)
        subject = LookSubject(simulation=simulation, task=look.task, kind=look.kind, path=look.path, by=by)
        looks.record(c, subject, seen, now)
        looks.forget(c, look.id, now - LEFT_OVER)


def _new_id() -> str:
    return new_id(datetime.now(UTC))


def _versions(c: Connection, ids: Sequence[str]) -> dict[str, int]:
    return dict.fromkeys(looks.answered_ids(c, ids), 1)
