"""Gestures of a person's path: what counts as a click and as a keystroke, for pages and for commands."""

from benchmarks.documented_paths import DOCUMENTED, SYSTEMS
from benchmarks.gestures import choose, click, command, in_words, press, total, write
from benchmarks.person_paths import TASKS, gestures


def test_a_choice_is_two_clicks_a_character_a_key_and_a_command_ends_with_enter() -> None:
    assert total([click("Runs"), choose("the tag"), click("a run", 3)]) == (6, 0)
    assert total([write("idm"), press("Tab"), press("Control+V")]) == (0, 5)
    assert total([command("osmo workflow list")]) == (0, len("osmo workflow list") + 1)
    assert total([]) == (0, 0)


def test_a_path_is_told_in_words_with_its_counts() -> None:
    steps = [click("Search"), write("idm"), click("the checkboxes", 2)]
    assert in_words(steps) == "Search, type `idm`, the checkboxes (2 times)"
    assert gestures(steps) == "3 clicks, 3 keys"
    assert gestures([click("CSV")]) == "1 click"
    assert gestures([]) == "none"


def test_every_task_is_looked_up_once_in_the_documents_of_every_system() -> None:
    looked_up = [(path.task, path.system) for path in DOCUMENTED]
    assert sorted(looked_up) == sorted((task.name, system) for task in TASKS for system in SYSTEMS)
    assert all(path.address.startswith("https://") for path in DOCUMENTED)
