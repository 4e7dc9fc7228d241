"""Tunnels on each database engine: bytes between a person and a program, through two processes that share rows."""

import os
import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import text

from common.errors import TooLarge
from core.notifications.change_notifier import ChangeNotifier
from core.notifications.local_notifier import LocalNotifier
from core.services.scheduling import tunnels as service
from core.services.scheduling.tunnels import LARGEST_PIECE, Tunnels
from core.store import results, tunnels
from core.store.database import Database
from core.store.tunnels import MOST_WAITING_PIECES, Side, TunnelRow
from tests.contracts.test_leases import SIMULATION, begin
from tests.waiting import until

ID = "01jz8w0k5qv3r1m9c2t7x4b6ne"


class Ends:
    """The two ends of a connection, each in a process of its own."""

    def __init__(self, database: Database) -> None:
        self.database = database
        notifiers = LocalNotifier(), LocalNotifier()
        person, program = (Tunnels(database, each, ChangeNotifier(database, each, interval=0.02)) for each in notifiers)
        self.of: dict[Side, Tunnels] = {"person": person, "program": program}
        database.write(lambda c: tunnels.open(c, TunnelRow(ID, SIMULATION, 0, "8888", "me", database.now(c))))

    def send(self, side: Side, number: int, data: bytes) -> bool:
        return self.of[side].push(SIMULATION, ID, side, number, data).accepted

    def waiting(self) -> int:
        """Return how many pieces wait."""
        with self.database.read() as c:
            return int(c.scalar(text("SELECT count(*) FROM tunnel_pieces")) or 0)

    def receive(self, side: Side, number: int, timeout: float = 5.0) -> tuple[int, bytes, bool, bool]:
        header, data = self.of[side].pull(SIMULATION, ID, side, number, timeout)
        return header.next, data, header.end, header.over


@pytest.fixture
def ends(database: Database) -> Iterator[Ends]:
    begin(database, 100)
    yield Ends(database)


def test_bytes_pass_in_both_directions_and_each_side_ends_by_itself(ends: Ends) -> None:
    assert ends.send("person", 0, b"GET / ") and ends.send("person", 1, b"HTTP/1.1")
    assert ends.receive("program", 0) == (2, b"GET / HTTP/1.1", False, False)
    assert ends.send("person", 2, b"")
    assert ends.send("program", 0, b"200 OK")
    assert ends.receive("program", 2) == (3, b"", True, False)
    assert ends.receive("person", 0) == (1, b"200 OK", False, False)
    assert ends.send("program", 1, b"")
    assert ends.receive("person", 1) == (2, b"", True, False)


def test_a_request_that_is_repeated_changes_nothing(ends: Ends) -> None:
    assert ends.send("person", 0, b"once") and ends.send("person", 0, b"once")
    assert ends.receive("program", 0)[1] == ends.receive("program", 0)[1] == b"once"
    assert ends.receive("program", 1, timeout=0.0) == (1, b"", False, False)
    assert ends.waiting() == 0


def test_who_waits_is_woken_by_what_the_other_process_sends(ends: Ends) -> None:
    received: list[bytes] = []
    waiting = threading.Thread(target=lambda: received.append(ends.receive("program", 0)[1]))
    waiting.start()
    ends.send("person", 0, b"woken")
    waiting.join()
    assert received == [b"woken"]


def test_a_reader_that_is_slow_holds_the_sender_back_and_all_bytes_arrive(ends: Ends) -> None:
    sent = [os.urandom(1000) for _ in range(3 * MOST_WAITING_PIECES)]

    def send() -> None:
        for number, data in enumerate([*sent, b""]):
            until(lambda number=number, data=data: ends.send("program", number, data))  # type: ignore[misc]

    sender = threading.Thread(target=send)
    sender.start()
    until(lambda: ends.waiting() == MOST_WAITING_PIECES)
    received, number, end = b"", 0, False
    while not end:
        number, data, end, _ = ends.receive("person", number)
        received += data
    sender.join()
    assert received == b"".join(sent)


def test_a_connection_that_is_closed_is_over_for_both_sides(ends: Ends) -> None:
    ends.send("person", 0, b"unread")
    ends.of["person"].close(SIMULATION, ID)
    assert ends.receive("program", 0)[3] and ends.receive("person", 0)[3]
    assert ends.of["program"].push(SIMULATION, ID, "program", 0, b"late").over
    assert ends.waiting() == 0


def test_a_connection_of_another_simulation_is_over(ends: Ends) -> None:
    ends.send("person", 0, b"secret")
    header, data = ends.of["program"].pull("another", ID, "program", 0)
    assert header.over and data == b""
    assert ends.of["program"].push("another", ID, "program", 0, b"forged").over
    ends.of["program"].close("another", ID)
    assert ends.receive("program", 0)[1] == b"secret"


def test_a_person_who_is_gone_ends_the_connection(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "ABSENCE", -1.0)
    assert ends.receive("program", 0, timeout=0.0)[3]


def test_a_piece_that_is_too_large_is_refused(ends: Ends) -> None:
    with pytest.raises(TooLarge):
        ends.send("person", 0, b"x" * (LARGEST_PIECE + 1))


def test_a_deleted_simulation_leaves_no_connections(ends: Ends) -> None:
    ends.send("person", 0, b"x")
    ends.database.write(lambda c: results.forget(c, SIMULATION, 100))
    with ends.database.read() as c:
        for table in ("tunnels", "tunnel_pieces"):
            assert c.scalar(text(f"SELECT count(*) FROM {table}")) == 0
