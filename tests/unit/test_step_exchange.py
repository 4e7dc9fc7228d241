"""Step exchange: whatever the process of the simulators does, its trainer has numbers or a clear error in time."""

import os
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from runtimes.harness.session import step_memory as harness
from windtunnel import step_exchange, step_memory
from windtunnel.step_exchange import ProcessLost, StepExchange
from windtunnel.step_memory import OVER, RING, STEP, ArrayType, StepMemory

OBSERVATION, ACTION = ArrayType("float32", (2, 3)), ArrayType("float64", (5,))
WORLDS = 3


@pytest.fixture
def exchange() -> Iterator[StepExchange]:
    made = StepExchange(OBSERVATION, ACTION, WORLDS, 0.0)
    yield made
    made.close()


@pytest.fixture
def process(exchange: StepExchange) -> Iterator[tuple[StepMemory, int, int]]:
    """The process's side: its memory and pipes."""
    memory, asked, answered = map(os.dup, exchange.descriptors)
    exchange.close_passed()
    yield StepMemory.of_descriptor(OBSERVATION, ACTION, WORLDS, memory), asked, answered
    for descriptor in (asked, answered):
        try:
            os.close(descriptor)
        except OSError:
            pass  # the test has closed it


def test_orders_reach_the_process_and_answers_the_trainer(
    exchange: StepExchange, process: tuple[StepMemory, int, int]
) -> None:
    theirs, asked, answered = process
    exchange.memory.orders[:] = bytes([STEP]) * WORLDS
    exchange.memory.actions[:] = np.arange(15).reshape(3, 5)
    exchange.memory.seeds[2] = (1 << 63) - 1
    exchange.ring()
    assert os.read(asked, 2) == RING and bytes(theirs.orders) == bytes([STEP]) * WORLDS
    assert theirs.actions.tolist() == np.arange(15).reshape(3, 5).tolist() and theirs.seeds[2] == (1 << 63) - 1
    theirs.observations[:] = np.arange(18).reshape(3, 2, 3)
    theirs.rewards[:], theirs.outcomes[1], theirs.lengths[1] = [1, 2, 3], OVER, 7
    os.write(answered, RING)
    lengths, outcomes, rewards, observations = exchange.answers(WORLDS)
    theirs.observations[:] = 0  # the trainer has a copy
    assert (list(lengths), outcomes, rewards.tolist()) == ([0, 7, 0], bytes([0, OVER, 0]), [1, 2, 3])
    assert observations.tolist() == np.arange(18).reshape(3, 2, 3).tolist() and observations.flags.writeable


def test_a_process_cannot_make_the_memory_shorter_or_longer(exchange: StepExchange) -> None:
    for size in (0, 1 << 30):
        with pytest.raises(PermissionError):
            os.ftruncate(exchange.descriptors[0], size)
    exchange.close_passed()


def test_a_memory_of_other_spaces_is_refused_before_it_is_mapped(exchange: StepExchange) -> None:
    memory = os.dup(exchange.descriptors[0])
    with pytest.raises(ValueError, match=r"memory of 4 worlds has .* bytes in place of"):
        StepMemory.of_descriptor(OBSERVATION, ACTION, 4, memory)
    with pytest.raises(OSError, match="descriptor"):
        os.close(memory)  # it is closed
    exchange.close_passed()


Side = tuple[StepMemory, int, int]
FAULTS: dict[str, tuple[Callable[[Side], object], str]] = {
    "it has ended": (lambda side: (os.close(side[1]), os.close(side[2])), "^$"),
    "it rings twice": (lambda side: os.write(side[2], 2 * RING), "answered more than once"),
    "it writes another byte": (lambda side: os.write(side[2], b"\0"), "answered more than once"),
    "it is silent": (lambda side: None, r"no answer within 0\.3 s, and was killed"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_process_that_breaks_a_rule_is_lost_with_the_reason(
    exchange: StepExchange, process: Side, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_exchange, "ANSWER_SECONDS", 0.1)
    act, reason = FAULTS[fault]
    act(process)
    with pytest.raises(ProcessLost, match=reason):
        exchange.ring()
        exchange.answers(WORLDS)


def test_a_process_that_answers_orders_that_it_never_reads_is_lost_when_its_pipe_is_full(
    exchange: StepExchange, process: Side
) -> None:
    with pytest.raises(ProcessLost, match="orders that it has not read"):
        for _ in range(1 << 20):
            os.write(process[2], RING)
            exchange.ring()
            exchange.answers(WORLDS)


def test_a_process_that_reads_its_own_ring_is_lost_and_does_not_keep_the_trainer_waiting(
    exchange: StepExchange, process: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    taker = os.open(f"/proc/self/fd/{process[2]}", os.O_RDONLY)
    wait = exchange._wait
    monkeypatch.setattr(exchange, "_wait", lambda milliseconds: wait(milliseconds) and os.read(taker, 1))
    exchange.ring()
    os.write(process[2], RING)
    with pytest.raises(ProcessLost, match="has read its own answer"):
        exchange.answers(WORLDS)
    os.close(taker)


@pytest.mark.parametrize("said", [b"", b"\xc1", b"\x91" * 5000, b"\x81\xa7metrics\x91\x01", b"\xff" * (1 << 16)])
@pytest.mark.parametrize("length", [0, 1, 5000, 1 << 31])
def test_a_document_that_is_none_loses_the_process_and_not_the_trainer(
    exchange: StepExchange, process: Side, said: bytes, length: int
) -> None:
    process[0].documents[1][: len(said)] = said
    with pytest.raises(ProcessLost, match="something unreadable"):
        exchange.document(1, length)


def test_an_answer_that_was_not_waited_for_is_dropped(exchange: StepExchange, process: Side) -> None:
    theirs, asked, answered = process
    exchange.ring()
    threading.Timer(0.05, os.write, (answered, RING)).start()
    exchange.settle()
    exchange.settle()
    theirs.rewards[:] = 5
    exchange.ring()
    os.write(answered, RING)
    assert exchange.answers(WORLDS)[2].tolist() == [5.0] * WORLDS
    assert os.read(asked, 4) == 2 * RING


def test_both_sides_have_the_same_layout() -> None:
    for worlds in (1, 7, 64):
        assert StepMemory.size(OBSERVATION, ACTION, worlds) == harness.StepMemory.size(
            harness.ArrayType(*OBSERVATION), harness.ArrayType(*ACTION), worlds
        )
    assert step_memory.Document.__struct_fields__ == harness.Document.__struct_fields__


class Silent:
    """A pipe of which a process is woken, and which no poll finds readable before."""

    def __init__(self) -> None:
        self.waits: list[float | None] = []

    def poll(self, milliseconds: float | None) -> bool:
        self.waits.append(milliseconds)
        return milliseconds != 0


def test_polls_in_vain_are_tried_again_after_pauses_that_grow() -> None:
    asked, answered = os.pipe()
    wait, pipe = step_memory.RingWait(asked, 1e-5), Silent()
    wait._poll = pipe  # type: ignore[assignment]
    polled = []
    for exchange in range(600):
        pipe.waits.clear()
        assert wait(1000.0) and pipe.waits[-1] == 1000.0
        if 0 in pipe.waits:
            polled.append(exchange)
    assert polled == [0, 3, 8, 17, 34, 67, 132, 261, 518]
    for descriptor in (asked, answered):
        os.close(descriptor)
