"""Which core an evaluator and its host share."""

from pathlib import Path

from runtimes.harness.runner.cpu_pinning import CpuMeter, choose


def test_who_is_nowhere_yet_goes_where_it_is_calm() -> None:
    busy = {0: 0.9, 1: 0.1, 2: 0.15, 3: 0.5}
    assert {choose(None, busy, lot / 10) for lot in range(10)} == {1, 2}


def test_who_has_a_full_core_moves_to_an_idle_one_now_and_then() -> None:
    busy = {0: 1.0, 1: 0.1}
    assert [choose(0, busy, lot) for lot in (0.0, 0.49, 0.51, 0.99)] == [1, 1, 0, 0]


def test_nobody_moves_where_nothing_is_won() -> None:
    for busy in ({0: 1.0, 1: 0.8}, {0: 0.6, 1: 0.0}):
        assert {choose(0, busy, lot / 10) for lot in range(10)} == {0}


def test_a_core_that_is_taken_from_us_is_left() -> None:
    assert choose(7, {0: 0.5, 1: 0.1}, 0.3) == 1


def test_on_one_core_there_is_nothing_to_choose() -> None:
    assert choose(None, {0: 0.2}, 0.3) is None


def test_a_core_is_as_busy_as_it_was_since_the_last_look(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  1 1 1 1 1 1 1 1\ncpu0 100 0 0 100 0 0 0 0 0 0\nintr 5\n")
    meter = CpuMeter(stat)
    stat.write_text("cpu  1 1 1 1 1 1 1 1\ncpu0 130 0 0 160 10 0 0 0 0 0\nintr 5\n")
    found = meter.read()
    assert set(found) <= {0} and all(abs(share - 0.3) < 1e-9 for share in found.values())
