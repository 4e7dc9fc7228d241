"""Sockets of scenarios: the evaluator makes the pair of each scenario's process, and passes one end to its zygote.

Options and flags belong to the open socket, not to the process that holds it. So the evaluator's end is never in the
hands of a process that may have run code of users: nobody else can make it wait without a limit, or read from it.
"""

import contextlib
import socket


def last_words(control: socket.socket, size: int) -> bytes:
    """Receive a message of a zygote, also of one that has ended.

    If it has not read an offer, Linux says of a socket that keeps messages apart that it was reset, and only then gives
    what the zygote had sent (unix(7), `unix_release_sock`).
    """
    try:
        return control.recv(size)
    except ConnectionResetError:
        return control.recv(size)


class ScenarioSockets:
    """The evaluator's side of a zygote. ``offer``: the message with which the other end of a pair is passed."""

    def __init__(self, control: socket.socket, offer: bytes) -> None:
        self._control = control
        self._message = offer
        self._own: socket.socket | None = None

    def make(self) -> socket.socket:
        """Make the pair of the next process; return that process's end, for the caller to pass and to close."""
        self.close()
        self._own, theirs = socket.socketpair()
        return theirs

    def offer(self) -> None:
        """Make the pair of the next process and pass its end, unless that was done before."""
        if self._own is None:
            with self.make() as theirs, contextlib.suppress(OSError):  # the zygote is gone: its next message is missing
                socket.send_fds(self._control, [self._message], [theirs.fileno()])

    def take(self) -> socket.socket:
        """Return the evaluator's end of the pair that was passed, once the zygote has said that its process runs."""
        own, self._own = self._own, None
        if own is None:
            raise ValueError("no pair was passed")
        return own

    def close(self) -> None:
        """Close an end that no scenario has used."""
        if self._own is not None:
            self._own.close()
            self._own = None
