"""How machines of a gang join: they know its key, find its runner, and do not take themselves for it."""

import json
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from runtimes.harness.gang.gang_joining import Gathering, join
from runtimes.harness.gang.gang_transport import GangConnection, ReplicaLost
from tests.ports import free_ports

TIMEOUT = 60.0


def test_all_places_are_gathered_in_order_and_an_intruder_is_refused() -> None:
    joined: dict[int, str] = {}

    def follow(index: int, key: str) -> None:
        try:
            connection, messages = join(listener.getsockname(), key, (0, index), TIMEOUT)
            while not messages:
                messages = connection.receive()
            joined[index] = messages[0]["over"]
            connection.connection.close()
        except ReplicaLost:
            joined[-1] = "refused"

    with socket.create_server(("127.0.0.1", 0)) as listener:
        gathering = Gathering(listener, "key", [(0, 0), (0, 1)])
        intruder = threading.Thread(target=follow, args=(1, "guessed"))
        intruder.start()
        with pytest.raises(ReplicaLost, match="2 replicas did not connect"):
            while intruder.is_alive() or not joined:
                gathering.gather(0.2)
    assert joined == {-1: "refused"}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        gathering = Gathering(listener, "key", [(0, 0), (0, 1)])
        threads = [threading.Thread(target=follow, args=(index, "key")) for index in (1, 0)]
        for thread in threads:
            thread.start()
        gathering.gather(TIMEOUT)
        assert len(gathering.joined) == 2
        gathering.dismiss(5)
        for thread in threads:
            thread.join(TIMEOUT)
    assert joined == {-1: "refused", 0: 5, 1: 5}


def test_a_replica_that_tries_to_reach_the_runner_does_not_connect_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    [port] = free_ports(1)
    address, sockets = ("127.0.0.1", port), []
    create_connection: Callable[..., socket.socket] = socket.create_connection

    def connect_from_own_port(requested: tuple[str, int], **options: Any) -> socket.socket:
        """Use the requested address as the client's own address on the first call."""
        sockets.append(create_connection(requested, source_address=None if sockets else address, **options))
        return sockets[-1]

    monkeypatch.setattr(socket, "create_connection", connect_from_own_port)
    with pytest.raises(ReplicaLost, match="does not answer"):
        join(address, "key", (0, 0), 0.3)
    [connection] = sockets
    assert connection.fileno() == -1, "the port is not released, so the runner cannot listen on it"


def test_a_message_may_be_followed_by_bytes_that_look_like_messages() -> None:
    here, there = socket.socketpair()
    with here, there:
        sending, receiving = GangConnection(here), GangConnection(there)
        sending.send(b'{"a": 1}\n', into="x")
        sending.send(stop=1)
        messages = []
        while len(messages) < 2:
            messages += receiving.receive()
    assert messages == [{"into": "x", "data": b'{"a": 1}\n'}, {"stop": 1}]


@pytest.mark.parametrize("line", ["[]", "no", '{"data": -1}', '{"data": 1e9}', json.dumps({"data": 1 << 30})])
def test_a_line_that_is_no_message_ends_the_connection(line: str) -> None:
    here, there = socket.socketpair()
    with here, there:
        here.sendall(line.encode() + b"\n")
        with pytest.raises(ReplicaLost):
            GangConnection(there).receive()
