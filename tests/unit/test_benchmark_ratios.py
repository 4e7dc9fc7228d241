"""Ratios of benchmarks: recorded by commit and machine, compared with the last ones of an equal machine."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from benchmarks import check, ratios
from benchmarks.figures import tail
from benchmarks.ratios import Change

MACHINE = {"processor": "A", "cores": 2, "memory_gib": 24, "kernel": "6.1", "python": "3.11.7"}
rates = st.floats(0.01, 1e6)


def episodes(ratio: float) -> dict[str, object]:
    return {"datasets": {"cartpole": {"peers": {"Ray": {"ratio": {"median": ratio}}}}}}


@given(recorded=rates, now=rates)
def test_a_ratio_is_worse_exactly_if_it_fell_by_more_than_a_tenth(recorded: float, now: float) -> None:
    change = Change("x", recorded, now, "abc")
    assert change.is_worse == (now < 0.9 * recorded)
    assert change.is_worse <= (change.change < 0)


def test_a_recorded_run_is_compared_with_the_next_one_of_an_equal_machine(tmp_path: Path) -> None:
    history = tmp_path / "history.ndjson"
    ratios.record("episodes", episodes(2.0), MACHINE, history)
    ratios.record("episodes", episodes(3.0), MACHINE | {"cores": 8}, history)
    (change,) = ratios.compared(
        "episodes", ratios.of("episodes", episodes(1.7)), MACHINE | {"kernel": "6.2"}, ratios.lines(history)
    )
    assert (change.name, change.recorded, change.now) == ("cartpole to Ray", 2.0, 1.7)
    assert change.is_worse


def test_without_a_run_of_an_equal_machine_nothing_is_compared(tmp_path: Path) -> None:
    history = tmp_path / "history.ndjson"
    ratios.record("episodes", episodes(2.0), MACHINE | {"processor": "B"}, history)
    assert ratios.compared("episodes", {"cartpole to Ray": 1.0}, MACHINE, ratios.lines(history)) == []
    assert ratios.lines(tmp_path / "absent") == []


def test_a_benchmark_without_peers_has_no_ratios(tmp_path: Path) -> None:
    ratios.record("footprint", {"idle": 1}, MACHINE, tmp_path / "history.ndjson")
    assert not (tmp_path / "history.ndjson").exists()


def test_what_is_worse_is_named_with_the_commits_since_it_was_recorded() -> None:
    text = check.report([Change("a to b", 1.0, 0.5, "0123abcd"), Change("c to d", 1.0, 1.2, ratios.commit())])
    assert "| a to b | 1 | 0.5 | -50% |" in text
    assert "worse: a to b: -50% in 0123abcd..HEAD" in text
    assert "worse: c to d" not in text


def test_every_recorded_line_is_of_a_benchmark_with_ratios() -> None:
    for line in ratios.lines():
        assert line["benchmark"] in ratios.RATIOS
        assert all(ratio > 0 for ratio in line["ratios"].values())
        json.dumps(line)


def test_the_first_results_of_rushes_are_compared_like_those_with_pauses() -> None:
    kind = {"row": {"first": tail([0.1])}, "at_once": {"first": tail([0.4])}}
    figures = {
        "kinds": {"noop": {"first": tail([0.05]), "whole": tail([0.08])}},
        "rushes": {"row": 20, "callers": 8, "each": 10, "kinds": {"noop": kind}},
        "ray_job": {"version": "2", **tail([2.0])},
    }
    assert ratios.of("latency", figures) == {
        "noop, with pauses: first result, Ray job to it": 40.0,
        "noop, 20 in a row: first result, Ray job to it": 20.0,
        "noop, 8 callers at once: first result, Ray job to it": 5.0,
    }
