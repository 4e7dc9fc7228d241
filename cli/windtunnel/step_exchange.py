"""Step exchange: a trainer's orders to a process of simulators on this machine, through memory that it shares with it.

The process may be wrong or hostile: it can tell wrong numbers, and nothing worse. Its answers are copied once, and then
only the copy is looked at; waiting has a deadline.
"""

import os

import msgspec

from windtunnel.step_memory import DOCUMENT, RING, Answers, ArrayType, Document, RingWait, StepMemory

#: Seconds for the order of each world.
ANSWER_SECONDS = 50.0

_document = msgspec.msgpack.Decoder(Document)


class ProcessLost(Exception):
    """The process is to be ended; the text says why. Empty: it has ended by itself, or has closed its pipe."""


class StepExchange:
    """Memory and pipes, made for a process, which gets ``descriptors``; they are then closed by `close_passed`.

    ``memory``: its orders and what they need are to be set before `ring`. ``spin``: seconds for which this process
    polls before it sleeps.
    """

    def __init__(self, observation: ArrayType, action: ArrayType, worlds: int, spin: float) -> None:
        self.memory, memory = StepMemory.make(observation, action, worlds)
        asked, self._ask = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._answered, answered = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.descriptors = (memory, asked, answered)
        self._wait = RingWait(self._answered, spin)
        self._rung = False

    def close_passed(self) -> None:
        """Close what the process has."""
        for descriptor in self.descriptors:
            os.close(descriptor)

    def settle(self) -> None:
        """Drop the answer to orders whose wait was interrupted, as by Ctrl-C. Raise ProcessLost without any."""
        if self._rung:
            self.answers(self.memory.worlds)

    def ring(self) -> None:
        """Send the orders; raise ProcessLost if the process takes none."""
        try:
            os.write(self._ask, RING)
        except BlockingIOError:
            raise ProcessLost("it has answered orders that it has not read") from None
        except BrokenPipeError:
            raise ProcessLost from None
        self._rung = True

    def answers(self, orders: int) -> Answers:
        """Wait for the answers to so many orders; return copies of them. Raise ProcessLost."""
        seconds = ANSWER_SECONDS * orders
        if not self._wait(1000 * seconds):
            raise ProcessLost(f"it gave no answer within {seconds:g} s, and was killed")
        try:
            rung = os.read(self._answered, 2 * len(RING))
        except BlockingIOError:  # it has opened the pipe's other end, too
            raise ProcessLost("it has read its own answer") from None
        if rung != RING:
            raise ProcessLost("it has answered more than once" if rung else "")
        self._rung = False
        return self.memory.answers()

    def document(self, world: int, length: int) -> Document:
        """Return a world's document of so many bytes. Raise ProcessLost if it is none."""
        encoded = bytes(self.memory.documents[world][: min(length, DOCUMENT)])
        try:
            return _document.decode(encoded)
        except (msgspec.MsgspecError, RecursionError):
            raise ProcessLost("it said something unreadable") from None

    def close(self) -> None:
        """Close the pipes; the memory is unmapped with the last view of it."""
        os.close(self._ask)
        os.close(self._answered)
