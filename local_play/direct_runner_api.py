"""Runner API without HTTP: calls the lease service in this process, for a runner that is a part of it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from common.errors import Gone, PlatformError, StoreUnavailable, Unauthorized
from core.domain.scheduling.ranges import Ended, Later, Lease
from core.services.scheduling.leases import CachedLaunch, Leases
from core.services.scheduling.reports import TaskReport
from runtimes.harness.runner.runner_api_client import (
    Credentials,
    LaunchOver,
    RequestRejected,
    Unreachable,
)
from runtimes.harness.runner.runner_api_messages import (
    DeathReport,
    GrantedLease,
    LeaseAnswer,
    LeaseEntry,
    LeaseStanding,
    LeaseStandings,
    ReportHeader,
)

#: Gets the output of models and simulators: the name of the process, and the bytes.
OnOutput = Callable[[str, bytes], None]


class DirectRunnerApi:
    """The runner API of one process's leases (`runtimes.harness.runner.runner_api_client.RunnerApi`).

    ``on_loaded`` is called when a worker has loaded the model, and at each lease after that. Nothing is waited for, so
    what `Connect` says of time has no effect.
    """

    def __init__(
        self,
        leases: Leases,
        on_output: OnOutput,
        on_loaded: Callable[[], None],
        credentials: Credentials,
        stop: threading.Event,
        **_: float,
    ) -> None:
        self._leases = leases
        self._on_output = on_output
        self._on_loaded = on_loaded
        self._credentials = credentials
        self._stop = stop

    def launch(self) -> dict[str, Any]:
        """Return the launch's description."""
        with self._authenticated() as launch:
            return self._leases.describe(launch)

    def lease(self, worker: str, rate: float | None) -> LeaseAnswer:
        """Request a lease, which a worker does once its model has been loaded."""
        self._on_loaded()
        with self._authenticated() as launch:
            return _answer(self._leases.lease(launch, worker, rate))

    def report(
        self, header: ReportHeader, lines: memoryview | bytes, blobs: memoryview | bytes
    ) -> tuple[bool, LeaseAnswer]:
        """Report results; return whether they were accepted, and the answer with the new cursor."""
        with self._authenticated() as launch:
            outcome = self._leases.report(launch, TaskReport(header, bytes(lines), bytes(blobs)))
        if outcome.position is None:
            return False, LeaseAnswer(lost=True)
        answer = _answer(outcome.next) if outcome.accepted else LeaseAnswer()
        position = {"cursor": outcome.position.cursor, "stop": outcome.position.stop}
        return outcome.accepted, msgspec.structs.replace(answer, **position)

    def heartbeat(self, leases: list[LeaseEntry]) -> LeaseStandings:
        """Renew these leases and report their current tasks; return each lease's state."""
        with self._authenticated() as launch:
            positions = self._leases.heartbeat(launch, _held(leases))
        standings = [
            LeaseStanding(entry.start, lost=True)
            if position is None
            else LeaseStanding(entry.start, position.cursor, position.stop)
            for entry, position in zip(leases, positions, strict=True)
        ]
        return LeaseStandings(standings)

    def leave(self, leases: list[LeaseEntry]) -> None:
        """Release leases; the tasks are not blamed."""
        with self._authenticated() as launch:
            self._leases.leave(launch, _held(leases))

    def report_death(self, death: DeathReport) -> None:
        """Report that an evaluator died by itself."""
        with self._authenticated() as launch:
            self._leases.record_death(launch, death)

    def refuse_model(self, reason: str, status: str) -> None:
        """Report that the model does not load or does not fit."""
        with self._authenticated() as launch:
            self._leases.fail(launch, reason)

    def log(self, name: str, data: bytes) -> None:
        """Pass on a piece of captured output; nothing is stored."""
        self._on_output(name, data)

    @contextmanager
    def _authenticated(self) -> Iterator[CachedLaunch]:
        """Give the launch; raise what a client of the HTTP API raises."""
        if self._stop.is_set():  # from now on processes die because the runner kills them
            raise LaunchOver("the runner stops")
        try:
            yield self._leases.authenticate(self._credentials.launch, self._credentials.token)
        except (Gone, Unauthorized) as error:
            raise LaunchOver(str(error.detail)) from None
        except StoreUnavailable as error:
            raise Unreachable(str(error.detail)) from None
        except PlatformError as error:
            raise RequestRejected(str(error.detail)) from None


def _answer(next: Lease | Later | Ended | None) -> LeaseAnswer:
    match next:
        case Lease():
            return LeaseAnswer(lease=msgspec.convert(next, GrantedLease, from_attributes=True))
        case Later():
            return LeaseAnswer(retry_after=next.seconds)
        case Ended():
            return LeaseAnswer(ended=True)
        case None:
            return LeaseAnswer()


def _held(leases: list[LeaseEntry]) -> list[tuple[str, int, str, int]]:
    return [(entry.stage, entry.start, entry.fencing_token, entry.task) for entry in leases]
