"""Captured output of models: a rate, a cap, and a message about dropped output."""

from runtimes.harness.runner.captured_output import CapturedOutput
from runtimes.harness.runner.process_spec import ending
from runtimes.harness.runner.worker import blend, flush_after


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def outputs(rate: int = 100, cap: int = 1000) -> tuple[CapturedOutput, Clock]:
    clock = Clock()
    return CapturedOutput(rate=rate, cap=cap, clock=clock), clock


def test_output_is_returned_once_with_the_name_of_its_process() -> None:
    kept, _ = outputs()
    kept.add("model-server-0", b"one\n")
    kept.add("model-server-1", b"two\n")
    kept.add("model-server-0", b"three\n")
    assert kept.take() == [("model-server-0", b"one\nthree\n"), ("model-server-1", b"two\n")]
    assert kept.take() == []


def test_output_above_the_rate_is_dropped_and_the_log_says_so() -> None:
    kept, _ = outputs(rate=100)
    kept.add("model-server-0", b"x" * 250)
    assert kept.take() == [
        ("model-server-0", b"x" * 100),
        ("runner", b"[150 bytes of output left out: it came too fast]\n"),
    ]


def test_output_is_accepted_again_after_a_pause() -> None:
    kept, clock = outputs(rate=100)
    kept.add("model-server-0", b"x" * 100)
    clock.now += 0.5
    kept.add("model-server-0", b"y" * 100)
    assert kept.take()[0] == ("model-server-0", b"x" * 100 + b"y" * 50)


def test_output_above_the_cap_is_dropped_and_the_log_says_so_once() -> None:
    kept, clock = outputs(rate=1000, cap=1500)
    for _ in range(4):
        clock.now += 10
        kept.add("model-server-0", b"x" * 1000)
    said = kept.take()
    assert said[0] == ("model-server-0", b"x" * 1500)
    assert b"the launch's output is full" in said[1][1]
    clock.now += 10
    kept.add("model-server-0", b"x")
    assert kept.take() == []


def test_the_end_of_a_process_is_described_in_words() -> None:
    assert ending(0) == "it exited with code 0"
    assert ending(70) == "it exited with code 70"
    assert ending(-11) == "killed by SIGSEGV"
    assert ending(128 + 9) == "killed by SIGKILL (out of memory?)"
    assert ending(255) == "it exited with code 255"


def test_a_rate_follows_the_measurements() -> None:
    assert blend(None, 100.0) == 100.0
    assert blend(100.0, 200.0) == 150.0


def test_batches_grow_with_the_run() -> None:
    assert flush_after(0) <= flush_after(100) <= flush_after(10_000) <= 5.0
