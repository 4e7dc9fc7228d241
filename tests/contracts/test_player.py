"""The player, with real hosts: whatever a model does, every task gets its result, and the sweep goes on."""

from pathlib import Path

from tests.contracts.crew import crew, kit, play_of

ZERO = Path("runtimes/baselines/zero.py").read_bytes()


def test_a_range_is_played_to_its_end_one_line_a_task() -> None:
    with crew(kit(), ZERO, play_of()) as played:
        results = played.play(10, 40)
    assert [result["task"] for result in results] == list(range(10, 40))
    assert {result["status"] for result in results} == {"ok"}
    assert list(results[0]) == ["task", "status", "scenario", "metrics", "error", "artifacts", "timing"]
