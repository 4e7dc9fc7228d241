"""Evaluator connection: whatever pieces frames arrive in, each is one request, and each answer has its number."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from runtimes.harness.model_server.evaluator_connection import ROOM, EvaluatorConnection
from runtimes.harness.model_server.model_protocol import Act, Close, Request, Reset, Rows, framed
from runtimes.harness.simulators.base import Interface, Space

SPACE = Space(dtype="float32", shape=(2,), names=("a", "b"), units=("", ""), low=(-1.0, -1.0), high=(1.0, 1.0))
numbers = st.integers(1 << 16, (1 << 31) - 1)
#: Messages of an evaluator; sequence numbers below 65,536 are shorter than those of the platform's evaluator.
messages = st.one_of(
    st.tuples(st.just("act"), numbers, st.just(1), st.binary(min_size=8, max_size=8)),
    st.tuples(st.just("act"), st.integers(0, 65535), st.just(1), st.binary(min_size=8, max_size=8)),
    st.tuples(st.just("reset"), numbers, st.just({"seed": 1 << 62})),
    st.tuples(st.just("rows"), numbers, st.booleans(), st.floats(0.0, 9.0)),
)


@contextmanager
def connected(space: Space = SPACE) -> Iterator[tuple[EvaluatorConnection, socket.socket]]:
    ours, evaluators = socket.socketpair()
    connection = EvaluatorConnection(ours)
    connection.expect(Interface(observation=space, action=space), 1)
    with ours, evaluators:
        yield connection, evaluators


def told(request: Request | np.ndarray[Any, Any] | None, seq: int) -> tuple[Any, ...]:
    """Return a request as the message that it was."""
    if isinstance(request, np.ndarray):
        return "act", seq, 1, request.tobytes()
    assert isinstance(request, Act | Reset | Rows)
    fields = msgspec.structs.astuple(request)
    return type(request).__name__.lower(), *(bytes(item) if isinstance(item, memoryview) else item for item in fields)


@given(st.lists(messages, max_size=12), st.data())
def test_frames_in_any_pieces_are_the_requests_that_were_sent(sent: list[tuple[Any, ...]], data: st.DataObject) -> None:
    stream = b"".join(framed(message) for message in sent)
    edges = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[start:end] for start, end in zip([0, *edges], [*edges, len(stream)], strict=True)]
    with connected() as (connection, evaluators):
        evaluators.setblocking(False)
        received: list[tuple[Any, ...]] = []
        arrived = 0
        ends = [len(b"".join(framed(message) for message in sent[: count + 1])) for count in range(len(sent))]
        for piece in pieces:
            evaluators.send(piece) if piece else None
            arrived += len(piece)
            while len(received) < len(sent) and ends[len(received)] <= arrived:
                request = connection.next()
                received.append(told(request, connection.seq))
                connection.answer(bytes(8))
                answer = msgspec.msgpack.decode(evaluators.recv(1 << 16)[4:])
                assert answer == ["action", received[-1][1], bytes(8)]
        assert received == sent
        evaluators.close()
        assert connection.next() is None


def test_after_a_frame_beyond_the_buffer_requests_are_read_as_before() -> None:
    large = ("act", 1 << 20, ROOM // 8, bytes(ROOM))
    usual = ("act", 1 << 20, 1, bytes(8))
    with connected() as (connection, evaluators):
        evaluators.send(framed(usual))
        assert connection.next() is connection.observations
        evaluators.sendall(framed(large))
        assert isinstance(connection.next(), Act)
        evaluators.sendall(framed(usual) + framed(("close", 1 << 20)))
        assert told(connection.next(), connection.seq) == usual
        assert isinstance(connection.next(), Close)
        evaluators.close()
        assert connection.next() is None
