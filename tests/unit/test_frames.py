"""The evaluator's end of a model server's socket believes nothing: every way a reply can be wrong has a name."""

import fcntl
import re
import socket
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtimes.harness.model_server import model_protocol, model_server_client
from runtimes.harness.model_server.model_faults import Crashed, Failed, Garbage, ModelFault, TimedOut, WrongAnswer
from runtimes.harness.model_server.model_protocol import framed
from runtimes.harness.model_server.model_server_client import ModelServerClient, finite
from runtimes.harness.simulators.base import Interface, Space
from tests.waiting import until

SPACE = Space(dtype="float32", shape=(2,), names=("a", "b"), units=("", ""), low=(-1.0, -1.0), high=(1.0, 1.0))
INTERFACE = Interface(observation=SPACE, action=SPACE)
ACTION = np.array([[0.5, -0.5]], np.float32)
SEEN = np.zeros(2, np.float32)


@contextmanager
def connected(deadline: float) -> Iterator[tuple[ModelServerClient, socket.socket]]:
    ours, theirs = socket.socketpair()
    model_server = ModelServerClient(ours, INTERFACE, batch=1, deadline=deadline)
    yield model_server, theirs
    model_server.close()
    theirs.close()


@pytest.fixture
def pair() -> Iterator[tuple[ModelServerClient, socket.socket]]:
    """A model server that answers in time, however busy the machine is."""
    with connected(60.0) as made:
        yield made


@pytest.fixture
def late() -> Iterator[tuple[ModelServerClient, socket.socket]]:
    """A model server whose answer is not waited for long."""
    with connected(0.5) as made:
        yield made


@contextmanager
def answering(end: socket.socket, answer: Callable[[socket.socket], object]) -> Iterator[list[bytes]]:
    """Answer as soon as a request has come; yield what was asked."""
    asked: list[bytes] = []

    def work() -> None:
        asked.append(end.recv(1 << 16))
        answer(end)

    thread = threading.Thread(target=work)
    thread.start()
    yield asked
    thread.join()


def tell(said: bytes, end: socket.socket) -> None:
    end.send(said)


def reply(model_server: ModelServerClient) -> bytes:
    """Return the right answer to the next `act`."""
    return framed(("action", model_server.seq + 1, ACTION.tobytes()))


@pytest.mark.parametrize("seq", [model_server_client.FIRST, model_server_client.LAST - 1, model_server_client.LAST])
def test_the_right_answer_is_taken_as_it_comes(seq: int) -> None:
    ours, theirs = socket.socketpair()
    model_server = ModelServerClient(ours, INTERFACE, batch=1, deadline=60.0, seq=seq)
    following = model_server_client.FIRST if seq == model_server_client.LAST else seq + 1
    with answering(theirs, partial(tell, framed(("action", following, ACTION.tobytes())))) as asked:
        actions, took = model_server.act(SEEN)
    assert np.array_equal(actions, ACTION)
    assert 0 < took < model_server.deadline
    assert asked == [framed(("act", following, 1, SEEN.tobytes()))]
    model_server.close()
    theirs.close()


def unread(end: socket.socket) -> int:
    """Return how much of what was sent the other end has not read (SIOCOUTQ, unix(7))."""
    return int.from_bytes(fcntl.ioctl(end, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


def test_an_answer_in_pieces_is_one_answer(pair: tuple[ModelServerClient, socket.socket]) -> None:
    model_server, theirs = pair
    right = reply(model_server)

    def dribble(end: socket.socket) -> None:
        for at in range(len(right)):
            end.send(right[at : at + 1])
            until(lambda: not unread(end), every=0.0)

    with answering(theirs, dribble):
        actions, _ = model_server.act(SEEN)
    assert np.array_equal(actions, ACTION)


WRONG: dict[str, tuple[Callable[[ModelServerClient], bytes], type[ModelFault], str]] = {
    "one byte more": (lambda model_server: reply(model_server) + b"x", Garbage, "more than its reply"),
    "two replies": (lambda model_server: reply(model_server) * 2, Garbage, "more than its reply"),
    "another number": (
        lambda model_server: framed(("action", model_server.seq, ACTION.tobytes())),
        Garbage,
        "invalid reply",
    ),
    "another length": (
        lambda model_server: framed(("action", model_server.seq + 1, b"1234")),
        Garbage,
        "invalid reply",
    ),
    "another frame": (lambda model_server: framed(("ready", model_server.seq + 1)), Garbage, "invalid reply"),
    "no msgpack": (lambda model_server: b"\x05\x00\x00\x00hello", Garbage, "invalid reply"),
    "a huge length": (lambda model_server: b"\xff\xff\xff\x7f", Garbage, "invalid reply"),
    "deep nesting": (
        lambda model_server: model_protocol.LENGTH.pack(60000) + b"\x91" * 60000,
        Garbage,
        "invalid reply",
    ),
    "an error": (lambda model_server: framed(("error", model_server.seq + 1, "oh no")), Failed, "oh no"),
    "an answer that is none": (
        lambda model_server: framed(("error", model_server.seq + 1, "(3,)", "invalid")),
        WrongAnswer,
        "(3,)",
    ),
    "an error of another request": (lambda model_server: framed(("error", 5, "oh no")), Garbage, "another request"),
    "an error of an unknown kind": (
        lambda model_server: framed(("error", model_server.seq + 1, "x", "ok")),
        Garbage,
        "invalid reply",
    ),
    "an error with more in it": (
        lambda model_server: framed(("error", model_server.seq + 1, "x", "failed", 1)),
        Garbage,
        "invalid reply",
    ),
    "half an answer": (lambda model_server: reply(model_server)[:-1], TimedOut, "in time"),
    "nothing": (lambda model_server: b"", TimedOut, "no answer within 0.5 s"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_answer_has_a_name(
    pair: tuple[ModelServerClient, socket.socket], late: tuple[ModelServerClient, socket.socket], what: str
) -> None:
    make, fault, words = WRONG[what]
    model_server, theirs = late if fault is TimedOut else pair
    wrong = make(model_server)
    with answering(theirs, partial(tell, wrong)), pytest.raises(fault, match=re.escape(words)):
        model_server.act(SEEN)


def test_an_answer_before_the_question_is_garbage_even_if_it_is_right(
    pair: tuple[ModelServerClient, socket.socket],
) -> None:
    model_server, theirs = pair
    theirs.send(reply(model_server))
    with pytest.raises(Garbage, match="before it was asked"):
        model_server.act(SEEN)


def test_what_can_be_no_reply_is_not_waited_for(pair: tuple[ModelServerClient, socket.socket]) -> None:
    model_server, theirs = pair
    shifted = b"\x01" + reply(model_server)
    with answering(theirs, partial(tell, shifted)), pytest.raises(Garbage):
        model_server.act(SEEN)


def test_a_deadline_is_for_the_last_byte_however_often_one_comes(late: tuple[ModelServerClient, socket.socket]) -> None:
    model_server, theirs = late
    long = framed(("error", model_server.seq + 1, "x" * 5000))
    stop = threading.Event()

    def dribble(end: socket.socket) -> None:
        for at in range(len(long)):
            if stop.wait(0.02):
                return
            end.send(long[at : at + 1])

    began = time.monotonic()
    with answering(theirs, dribble):
        with pytest.raises(TimedOut):
            model_server.act(SEEN)
        stop.set()
    assert time.monotonic() - began < 50.0  # 100 s if each byte had a time of its own


def test_a_closed_socket_is_a_crash_before_during_and_after(pair: tuple[ModelServerClient, socket.socket]) -> None:
    model_server, theirs = pair
    half = reply(model_server)[:7]

    def die(end: socket.socket) -> None:
        end.send(half)
        end.close()

    with answering(theirs, die), pytest.raises(Crashed):
        model_server.act(SEEN)
    for _ in range(3):
        with pytest.raises(Crashed):
            model_server.act(SEEN)


def test_a_model_server_that_reads_nothing_is_late() -> None:
    ours, theirs = socket.socketpair()
    space = Space(dtype="float32", shape=(1 << 20,), names=(), units=(), low=(), high=())
    model_server = ModelServerClient(ours, Interface(observation=space, action=SPACE), batch=1, deadline=0.5)
    began = time.monotonic()
    with pytest.raises(TimedOut):
        model_server.act(np.zeros(1 << 20, np.float32))
    assert time.monotonic() - began < 30.0
    model_server.close()
    theirs.close()


def test_hello_is_of_this_protocol_or_garbage(pair: tuple[ModelServerClient, socket.socket]) -> None:
    model_server, theirs = pair
    theirs.send(framed(("hello", 1, {"model_server": "x"})))
    assert model_server.hello() == {"model_server": "x"}
    for wrong in (("hello", 2, {}), ("hello", 1, {"a": [1]}), ("hello", 1, {}, 3), ("loaded", 1, {}), 7):
        theirs.send(framed(wrong))
        with pytest.raises(Garbage):
            model_server.hello()


def test_only_faults_after_which_the_model_server_cannot_be_spoken_to_are_fatal() -> None:
    fatal: dict[type[ModelFault], tuple[str, bool]] = {
        Failed: ("failed", False),
        WrongAnswer: ("invalid", False),
        Garbage: ("invalid", True),
        Crashed: ("crashed", True),
        TimedOut: ("timed_out", True),
    }
    assert {kind: (kind.status, kind.fatal) for kind in fatal} == fatal


@pytest.mark.parametrize("values", [[0.0, float("nan")], [float("inf"), 0.0], [float("-inf")] * 2, [float("nan")] * 99])
def test_no_number_is_not_finite(values: list[float]) -> None:
    for dtype in (np.float32, np.float64):
        assert not finite(np.array(values, dtype))


def test_large_numbers_are_finite() -> None:
    largest: Any = np.finfo(np.float64).max
    assert finite(np.array([largest, largest]))
    assert finite(np.array([1, 2], np.int64))


class Hasty(socket.socket):
    """Our end of a model server that has answered and gone before `sendmsg` comes back."""

    there: socket.socket
    seq: int

    def sendmsg(self, *arguments: Any) -> int:
        sent = super().sendmsg(*arguments)
        self.there.recv(1 << 16)
        self.there.send(framed(("error", self.seq, "no model at all", "failed")))
        self.there.close()
        return sent


def test_a_model_server_that_says_no_and_is_gone_at_once_is_heard(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    hasty = Hasty(fileno=ours.detach())
    hasty.there = theirs
    model_server = ModelServerClient(hasty, INTERFACE, batch=1, deadline=60.0)
    hasty.seq = model_server.seq + 1
    with open(tmp_path / "model", "wb") as model, pytest.raises(Failed, match="no model at all"):
        model_server.load("any", {}, model.fileno())
    model_server.close()
