"""Model server client: every invalid, late or missing reply is a fault with a name."""

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
OBSERVATION = np.zeros(2, np.float32)


@contextmanager
def connected(deadline: float) -> Iterator[tuple[ModelServerClient, socket.socket]]:
    local, remote = socket.socketpair()
    model_server = ModelServerClient(local, INTERFACE, batch=1, deadline=deadline)
    yield model_server, remote
    model_server.close()
    remote.close()


@pytest.fixture
def pair() -> Iterator[tuple[ModelServerClient, socket.socket]]:
    """A client with a deadline that is met on a busy machine, and the model server's end."""
    with connected(60.0) as made:
        yield made


@pytest.fixture
def late() -> Iterator[tuple[ModelServerClient, socket.socket]]:
    """A client with a short deadline, and the model server's end."""
    with connected(0.5) as made:
        yield made


@contextmanager
def answering(end: socket.socket, answer: Callable[[socket.socket], object]) -> Iterator[list[bytes]]:
    """Answer one request in a thread; yield the list that will have the request."""
    requests: list[bytes] = []

    def work() -> None:
        requests.append(end.recv(1 << 16))
        answer(end)

    thread = threading.Thread(target=work)
    thread.start()
    yield requests
    thread.join()


def send(frame: bytes, end: socket.socket) -> None:
    end.send(frame)


def reply(model_server: ModelServerClient) -> bytes:
    """Return the valid reply to the next `act`."""
    return framed(("action", model_server.seq + 1, ACTION.tobytes()))


@pytest.mark.parametrize("seq", [model_server_client.FIRST, model_server_client.LAST - 1, model_server_client.LAST])
def test_a_valid_reply_is_returned_as_actions(seq: int) -> None:
    local, remote = socket.socketpair()
    model_server = ModelServerClient(local, INTERFACE, batch=1, deadline=60.0, seq=seq)
    following = model_server_client.FIRST if seq == model_server_client.LAST else seq + 1
    with answering(remote, partial(send, framed(("action", following, ACTION.tobytes())))) as requests:
        actions, latency = model_server.act(OBSERVATION)
    assert np.array_equal(actions, ACTION)
    assert 0 < latency < model_server.deadline
    assert requests == [framed(("act", following, 1, OBSERVATION.tobytes()))]
    model_server.close()
    remote.close()


def unread(end: socket.socket) -> int:
    """Return the bytes sent that the other end has not read (SIOCOUTQ, unix(7))."""
    return int.from_bytes(fcntl.ioctl(end, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


def test_a_reply_may_arrive_in_pieces(pair: tuple[ModelServerClient, socket.socket]) -> None:
    model_server, remote = pair
    right = reply(model_server)

    def dribble(end: socket.socket) -> None:
        for at in range(len(right)):
            end.send(right[at : at + 1])
            until(lambda: not unread(end), every=0.0)

    with answering(remote, dribble):
        actions, _ = model_server.act(OBSERVATION)
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
def test_an_invalid_reply_is_a_named_fault(
    pair: tuple[ModelServerClient, socket.socket], late: tuple[ModelServerClient, socket.socket], what: str
) -> None:
    make, fault, words = WRONG[what]
    model_server, remote = late if fault is TimedOut else pair
    wrong = make(model_server)
    with answering(remote, partial(send, wrong)), pytest.raises(fault, match=re.escape(words)):
        model_server.act(OBSERVATION)


def test_a_reply_before_its_request_is_garbage_even_if_it_is_valid(
    pair: tuple[ModelServerClient, socket.socket],
) -> None:
    model_server, remote = pair
    remote.send(reply(model_server))
    with pytest.raises(Garbage, match="before it was asked"):
        model_server.act(OBSERVATION)


def test_bytes_that_cannot_become_a_reply_are_refused_at_once(pair: tuple[ModelServerClient, socket.socket]) -> None:
    model_server, remote = pair
    shifted = b"\x01" + reply(model_server)
    with answering(remote, partial(send, shifted)), pytest.raises(Garbage):
        model_server.act(OBSERVATION)


def test_the_deadline_applies_to_the_last_byte_of_a_reply(late: tuple[ModelServerClient, socket.socket]) -> None:
    model_server, remote = late
    long = framed(("error", model_server.seq + 1, "x" * 5000))
    stop = threading.Event()

    def dribble(end: socket.socket) -> None:
        for at in range(len(long)):
            if stop.wait(0.02):
                return
            end.send(long[at : at + 1])

    began = time.monotonic()
    with answering(remote, dribble):
        with pytest.raises(TimedOut):
            model_server.act(OBSERVATION)
        stop.set()
    assert time.monotonic() - began < 50.0  # 100 s if each byte had a time of its own


def test_a_closed_socket_is_a_crash_during_a_reply_and_afterwards(
    pair: tuple[ModelServerClient, socket.socket],
) -> None:
    model_server, remote = pair
    half = reply(model_server)[:7]

    def die(end: socket.socket) -> None:
        end.send(half)
        end.close()

    with answering(remote, die), pytest.raises(Crashed):
        model_server.act(OBSERVATION)
    for _ in range(3):
        with pytest.raises(Crashed):
            model_server.act(OBSERVATION)


def test_a_model_server_that_does_not_read_times_out() -> None:
    local, remote = socket.socketpair()
    space = Space(dtype="float32", shape=(1 << 20,), names=(), units=(), low=(), high=())
    model_server = ModelServerClient(local, Interface(observation=space, action=SPACE), batch=1, deadline=0.5)
    began = time.monotonic()
    with pytest.raises(TimedOut):
        model_server.act(np.zeros(1 << 20, np.float32))
    assert time.monotonic() - began < 30.0
    model_server.close()
    remote.close()


def test_a_hello_of_another_protocol_is_garbage(pair: tuple[ModelServerClient, socket.socket]) -> None:
    model_server, remote = pair
    remote.send(framed(("hello", 1, {"model_server": "x"})))
    assert model_server.hello() == {"model_server": "x"}
    for wrong in (("hello", 2, {}), ("hello", 1, {"a": [1]}), ("hello", 1, {}, 3), ("loaded", 1, {}), 7):
        remote.send(framed(wrong))
        with pytest.raises(Garbage):
            model_server.hello()


def test_faults_of_the_model_alone_are_not_fatal() -> None:
    fatal: dict[type[ModelFault], tuple[str, bool]] = {
        Failed: ("failed", False),
        WrongAnswer: ("invalid", False),
        Garbage: ("invalid", True),
        Crashed: ("crashed", True),
        TimedOut: ("timed_out", True),
    }
    assert {kind: (kind.status, kind.fatal) for kind in fatal} == fatal


@pytest.mark.parametrize("values", [[0.0, float("nan")], [float("inf"), 0.0], [float("-inf")] * 2, [float("nan")] * 99])
def test_nan_and_infinity_are_not_finite(values: list[float]) -> None:
    for dtype in (np.float32, np.float64):
        assert not finite(np.array(values, dtype))


def test_large_numbers_are_finite() -> None:
    largest: Any = np.finfo(np.float64).max
    assert finite(np.array([largest, largest]))
    assert finite(np.array([1, 2], np.int64))


class EarlyErrorSocket(socket.socket):
    """A client's socket whose model server sends an error and exits before `sendmsg` returns."""

    model_server_end: socket.socket
    seq: int

    def sendmsg(self, *arguments: Any) -> int:
        sent = super().sendmsg(*arguments)
        self.model_server_end.recv(1 << 16)
        self.model_server_end.send(framed(("error", self.seq, "no model at all", "failed")))
        self.model_server_end.close()
        return sent


def test_the_error_of_a_model_server_that_exits_during_load_is_reported(tmp_path: Path) -> None:
    local, remote = socket.socketpair()
    early_error = EarlyErrorSocket(fileno=local.detach())
    early_error.model_server_end = remote
    model_server = ModelServerClient(early_error, INTERFACE, batch=1, deadline=60.0)
    early_error.seq = model_server.seq + 1
    with open(tmp_path / "model", "wb") as model, pytest.raises(Failed, match="no model at all"):
        model_server.load("any", {}, model.fileno())
    model_server.close()
