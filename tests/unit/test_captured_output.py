"""Captured output of models: a rate, a cap, and a message about dropped output."""

from runtimes.harness.runner.captured_output import CapturedOutput
from runtimes.harness.runner.process_spec import ending
from runtimes.harness.runner.worker import blend, flush_after


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def new_output(rate: int = 100, cap: int = 1000) -> tuple[CapturedOutput, Clock]:
    clock = Clock()
    return CapturedOutput(rate=rate, cap=cap, clock=clock), clock


def test_output_is_returned_once_with_the_name_of_its_process() -> None:
    output, _ = new_output()
    output.add("model-server-0", b"one\n")
    output.add("model-server-1", b"two\n")
    output.add("model-server-0", b"three\n")
    assert output.take() == [("model-server-0", b"one\nthree\n"), ("model-server-1", b"two\n")]
    assert output.take() == []


def test_output_above_the_rate_is_dropped_with_a_message() -> None:
    output, _ = new_output(rate=100)
    output.add("model-server-0", b"x" * 250)
    assert output.take() == [
        ("model-server-0", b"x" * 100),
        ("runner", b"[150 bytes of output left out: it came too fast]\n"),
    ]


def test_output_is_accepted_again_after_a_pause() -> None:
    output, clock = new_output(rate=100)
    output.add("model-server-0", b"x" * 100)
    clock.now += 0.5
    output.add("model-server-0", b"y" * 100)
    assert output.take()[0] == ("model-server-0", b"x" * 100 + b"y" * 50)


def test_output_above_the_cap_is_dropped_with_a_single_message() -> None:
    output, clock = new_output(rate=1000, cap=1500)
    for _ in range(4):
        clock.now += 10
        output.add("model-server-0", b"x" * 1000)
    lines = output.take()
    assert lines[0] == ("model-server-0", b"x" * 1500)
    assert b"the launch's output is full" in lines[1][1]
    clock.now += 10
    output.add("model-server-0", b"x")
    assert output.take() == []


def test_the_exit_code_of_a_process_is_described_in_a_message() -> None:
    assert ending(0) == "it exited with code 0"
    assert ending(70) == "it exited with code 70"
    assert ending(-11) == "killed by SIGSEGV"
    assert ending(128 + 9) == "killed by SIGKILL (out of memory?)"
    assert ending(255) == "it exited with code 255"


def test_the_blended_rate_follows_the_measurements() -> None:
    assert blend(None, 100.0) == 100.0
    assert blend(100.0, 200.0) == 150.0


def test_the_flush_interval_grows_with_the_duration_of_a_run() -> None:
    assert flush_after(0) <= flush_after(100) <= flush_after(10_000) <= 5.0
