"""Runner looks: looks of people into a task, as the runner API hands them to its runner and takes the answers."""

import time
from collections.abc import Collection, Sequence

import msgspec

from common.errors import TooManyWaits
from core.notifications.change_notifier import ChangeNotifier, Waiters
from core.notifications.notifier import Notifier
from core.services.scheduling.tunnels import Tunnels
from core.store import looks
from core.store.database import Connection, Database
from runtimes.harness.runner.runner_api_messages import LookAnswer, LookRequest

#: Requests of runners that wait in a process at the same time; each occupies a server thread.
SLOTS = 32
#: Seconds for which a request of a runner waits for looks.
WAIT = 20.0
#: `Retry-After` in seconds of a request that finds no free slot.
PAUSE = 2
#: What is published when a simulation is looked into begins so, and goes on with its id.
LOOK_KEY = "looks-of-"


class RunnerLooks:
    """Looks into tasks, for their runners. ``allowed``: whether the operator lets people look.

    ``ports``: of programs, to which people may connect.
    """

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        changes: ChangeNotifier,
        *,
        allowed: bool,
        ports: Collection[int] = (),
    ) -> None:
        self.allowed = allowed
        self.ports = ports if allowed else ()
        self.tunnels = Tunnels(database, notifier, changes)
        self._database = database
        self._notifier = notifier
        self._waiters: Waiters = changes.waiters(_versions, slots=SLOTS, full=lambda: TooManyWaits(retry_after=PAUSE))

    def are_waiting(self, simulation: str) -> bool:
        """Return whether people wait for looks into a simulation's task."""
        if not self.allowed:
            return False
        with self._database.read() as c:
            return looks.are_waiting(c, simulation)

    def take(self, simulation: str, timeout: float = WAIT) -> Sequence[LookRequest]:
        """Return the looks that are to be answered, once there are any; none after ``timeout`` seconds.

        Raise TooManyWaits if no slot is free, or after ``close``.
        """
        if not self.allowed:
            return ()
        until, watched = time.monotonic() + timeout, LOOK_KEY + simulation
        with self._waiters.watching(watched):
            while True:
                version = self._waiters.version(watched)
                if self.are_waiting(simulation):
                    requests = self._database.write(lambda c: looks.take(c, simulation), durable=False)
                    return [msgspec.json.decode(request, type=LookRequest) for request in requests]
                if not self._waiters.wait(watched, version, max(0.0, until - time.monotonic())):
                    return ()

    def answer(self, simulation: str, answer: LookAnswer, data: bytes) -> None:
        """Take the answer of a runner, for the process that waits for it."""
        document = msgspec.json.encode(answer).decode()
        self._database.write(lambda c: looks.answer(c, simulation, answer.id, document, data), durable=False)
        self._notifier.publish(answer.id)

    def close(self) -> None:
        """End all waits with TooManyWaits, and refuse new ones: they would delay the shutdown of the server."""
        self._waiters.close()
        self.tunnels.shut()


def _versions(c: Connection, ids: Sequence[str]) -> dict[str, int]:
    """Return version 1 of what is watched where looks wait: an answer to each of them follows."""
    return {id: 1 for id in ids if looks.are_waiting(c, id.removeprefix(LOOK_KEY))}
