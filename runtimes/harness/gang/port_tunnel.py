"""Port tunnel: a connection to a port inside a task's sandbox, whose bytes the runner passes on by the runner API.

Both directions are numbered pieces, so that a request that is repeated changes nothing.
"""

import contextlib
import socket
import threading
from urllib.parse import urlencode

import msgspec

from ..runner.runner_api_client import Credentials, LaunchOver, RequestRejected, RunnerApiClient, Unreachable
from ..runner.runner_api_messages import PieceAccepted, PiecesHeader, unpack_pieces

#: Bytes of a piece at most; seconds until a piece for which there was no room is sent again.
PIECE, ROOM = 64 << 10, 0.05
#: Seconds for which pieces are sent again while the runner API does not answer.
PATIENCE = 30.0


class TunnelClient(RunnerApiClient):
    """A connection to the runner API for one direction of a tunnel. ``id``: of the look that it began with."""

    def __init__(self, credentials: Credentials, id: str) -> None:
        super().__init__(credentials, threading.Event(), patience=PATIENCE)
        self._id = id

    def push(self, number: int, data: bytes) -> PieceAccepted:
        """Pass a piece on to the person; an empty one is the end."""
        _, answer = self._ask("POST", f"/tunnel?{urlencode({'id': self._id, 'number': number})}", data)
        return msgspec.json.decode(answer, type=PieceAccepted)

    def pull(self, number: int) -> tuple[PiecesHeader, bytes]:
        """Wait a while for the pieces of the person from a number on; return them, possibly none."""
        _, answer = self._ask("GET", f"/tunnel?{urlencode({'id': self._id, 'number': number})}", b"")
        return unpack_pieces(answer)


class PortTunnel:
    """Passes the bytes of a connection on, in two threads, until both of its sides have ended."""

    def __init__(self, credentials: Credentials, id: str, connection: socket.socket) -> None:
        self._credentials, self._id = credentials, id
        self._connection = connection

    def start(self) -> None:
        """Start passing on."""
        threads = [
            threading.Thread(target=pass_on, name=f"tunnel-{pass_on.__name__}", daemon=True)
            for pass_on in (self._push, self._pull)
        ]
        for thread in threads:
            thread.start()
        threading.Thread(target=self._close_after, args=(threads,), name="tunnel-end", daemon=True).start()

    def _push(self) -> None:
        client, number, pause = TunnelClient(self._credentials, self._id), 0, threading.Event()
        try:
            while True:
                try:
                    data = self._connection.recv(PIECE)
                except OSError:
                    data = b""
                while not (answer := client.push(number, data)).accepted and not answer.over:
                    pause.wait(ROOM)
                number += 1
                if answer.over or not data:
                    break
            if answer.over:
                self._shut(socket.SHUT_RDWR)
        except (LaunchOver, Unreachable, RequestRejected):
            self._shut(socket.SHUT_RDWR)
        finally:
            client.close()

    def _pull(self) -> None:
        client, number = TunnelClient(self._credentials, self._id), 0
        try:
            while True:
                header, data = client.pull(number)
                number = header.next
                self._connection.sendall(data)
                if header.over:
                    self._shut(socket.SHUT_RDWR)
                    return
                if header.end:
                    self._shut(socket.SHUT_WR)
                    return
        except (OSError, LaunchOver, Unreachable, RequestRejected):
            self._shut(socket.SHUT_RDWR)
        finally:
            client.close()

    def _shut(self, direction: int) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(direction)

    def _close_after(self, threads: list[threading.Thread]) -> None:
        for thread in threads:
            thread.join()
        self._connection.close()
