"""Model server client: every invalid, late or missing reply is a named fault."""

import errno
import fcntl
import os
import re
import socket
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from runtimes.harness.model_server import model_protocol
from runtimes.harness.model_server.action_exchange import FIRST, LAST, drawn_numbers
from runtimes.harness.model_server.deadline_watch import DeadlineWatch
from runtimes.harness.model_server.deadlines import ServerTimes
from runtimes.harness.model_server.model_faults import (
    Crashed,
    Failed,
    Garbage,
    Killed,
    ModelFault,
    NotStarted,
    TimedOut,
    WrongAnswer,
)
from runtimes.harness.model_server.model_protocol import framed
from runtimes.harness.model_server.model_server_client import ModelServerClient, finite
from runtimes.harness.simulators.base import Interface, Space
from tests.waiting import until

SPACE = Space(dtype="float32", shape=(2,), names=("a", "b"), units=("", ""), low=(-1.0, -1.0), high=(1.0, 1.0))
INTERFACE = Interface(observation=SPACE, action=SPACE)
ACTION = np.array([[0.5, -0.5]], np.float32)
OBSERVATION = np.zeros(2, np.float32)


@contextmanager
def connected(deadline: float, rows: int = 0) -> Iterator[tuple[ModelServerClient, socket.socket]]:
    local, remote = socket.socketpair()
    model_server = ModelServerClient(local, INTERFACE, batch=1, deadline=deadline, rows=rows)
    yield model_server, remote
    model_server.close()
    remote.close()


@pytest.fixture
def pair() -> Iterator[tuple[ModelServerClient, socket.socket]]:
    """A client with a deadline that is met on a busy machine, and the model server's socket."""
    with connected(60.0) as client_and_socket:
        yield client_and_socket


@pytest.fixture
def pair_with_short_deadline() -> Iterator[tuple[ModelServerClient, socket.socket]]:
    """A client with a short deadline, and the model server's socket."""
    with connected(0.5) as client_and_socket:
        yield client_and_socket


@contextmanager
def answering(server_socket: socket.socket, send_answer: Callable[[socket.socket], object]) -> Iterator[list[bytes]]:
    """Answer a single request in a thread; yield the list that receives the request."""
    requests: list[bytes] = []

    def work() -> None:
        requests.append(server_socket.recv(1 << 16))
        send_answer(server_socket)

    thread = threading.Thread(target=work)
    thread.start()
    yield requests
    thread.join()


def send(frame: bytes, connection: socket.socket) -> None:
    connection.send(frame)


def next_seq(model_server: ModelServerClient) -> int:
    """Return the sequence number of the next request, which no other process can know."""
    return model_server._socket._numbers[-1]


def reply(model_server: ModelServerClient) -> bytes:
    """Return the correct reply to the next `act`."""
    return framed(("action", next_seq(model_server), ACTION.tobytes()))


def test_a_valid_reply_is_returned_as_actions(pair: tuple[ModelServerClient, socket.socket]) -> None:
    model_server, remote = pair
    seq = next_seq(model_server)
    with answering(remote, partial(send, reply(model_server))) as requests:
        actions, latency = model_server.act(OBSERVATION)
    assert np.array_equal(actions, ACTION)
    assert 0 < latency < model_server.deadline
    assert requests == [framed(("act", seq, 1, OBSERVATION.tobytes()))]


def test_a_closed_client_leaves_no_descriptor_open() -> None:
    before = set(os.listdir("/proc/self/fd"))
    with connected(60.0):
        pass
    assert set(os.listdir("/proc/self/fd")) == before


def test_an_action_of_its_own_is_not_overwritten_by_the_next(pair: tuple[ModelServerClient, socket.socket]) -> None:
    model_server, remote = pair
    with answering(remote, partial(send, reply(model_server))):
        first, _ = model_server.act_alone(OBSERVATION)
    with answering(remote, partial(send, framed(("action", next_seq(model_server), bytes(8))))):
        second, _ = model_server.act_alone(OBSERVATION.astype(np.float64))
    assert np.array_equal(first, ACTION[0]) and np.array_equal(second, np.zeros(2))


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2), (2, 1, 3)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
def test_actions_of_any_shape_and_type_are_those_of_the_last_reply(shape: tuple[int, ...], dtype: str) -> None:
    space = Space(dtype=dtype, shape=shape, names=(), units=(), low=(), high=())
    local, remote = socket.socketpair()
    model_server = ModelServerClient(local, Interface(observation=space, action=space), batch=1, deadline=60.0)
    for number in (1, 2):
        expected, observation = np.full(shape, number, dtype), np.full(shape, number + 2, np.float64)
        frame = framed(("action", next_seq(model_server), expected.tobytes()))
        with answering(remote, partial(send, frame)) as requests:
            action, _ = model_server.act_alone(observation)
        assert action.shape == shape and action.dtype == dtype and np.array_equal(action, expected)
        assert requests[0].endswith(observation.astype(dtype).tobytes())
        assert finite(action)
    model_server.close()
    remote.close()


def test_sequence_numbers_cannot_be_foreseen_and_have_five_bytes() -> None:
    drawn = [number for _ in range(20) for number in drawn_numbers()]
    assert all(FIRST <= number <= LAST for number in drawn)
    assert all(len(msgspec.msgpack.encode(number)) == 5 for number in drawn)
    assert len(set(drawn)) > len(drawn) * 0.99
    changed = np.bitwise_or.reduce(np.array(drawn, np.uint32)) & ~np.bitwise_and.reduce(np.array(drawn, np.uint32))
    assert changed == LAST - FIRST, "every bit but the one that makes five bytes is drawn"


@pytest.mark.parametrize("said", [True, False, 1, "yes", None])
def test_memory_is_shared_with_a_model_server_that_says_in_its_hello_that_it_serves_rows(said: Any) -> None:
    with connected(60.0, rows=4) as (model_server, remote):
        remote.send(framed(("hello", 1, {"model_server": "x"} | ({} if said is None else {"serves_rows": said}))))
        assert model_server.hello() == {"model_server": "x"}
        with answering(remote, partial(send, framed(("loaded", next_seq(model_server), {})))) as requests:
            model_server.load("any", {}, "/model")
        (load,) = (msgspec.msgpack.decode(request[4:]) for request in requests)
        assert load[2].get("rows") == (4 if said is True else None)
        assert (model_server.rows is not None) == (said is True)


def test_a_machine_without_such_memory_has_one_world(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, flags: int) -> int:
        raise OSError(errno.ENOSYS, "no such call")

    monkeypatch.setattr(os, "memfd_create", refuse)
    with connected(60.0, rows=4) as (model_server, remote):
        remote.send(framed(("hello", 1, {"model_server": "x", "serves_rows": True})))
        model_server.hello()
        with answering(remote, partial(send, framed(("loaded", next_seq(model_server), {})))) as requests:
            model_server.load("any", {}, "/model")
        assert model_server.rows is None
        assert "rows" not in msgspec.msgpack.decode(requests[0][4:])[2]


def unread(connection: socket.socket) -> int:
    """Return how many sent bytes the peer has not read (SIOCOUTQ, unix(7))."""
    return int.from_bytes(fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


def test_a_reply_may_arrive_in_pieces(pair: tuple[ModelServerClient, socket.socket]) -> None:
    model_server, remote = pair
    valid_reply = reply(model_server)

    def send_bytewise(connection: socket.socket) -> None:
        for offset in range(len(valid_reply)):
            connection.send(valid_reply[offset : offset + 1])
            until(lambda: not unread(connection), every=0.0)

    with answering(remote, send_bytewise):
        actions, _ = model_server.act(OBSERVATION)
    assert np.array_equal(actions, ACTION)


INVALID_REPLIES: dict[str, tuple[Callable[[ModelServerClient], bytes], type[ModelFault], str]] = {
    "one byte more": (lambda model_server: reply(model_server) + b"x", Garbage, "more than its reply"),
    "two replies": (lambda model_server: reply(model_server) * 2, Garbage, "more than its reply"),
    "another sequence number": (
        lambda model_server: framed(("action", next_seq(model_server) ^ 1, ACTION.tobytes())),
        Garbage,
        "invalid reply",
    ),
    "another length": (
        lambda model_server: framed(("action", next_seq(model_server), b"1234")),
        Garbage,
        "invalid reply",
    ),
    "another kind of frame": (lambda model_server: framed(("ready", next_seq(model_server))), Garbage, "invalid reply"),
    "invalid msgpack": (lambda model_server: b"\x05\x00\x00\x00hello", Garbage, "invalid reply"),
    "a huge length": (lambda model_server: b"\xff\xff\xff\x7f", Garbage, "invalid reply"),
    "deep nesting": (
        lambda model_server: model_protocol.LENGTH.pack(60000) + b"\x91" * 60000,
        Garbage,
        "invalid reply",
    ),
    "an error": (lambda model_server: framed(("error", next_seq(model_server), "oh no")), Failed, "oh no"),
    "an error of kind invalid": (
        lambda model_server: framed(("error", next_seq(model_server), "(3,)", "invalid")),
        WrongAnswer,
        "(3,)",
    ),
    "an error of another request": (lambda model_server: framed(("error", 5, "oh no")), Garbage, "another request"),
    "an error of an unknown kind": (
        lambda model_server: framed(("error", next_seq(model_server), "x", "ok")),
        Garbage,
        "invalid reply",
    ),
    "an error with an extra member": (
        lambda model_server: framed(("error", next_seq(model_server), "x", "failed", 1)),
        Garbage,
        "invalid reply",
    ),
    "half a reply": (lambda model_server: reply(model_server)[:-1], TimedOut, "no answer within 0.5 s"),
    "no reply": (lambda model_server: b"", TimedOut, "no answer within 0.5 s"),
}


@pytest.mark.parametrize("case", INVALID_REPLIES)
def test_an_invalid_reply_is_a_named_fault(
    pair: tuple[ModelServerClient, socket.socket],
    pair_with_short_deadline: tuple[ModelServerClient, socket.socket],
    case: str,
) -> None:
    make_reply, fault, message = INVALID_REPLIES[case]
    model_server, remote = pair_with_short_deadline if fault is TimedOut else pair
    invalid_reply = make_reply(model_server)
    with answering(remote, partial(send, invalid_reply)), pytest.raises(fault, match=re.escape(message)):
        model_server.act(OBSERVATION)


def test_a_reply_before_its_request_is_garbage(pair: tuple[ModelServerClient, socket.socket]) -> None:
    model_server, remote = pair
    guessed = framed(("action", model_server._socket.seq + 1, ACTION.tobytes()))
    assert len(guessed) == len(reply(model_server))
    remote.send(guessed)
    with pytest.raises(Garbage, match="sent an invalid reply"):
        model_server.act(OBSERVATION)


def test_bytes_after_a_reply_are_garbage_at_the_next_request(pair: tuple[ModelServerClient, socket.socket]) -> None:
    model_server, remote = pair
    with answering(remote, partial(send, reply(model_server))):
        model_server.act(OBSERVATION)
    remote.send(b"x")
    with answering(remote, partial(send, reply(model_server))), pytest.raises(Garbage):
        model_server.act(OBSERVATION)


def test_bytes_that_cannot_start_a_reply_are_refused_without_waiting(
    pair: tuple[ModelServerClient, socket.socket],
) -> None:
    model_server, remote = pair
    shifted_reply = b"\x01" + reply(model_server)
    with answering(remote, partial(send, shifted_reply)), pytest.raises(Garbage):
        model_server.act(OBSERVATION)


def test_the_deadline_applies_to_the_last_byte_of_a_reply(
    pair_with_short_deadline: tuple[ModelServerClient, socket.socket],
) -> None:
    model_server, remote = pair_with_short_deadline
    long_reply = framed(("error", next_seq(model_server), "x" * 5000))
    stop = threading.Event()

    def send_slowly(connection: socket.socket) -> None:
        for offset in range(len(long_reply)):
            if stop.wait(0.02):
                return
            connection.send(long_reply[offset : offset + 1])

    started_at = time.monotonic()
    with answering(remote, send_slowly):
        with pytest.raises(TimedOut):
            model_server.act(OBSERVATION)
        stop.set()
    assert time.monotonic() - started_at < 50.0  # 100 s if each byte had its own deadline


def test_a_closed_socket_is_a_crash_during_a_reply_and_afterwards(
    pair: tuple[ModelServerClient, socket.socket],
) -> None:
    model_server, remote = pair
    half_reply = reply(model_server)[:7]

    def close_within_reply(connection: socket.socket) -> None:
        connection.send(half_reply)
        connection.close()

    with answering(remote, close_within_reply), pytest.raises(Crashed):
        model_server.act(OBSERVATION)
    for _ in range(3):
        with pytest.raises(Crashed):
            model_server.act(OBSERVATION)


def test_a_model_server_that_does_not_read_times_out() -> None:
    local, remote = socket.socketpair()
    space = Space(dtype="float32", shape=(1 << 20,), names=(), units=(), low=(), high=())
    model_server = ModelServerClient(local, Interface(observation=space, action=SPACE), batch=1, deadline=0.5)
    started_at = time.monotonic()
    with pytest.raises(TimedOut):
        model_server.act(np.zeros(1 << 20, np.float32))
    assert time.monotonic() - started_at < 30.0
    model_server.close()
    remote.close()


def test_a_hello_of_another_protocol_is_garbage(pair: tuple[ModelServerClient, socket.socket]) -> None:
    model_server, remote = pair
    remote.send(framed(("hello", 1, {"model_server": "x"})))
    assert model_server.hello() == {"model_server": "x"}
    for invalid_hello in (("hello", 2, {}), ("hello", 1, {"a": [1]}), ("hello", 1, {}, 3), ("loaded", 1, {}), 7):
        remote.send(framed(invalid_hello))
        with pytest.raises(Garbage):
            model_server.hello()


def test_only_faults_of_the_model_itself_are_not_fatal() -> None:
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
    early_error.seq = next_seq(model_server)
    with open(tmp_path / "model", "wb") as model, pytest.raises(Failed, match="no model at all"):
        model_server.load("any", {}, model.fileno())
    model_server.close()


# -- a process per scenario


@contextmanager
def per_scenario() -> Iterator[tuple[ModelServerClient, socket.socket]]:
    """A client whose model server has said that it has a process per scenario, and the zygote's end."""
    local, zygote = socket.socketpair()
    model_server = ModelServerClient(local, INTERFACE, batch=1, deadline=60.0)
    zygote.send(framed(("hello", 1, {model_protocol.PROCESS_PER_SCENARIO: True})))
    assert model_server.hello() == {}
    try:
        yield model_server, zygote
    finally:
        model_server.close()
        zygote.close()


@contextmanager
def passing() -> Iterator[tuple[ModelServerClient, socket.socket, socket.socket]]:
    """A client that has loaded a model on the socket of a first process; the zygote's end and that process's end."""
    with per_scenario() as (model_server, zygote), tempfile.TemporaryFile() as model:
        seq, processes = next_seq(model_server), list[socket.socket]()

        def answer_load() -> None:
            _, (received, process), _, _ = socket.recv_fds(zygote, 1 << 16, 2)
            os.close(received)
            processes.append(socket.socket(fileno=process))
            zygote.send(model_protocol.SOCKET_FRAME)
            processes[0].send(framed(("loaded", seq, {"class": "Model"})))

        answering = threading.Thread(target=answer_load)
        answering.start()
        assert model_server.load("any", {}, model.fileno()) == {"class": "Model"}
        answering.join()
        with processes[0] as first:
            yield model_server, zygote, first


def begun(zygote: socket.socket) -> socket.socket:
    """Receive the socket of the next process, as a zygote does, and say that the process runs."""
    frame, (process,), _, _ = socket.recv_fds(zygote, 64, 1)
    assert frame == model_protocol.SOCKET_FRAME
    zygote.send(model_protocol.SOCKET_FRAME)
    return socket.socket(fileno=process)


def read_frame(connection: socket.socket) -> Any:
    """Read a frame."""
    return msgspec.msgpack.decode(connection.recv(1 << 16)[4:])


def test_each_scenario_is_served_on_the_socket_of_its_own_process() -> None:
    with passing() as (model_server, zygote, first):
        model_server.begin(1)
        name, seq, _ = read_frame(first)
        first.send(framed(("ready", seq)))
        model_server.ready(1)
        model_server.end(2)
        assert (name, first.recv(1)) == ("reset", b"")  # closing the socket is the end of the scenario
        with begun(zygote) as second:
            second.send(framed(("ready", following := next_seq(model_server))))
            model_server.ready(2)
            assert read_frame(second) == ["reset", following, {"seed": 2}]


def test_a_reset_is_sent_early_if_the_process_is_there() -> None:
    with passing() as (model_server, zygote, first):
        model_server.begin(1)
        first.send(framed(("ready", model_server._socket.seq)))
        model_server.ready(1)
        model_server.end(None)
        with begun(zygote) as second:
            model_server.begin(2)
            assert read_frame(second) == ["reset", model_server._socket.seq, {"seed": 2}]


def test_a_model_server_that_ends_between_two_scenarios_is_no_fault_of_the_second() -> None:
    with passing() as (model_server, zygote, first):
        model_server.begin(1)
        first.send(framed(("ready", model_server._socket.seq)))
        model_server.ready(1)
        zygote.close()
        model_server.end(2)
        with pytest.raises(NotStarted):
            model_server.ready(2)


def without_timeouts(connected: socket.socket) -> None:
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connected.setsockopt(socket.SOL_SOCKET, option, bytes(16))


@pytest.mark.parametrize(
    "undo",
    [
        without_timeouts,
        lambda connected: connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1 << 20),
        lambda connected: connected.setblocking(True),
        lambda connected: connected.setblocking(False),
    ],
    ids=["no timeouts", "a high mark for wake-ups", "blocking", "not blocking"],
)
def test_no_option_that_a_model_sets_on_its_socket_holds_the_evaluator_beyond_the_deadline(
    undo: Callable[[socket.socket], None],
) -> None:
    """Options belong to the open socket: a process that held a copy of the evaluator's end could undo its limits."""
    with passing() as (model_server, _, process):
        model_server.deadline = model_server._socket.deadline = 0.2
        model_server._socket.use(model_server._socket.connected)
        model_server.begin(1)
        undo(process)
        process.setblocking(True)
        process.send(framed(("ready", model_server._socket.seq)))
        model_server.ready(1)
        undo(process)
        began = time.monotonic()
        with pytest.raises(TimedOut):
            model_server.act(ACTION)
        assert time.monotonic() - began < 10.0  # a kernel without the timeout would wait for ever


def test_an_answer_whose_wait_was_not_observed_is_judged_by_the_clock() -> None:
    """A model could otherwise gain from hiding: what was not observed counts as had."""
    observed = ServerTimes(threads={"1": (0.0, 0.0)})
    watch = DeadlineWatch(1.0, lambda: observed, time.monotonic() - 65.0)
    with pytest.raises(TimedOut):
        watch.settle()
    with pytest.raises(TimedOut):
        DeadlineWatch(1.0, lambda: observed, time.monotonic() - 1.5).check()


def test_the_log_has_what_a_missed_deadline_was_judged_by(capsys: pytest.CaptureFixture[str]) -> None:
    counters = iter([ServerTimes(threads={"1": (0.0, 0.0)}), None, ServerTimes(threads={"1": (0.0, 0.0)})])
    watch = DeadlineWatch(1.0, lambda: next(counters, ServerTimes(threads={"1": (0.05, 0.0)})))
    with pytest.raises(TimedOut):
        until(watch.check, every=0.01)
    line = capsys.readouterr().err
    assert line.startswith("deadline: ") and "of 1 s" in line and "1 looks without counters" in line
    assert "cpu=0.05, queued=0.0" in line


def test_time_in_which_the_machine_did_not_run_the_evaluator_is_no_fault_of_the_model() -> None:
    observed = ServerTimes(threads={"1": (0.0, 0.0)})

    def watch(own_delay: float, began: float) -> DeadlineWatch:
        delays = iter([own_delay])
        return DeadlineWatch(1.0, lambda: observed, time.monotonic() - began, lambda: next(delays, 0.0))

    watch(0.8, began=1.5).check()
    watch(0.8, began=1.5).settle()
    for late in (watch(0.3, began=1.5), watch(100.0, began=75.0)):  # most of it was run; and there is an end
        with pytest.raises(TimedOut):
            late.settle()
    excused = watch(100.0, began=1.5)
    excused.check()
    with pytest.raises(TimedOut):  # 1.4 of the 1.5 s are excused, once
        until(excused.check, every=0.01)


def test_a_wait_for_a_processor_that_still_lasts_is_no_fault_of_the_model() -> None:
    """The kernel counts it once it is over: until then, a thread is ready, and nothing of it changes."""
    waiting = ServerTimes(threads={"1": (0.2, 0.1)}, ready=["1"])
    asleep = ServerTimes(threads={"1": (0.2, 0.1)})
    watch = DeadlineWatch(0.1, lambda: waiting)
    began = time.monotonic()
    until(lambda: watch.check() is None and time.monotonic() - began > 0.5, every=0.005)
    watch.settle()
    for times in (
        iter([waiting, *[asleep] * 99]),
        iter([ServerTimes(threads={"1": (n / 100, 0.1)}, ready=["1"]) for n in range(99)]),
    ):
        other = DeadlineWatch(0.1, lambda times=times: next(times))  # type: ignore[misc]
        with pytest.raises(TimedOut):
            until(other.check, every=0.005)


def test_a_runner_that_tells_late_what_a_model_server_got_is_no_fault_of_the_model() -> None:
    def told_late() -> ServerTimes:
        time.sleep(0.3)
        return ServerTimes(threads={"1": (0.0, 0.0)})

    watch = DeadlineWatch(0.1, told_late)
    until(lambda: watch.check() is None and watch._first is not None)
    watch.settle()


def test_a_descriptor_that_a_model_server_passes_is_not_taken() -> None:
    with per_scenario() as (model_server, zygote), tempfile.TemporaryFile() as file:
        socket.send_fds(zygote, [framed(("sockot",))], [file.fileno()])
        with pytest.raises(Garbage):
            model_server.load("any", {}, file.fileno())


def test_a_model_server_of_the_whole_launch_gets_no_sockets() -> None:
    local, remote = socket.socketpair()
    model_server = ModelServerClient(local, INTERFACE, batch=1, deadline=60.0, per_scenario=False)
    remote.send(framed(("hello", 1, {model_protocol.PROCESS_PER_SCENARIO: True})))
    model_server.hello()
    remote.send(model_protocol.SOCKET_FRAME)
    with tempfile.TemporaryFile() as file, pytest.raises(Garbage):
        model_server.load("any", {}, file.fileno())
    _, descriptors, _, _ = socket.recv_fds(remote, 1 << 16, 2)
    assert len(descriptors) == 1
    os.close(descriptors[0])
    model_server.close()
    remote.close()


@pytest.mark.parametrize(
    ("code", "how", "kind"),
    [
        (-9, "killed by SIGKILL", Killed),
        (None, "killed by SIGKILL", Killed),
        (137, "killed by SIGKILL", Crashed),
        (-31, "killed by SIGSYS", Crashed),
        (1, "it exited with code 1", Crashed),
        (-9, "killed by SIGKILL: the kernel ended it or a process beside it because their control group", Crashed),
        (-9, "killed by the platform: it was not needed any more", Crashed),
        (-9, None, Crashed),
    ],
)
def test_a_process_that_was_killed_from_outside_is_told_from_one_that_ended_by_itself(
    code: int | None, how: str | None, kind: type[ModelFault]
) -> None:
    with passing() as (model_server, zygote, _):
        if code is None:
            zygote.close()
        else:
            zygote.send(framed(("ended", code)))
        model_server.describe_end = lambda: how
        assert type(model_server.explain_fault(Crashed("the model's process ended"))) is kind
