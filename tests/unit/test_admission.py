"""Who may start: first come, first served, and nobody starves."""

from core.domain.admission import Waiting, admit, why_waiting


def ids(queue: list[Waiting], free: int, total: int = 4, now: float = 100.0) -> list[str]:
    return [item.id for item in admit(queue, free, total, now)]


def test_first_come_first_served() -> None:
    assert ids([Waiting("b", 2, 2.0), Waiting("a", 2, 1.0), Waiting("c", 2, 3.0)], 4) == ["a", "b"]


def test_a_wide_one_holds_the_line() -> None:
    assert ids([Waiting("wide", 4, 1.0), Waiting("narrow", 1, 2.0)], 3) == []


def test_one_that_wants_more_than_there_is_gets_all_of_it() -> None:
    assert ids([Waiting("huge", 64, 1.0)], 4) == ["huge"]


def test_a_check_of_a_model_passes() -> None:
    assert ids([Waiting("wide", 4, 1.0), Waiting("check", 1, 2.0, brief=True)], 0) == ["check"]


def test_one_that_was_told_to_come_back_later_holds_nobody() -> None:
    assert ids([Waiting("later", 4, 1.0, not_before=200.0), Waiting("now", 1, 2.0)], 4) == ["now"]


def test_who_waits_is_told_why() -> None:
    assert why_waiting(3, 2, 0.0, None) == "waits its turn: 2 before it"
    assert why_waiting(1, 2, -5.0, "its processes vanished") == "waits for 2 free cores"
    assert why_waiting(1, 2, 4.0, "its processes vanished") == "tried again in 4 s; its processes vanished"
