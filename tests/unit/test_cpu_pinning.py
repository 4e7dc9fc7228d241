"""CPU pinning: the core that an evaluator and its model server share."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtimes.harness.runner.cpu_pinning import CpuMeter, choose, pin


def test_an_unpinned_worker_is_pinned_to_an_idle_core() -> None:
    busy = {0: 0.9, 1: 0.1, 2: 0.15, 3: 0.5}
    assert {choose(None, busy, chance / 10) for chance in range(10)} == {1, 2}


def test_a_worker_on_a_saturated_core_moves_to_an_idle_core_with_a_probability() -> None:
    busy = {0: 1.0, 1: 0.1}
    assert [choose(0, busy, chance) for chance in (0.0, 0.49, 0.51, 0.99)] == [1, 1, 0, 0]


def test_a_worker_stays_on_its_core_if_a_move_gains_nothing() -> None:
    for busy in ({0: 1.0, 1: 0.8}, {0: 0.6, 1: 0.0}):
        assert {choose(0, busy, chance / 10) for chance in range(10)} == {0}


def test_a_worker_leaves_a_core_that_is_no_longer_available() -> None:
    assert choose(7, {0: 0.5, 1: 0.1}, 0.3) == 1


def test_a_worker_is_not_pinned_on_a_machine_with_a_single_core() -> None:
    assert choose(None, {0: 0.2}, 0.3) is None


def test_the_load_of_a_core_is_measured_since_the_last_reading(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    core = min(os.sched_getaffinity(0))
    stat.write_text(f"cpu  1 1 1 1 1 1 1 1\ncpu{core} 100 0 0 100 0 0 0 0 0 0\nintr 5\n")
    meter = CpuMeter(stat)
    stat.write_text(f"cpu  1 1 1 1 1 1 1 1\ncpu{core} 130 0 0 160 10 0 0 0 0 0\nintr 5\n")
    assert meter.read() == {core: pytest.approx(0.3)}


def test_a_pinned_process_and_its_children_preempt_nothing_on_their_core() -> None:
    core = max(os.sched_getaffinity(0))
    code = "import subprocess, sys; child = subprocess.Popen(['cat']); print(child.pid, flush=True); child.wait()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        pin(parent.pid, core)
        for pid in (parent.pid, child):
            assert (os.sched_getaffinity(pid), os.sched_getscheduler(pid)) == ({core}, os.SCHED_BATCH)
        parent.communicate()


def test_pinning_a_process_that_has_ended_is_harmless() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    pin(ended.pid, min(os.sched_getaffinity(0)))
