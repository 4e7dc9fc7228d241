"""Gang joining: how the processes on a gang's machines reach its runner, and prove that they belong to it.

Both sides know the gang's key, and neither shows it: each answers the other's number with a proof (gang_transport.py).
The module uses one thread and only the standard library.
"""

import contextlib
import hmac
import secrets
import selectors
import socket
import time
from collections.abc import Sequence

from .gang_transport import GangConnection, Message, ReplicaLost, proof

#: Exit codes of these processes: success; the runner was lost; it was never reached; stopped (SIGTERM).
DONE, FAILED, ALONE, STOPPED = 0, 1, 75, 143
#: Seconds to wait for the others, whose images may have to be pulled; and between two attempts to connect.
PATIENCE, RETRY = 900.0, 0.1

#: Position of a replica: its slice, and its index in it.
Place = tuple[int, int]


def join(address: tuple[str, int], key: str, place: Place, patience: float) -> tuple[GangConnection, list[Message]]:
    """Connect to the runner, with retries, and verify its proof; also return the messages received after the proof."""
    until = time.monotonic() + patience
    nonce = secrets.token_hex(16)
    while True:
        try:
            connection = socket.create_connection(address, timeout=5.0)
            if connection.getsockname() != connection.getpeername():
                break
            # On one machine the kernel may assign the destination port as the source port, and TCP then connects the
            # socket to itself (RFC 9293, 3.5, simultaneous open); the runner could not listen there meanwhile.
            connection.close()
            raise ConnectionRefusedError("no process listens")
        except OSError as error:  # the name does not resolve yet, or the runner does not listen yet
            if time.monotonic() > until:
                raise ReplicaLost(f"the runner at {address[0]}:{address[1]} does not answer: {error}") from None
            time.sleep(RETRY)
    runner = GangConnection(connection)
    connection.settimeout(patience)
    try:
        runner.send(place=place, nonce=nonce, proof=proof(key, "follow", *place, nonce))
        messages: list[Message] = []
        while not messages:
            messages = runner.receive()
        if not hmac.compare_digest(str(messages[0].get("proof")), proof(key, "lead", nonce)):
            raise ReplicaLost(f"the process at {address[0]}:{address[1]} does not know the gang's key")
    except ReplicaLost:
        connection.close()
        raise
    connection.settimeout(None)
    return runner, messages[1:]


class Gathering:
    """The runner's side: waits until every place is taken. ``listener``: on which the others connect."""

    def __init__(self, listener: socket.socket, key: str, places: Sequence[Place]) -> None:
        self._listener = listener
        self._key = key
        self._missing = set(places)
        self._joined: dict[Place, GangConnection] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, None)

    def gather(self, patience: float) -> None:
        """Wait until every place is taken; raise ReplicaLost if some are not within ``patience`` seconds."""
        until = time.monotonic() + patience
        while self._missing:
            ready = self._selector.select(max(0.0, until - time.monotonic()))
            if not ready:
                missing = len(self._missing)
                raise ReplicaLost(f"{missing} replicas did not connect, the first of them {min(self._missing)}")
            for key, _ in ready:
                if key.data is None:
                    connection, _ = self._listener.accept()
                    connection.settimeout(30.0)
                    self._selector.register(connection, selectors.EVENT_READ, GangConnection(connection))
                else:
                    self._admit(key.data)
        self._selector.close()

    def _admit(self, joining: GangConnection) -> None:
        self._selector.unregister(joining.connection)
        try:
            [greeting] = joining.receive()
            place = (int(greeting["place"][0]), int(greeting["place"][1]))
            known = hmac.compare_digest(str(greeting["proof"]), proof(self._key, "follow", *place, greeting["nonce"]))
            if not known or place not in self._missing:
                raise ReplicaLost("its proof is wrong, or its position is taken")
            joining.send(proof=proof(self._key, "lead", greeting["nonce"]))
        except (ReplicaLost, ValueError, KeyError, TypeError, IndexError):
            joining.connection.close()
            return
        joining.connection.settimeout(None)
        self._missing.remove(place)
        self._joined[place] = joining

    @property
    def joined(self) -> Sequence[GangConnection]:
        """The connections, by their places."""
        return [self._joined[place] for place in sorted(self._joined)]

    def dismiss(self, code: int) -> None:
        """Tell all that have joined to exit; the gang's exit code goes with it."""
        for connection in self._joined.values():
            with contextlib.suppress(ReplicaLost):
                connection.send(over=code)
            connection.connection.close()
