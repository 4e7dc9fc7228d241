"""Health of roles: what the supervisor notes for the API, and what a simulation says meanwhile."""

from pathlib import Path

from core.domain.scheduling.queue_reasons import with_standstill
from core.domain.scheduling.states import State
from server import role_health
from server.probes import Health
from server.supervisor import SILENT, Role, SupervisedProcess


def test_each_failing_role_is_named_with_what_it_is_for(tmp_path: Path) -> None:
    assert role_health.problem(tmp_path) is None
    role_health.note(tmp_path, {"dispatch": "does not answer", "other": "ends again and again"})
    assert role_health.problem(tmp_path) == (
        "the role dispatch does not answer (it admits, launches and ends simulations);"
        " the role other ends again and again"
    )
    role_health.note(tmp_path, {})
    assert role_health.problem(tmp_path) is None


def test_a_damaged_note_and_a_folder_that_is_gone_are_no_problem(tmp_path: Path) -> None:
    (tmp_path / role_health.FILE).write_text("{")
    assert role_health.problem(tmp_path) is None
    role_health.note(tmp_path / "gone", {"jobs": "does not answer"})


def test_a_role_fails_after_some_silent_probes_and_not_by_a_restart() -> None:
    child = SupervisedProcess(Role(name="jobs", command=[]), log=None)  # type: ignore[arg-type]
    assert child.failure is None
    child.health = Health(failures=SILENT)
    assert child.failure == "does not answer"
    assert SupervisedProcess(Role(name="valkey", command=[], vital=False), log=None).failure is None  # type: ignore[arg-type]
    child.health, child.failures = Health(), 3
    assert child.failure == "ends again and again"


def test_a_simulation_that_has_not_ended_says_what_stands_still() -> None:
    assert with_standstill(State.RUNNING, None, "x") == "it may not progress: x"
    assert with_standstill(State.QUEUED, "waits", "x") == "it may not progress: x; waits"
    assert with_standstill(State.FAILED, "its model raises", "x") == "its model raises"
