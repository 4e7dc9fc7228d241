"""Managed executors: when a failure is reported in the log."""

import logging

import pytest

from tests.executor_configs import LOCAL
from tests.fake_executor import FakeExecutor
from workers.managed_executor import STARTUP, ManagedExecutor


class Observed:
    """A managed executor with a clock that a test sets, and what it has logged."""

    def __init__(self, log: pytest.LogCaptureFixture) -> None:
        self.now = 0.0
        self._log = log
        self.executor = ManagedExecutor(LOCAL, FakeExecutor(), clock=lambda: self.now)

    def fail(self, seconds: float) -> None:
        """Let a call fail after so many seconds."""
        self.now += seconds
        self.executor.failed(OSError("it is away"))

    @property
    def warnings(self) -> list[str]:
        return [record.message for record in self._log.records if record.levelno >= logging.WARNING]


@pytest.fixture
def observed(caplog: pytest.LogCaptureFixture) -> Observed:
    return Observed(caplog)


def test_an_executor_that_starts_with_the_dispatcher_is_not_reported(observed: Observed) -> None:
    for _ in range(3):
        observed.fail(1.0)
    assert not observed.executor.healthy, "no launch is submitted meanwhile"
    observed.executor.answered()
    assert observed.warnings == []


def test_an_executor_that_does_not_come_up_is_reported_once(observed: Observed) -> None:
    for _ in range(3):
        observed.fail(STARTUP)
    observed.executor.answered()
    assert observed.warnings == ["executor local does not answer: it is away", "executor local answers again"]


def test_an_executor_that_has_answered_is_reported_at_its_first_failure(observed: Observed) -> None:
    for _ in range(2):
        observed.executor.answered()
        observed.fail(1.0)
        observed.fail(1.0)
        observed.executor.answered()
    assert observed.warnings == 2 * ["executor local does not answer: it is away", "executor local answers again"]
