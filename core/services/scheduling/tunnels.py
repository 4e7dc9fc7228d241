"""Tunnels: connections of people to ports of programs, whose bytes pass between two processes of the server in rows.

Each side sends numbered pieces, and asks for those of the other side by the number that it wants next: what it has
asked beyond is deleted, so that a request may be repeated.
"""

import time
from collections.abc import Sequence

from common.errors import TooLarge, TooManyStreams
from core.notifications.change_notifier import ChangeNotifier, Waiters
from core.notifications.notifier import Notifier
from core.store import looks
from core.store import tunnels as store
from core.store.database import Connection, Database
from core.store.looks import LookSubject
from core.store.tunnels import Side, TunnelRow
from runtimes.harness.runner.runner_api_messages import PieceAccepted, PiecesHeader

#: Requests that wait for bytes in a process at the same time; each occupies a server thread.
SLOTS = 64
#: Seconds for which a request waits for bytes.
WAIT = 20.0
#: Seconds without a request of the person's side after which the connection is over.
ABSENCE = 60.0
#: Most bytes of a piece.
LARGEST_PIECE = 256 << 10
_OTHER: dict[Side, Side] = {"person": "program", "program": "person"}


class Tunnels:
    """The connections of all simulations. A side that is named sends, or asks for what the other one has sent."""

    def __init__(self, database: Database, notifier: Notifier, changes: ChangeNotifier) -> None:
        self._database = database
        self._notifier = notifier
        self._waiters: Waiters = changes.waiters(_versions, slots=SLOTS, full=lambda: TooManyStreams(retry_after=2))

    def push(self, simulation: str, id: str, side: Side, number: int, data: bytes) -> PieceAccepted:
        """Send a piece; an empty one is the last of its side. It is not accepted while too many wait."""
        if len(data) > LARGEST_PIECE:
            raise TooLarge()

        def push(c: Connection) -> PieceAccepted:
            tunnel = _find_tunnel(c, simulation, id)
            if tunnel is None:
                return PieceAccepted(over=True)
            accepted = store.push(c, id, side, number, data)
            if accepted:
                _count(c, tunnel, len(data), self._database.now(c))
            return PieceAccepted(accepted)

        answer = self._database.write(push, durable=False)
        if answer.accepted:
            self._notifier.publish(_watch_key(id, side))
        return answer

    def pull(
        self, simulation: str, id: str, side: Side, number: int, timeout: float = WAIT
    ) -> tuple[PiecesHeader, bytes]:
        """Return what the other side has sent from a piece on, once there is something; nothing after ``timeout``."""
        until, other = time.monotonic() + timeout, _OTHER[side]
        watched = _watch_key(id, other)
        if not self._database.write(lambda c: self._acknowledge(c, simulation, id, side, number), durable=False):
            return PiecesHeader(number, over=True), b""
        with self._waiters.watching(watched):
            while True:
                version = self._waiters.version(watched)
                with self._database.read() as c:
                    pieces, open = store.pull(c, id, other, number), _find_tunnel(c, simulation, id) is not None
                if pieces or not open:
                    end = any(not data for _, data in pieces)
                    following = pieces[-1][0] + 1 if pieces else number
                    return PiecesHeader(following, end=end, over=not open), b"".join(data for _, data in pieces)
                if not self._waiters.wait(watched, version, max(0.0, until - time.monotonic())):
                    return PiecesHeader(number), b""

    def close(self, simulation: str, id: str) -> None:
        """End a connection, unless it is over already."""

        def close(c: Connection) -> None:
            if _find_tunnel(c, simulation, id) is not None:
                store.close(c, id)

        self._database.write(close, durable=False)
        for side in _OTHER:
            self._notifier.publish(_watch_key(id, side))

    def shut(self) -> None:
        """End all waits, and refuse new ones: they would delay the shutdown of the server."""
        self._waiters.close()

    def _acknowledge(self, c: Connection, simulation: str, id: str, side: Side, number: int) -> bool:
        """Note that a side has all pieces before a number; return False if the connection is over."""
        tunnel, now = _find_tunnel(c, simulation, id), self._database.now(c)
        if tunnel is not None and side == "program" and now > tunnel.asked_at + ABSENCE:
            store.close(c, id)
            tunnel = None
        if tunnel is None:
            return False
        store.forget_read(c, id, _OTHER[side], number)
        if side == "person":
            store.note_person(c, id, now)
        return True


def _find_tunnel(c: Connection, simulation: str, id: str) -> TunnelRow | None:
    """Return a connection of a simulation."""
    tunnel = store.find(c, id)
    return tunnel if tunnel is not None and tunnel.simulation_id == simulation else None


def _count(c: Connection, tunnel: TunnelRow, size: int, now: float) -> None:
    subject = LookSubject(
        simulation=tunnel.simulation_id, task=tunnel.task, kind="connect", path=tunnel.port, by=tunnel.opened_by
    )
    looks.count_bytes(c, subject, size, now)


def _watch_key(id: str, side: Side) -> str:
    return f"{id}-{side}"


def _versions(c: Connection, ids: Sequence[str]) -> dict[str, int]:
    """Return a version of what each side has sent: its newest piece, and another one once the connection is over."""
    versions = {}
    for watched in ids:
        id, _, side = watched.partition("-")
        newest = store.newest(c, id, "person" if side == "person" else "program")
        versions[watched] = newest if store.find(c, id) is not None else -2
    return versions
