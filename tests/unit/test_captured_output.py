"""Captured output of models: a rate, a cap, and a message about dropped output; how a process ended, in words."""

import os
from pathlib import Path

import pytest

from runtimes.harness.python_process import ending
from runtimes.harness.runner.captured_output import CapturedOutput
from runtimes.harness.runner.memory_kills import memory_kills
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


def test_a_pipe_that_is_silent_and_open_keeps_no_thread_waiting() -> None:
    output, _ = new_output()
    reading, writing = os.pipe()
    output.watch(reading, "gang")
    assert output.take() == [] and output.collect(reading)
    os.write(writing, b"late\n")
    assert output.take() == [("gang", b"late\n")]
    output.forget(reading)
    os.close(reading)
    os.close(writing)


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
    assert ending(128 + 9) == ending(-9) == "killed by SIGKILL"
    assert ending(255) == "it exited with code 255"


@pytest.mark.parametrize(
    ("before", "after", "known"), [(3, 4, True), (3, 3, False), (None, 4, False), (3, None, False), (None, None, False)]
)
def test_memory_is_blamed_only_if_the_control_group_has_counted_it(
    before: int | None, after: int | None, known: bool
) -> None:
    assert ("out of memory" in ending(-9, kills_before=before, kills_after=after)) == known
    assert "memory" not in ending(-11, kills_before=before, kills_after=after)


@pytest.mark.parametrize(
    ("groups", "file", "text", "count"),
    [
        ("0::/user/app\n", "user/app/memory.events", "low 0\noom 7\noom_kill 2\noom_group_kill 0\n", 2),
        ("0::/\n", "memory.events", "oom_kill 1\n", 1),
        ("0::/\n", "cgroup.stat", "", None),
        ("4:cpu:/x\n3:memory:/x\n0::/\n", "memory/x/memory.oom_control", "under_oom 0\noom_kill 5\n", 5),
        ("3:cpu,memory:/far/away\n", "memory/memory.oom_control", "oom_kill_disable 0\noom_kill 6\n", 6),
        ("", "memory.events", "oom_kill 1\n", None),
        ("0::/\n", "memory.events", "oom_kill many\n", None),
    ],
)
def test_memory_kills_are_read_from_the_processs_own_control_group(
    tmp_path: Path, groups: str, file: str, text: str, count: int | None
) -> None:
    (tmp_path / "own").write_text(groups)
    (tmp_path / "root" / file).parent.mkdir(parents=True)
    (tmp_path / "root" / file).write_text(text)
    assert memory_kills(tmp_path / "own", tmp_path / "root") == count


def test_the_blended_rate_follows_the_measurements() -> None:
    assert blend(None, 100.0) == 100.0
    assert blend(100.0, 200.0) == 150.0


def test_the_flush_interval_grows_with_the_duration_of_a_run() -> None:
    assert flush_after(0) <= flush_after(100) <= flush_after(10_000) <= 5.0
