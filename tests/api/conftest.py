"""Fixtures: a platform on SQLite and a folder, its application, and a worker that runs simulations to their end."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from core.domain.access.scopes import LOCAL_CALLER
from core.domain.scheduling.ranges import Lease
from core.domain.scheduling.states import State
from core.notifications.local_notifier import LocalNotifier
from core.services.platform import Platform, PlatformOptions, build
from core.services.scheduling.dispatch import Dispatch
from core.services.scheduling.leases import CachedLaunch
from core.settings import Settings
from datasets.objectstore import open_store
from server import composition as root
from tests.api.answers import MODEL, line
from tests.api.people import people as people
from tests.databases import sqlite_database
from tests.dispatching import unended
from tests.executor_configs import LOCAL
from tests.reports import report_of

DRY_RUNS = 3


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", streams=4, max_upload=1 << 20)


@pytest.fixture
def platform(settings: Settings) -> Iterator[Platform]:
    settings.home.mkdir()
    database = sqlite_database(settings.home / "windtunnel.db")
    store = open_store(settings.objects)
    yield build(
        database,
        store,
        LocalNotifier(),
        PlatformOptions(
            home=settings.home,
            executor_configs=[LOCAL],
            sandbox={"level": 3},
            streams=4,
            max_upload=settings.max_upload,
            dry_runs=DRY_RUNS,
            trusted=settings.allows_trusted,
        ),
    )
    database.close()


@pytest.fixture
def application(platform: Platform, settings: Settings) -> Flask:
    return root.create_flask(platform, settings, {"level": 3, "missing": []})


@pytest.fixture
def client(application: Flask) -> FlaskClient:
    return application.test_client()


@dataclass(frozen=True)
class LeasingWorker:
    """Runs simulations as a runner does, through the services behind the runner API."""

    platform: Platform

    @property
    def dispatch(self) -> Dispatch:
        return Dispatch(
            self.platform.database,
            self.platform.notifier,
            executor_configs=[LOCAL],
            runner_api_url="http://127.0.0.1:1",
        )

    def launch(self, id: str) -> CachedLaunch:
        """Admit and launch a queued simulation; return the launch, whose tasks can be leased."""
        dispatch = self.dispatch
        busy = next(simulation for simulation in unended(dispatch) if simulation.id == id)
        assert dispatch.admit(busy, LOCAL.name)
        launch = dispatch.launch(next(simulation for simulation in unended(dispatch) if simulation.id == id))
        assert launch is not None
        return self.platform.scheduling.leases.authenticate(launch.id, launch.token)

    def report(self, launch: CachedLaunch, lease: Lease, since: int, to: int, **extra: Any) -> None:
        """Report invented results of the tasks [since, to); every seventh task fails."""
        lines = b"".join(line(task, "failed" if task % 7 == 6 else "ok") for task in range(since, to))
        report = report_of(lease, since, to, lines, **extra)
        assert self.platform.scheduling.leases.report(launch, report).accepted

    def lease(self, launch: CachedLaunch) -> Lease:
        """Lease the next tasks."""
        lease = self.platform.scheduling.leases.lease(launch, "d", None)
        assert isinstance(lease, Lease)
        return lease

    def run_to_end(self, id: str, *, artifacts: Mapping[tuple[int, str, str], bytes] | None = None) -> None:
        """Launch a simulation and run it to its end."""
        self.finish(self.launch(id), artifacts=artifacts)

    def finish(self, launch: CachedLaunch, *, artifacts: Mapping[tuple[int, str, str], bytes] | None = None) -> None:
        """Run the remaining tasks of a launch; assert that the simulation succeeds."""
        self.finish_unseen(launch, artifacts=artifacts)
        assert self.platform.submissions.simulations.get(LOCAL_CALLER, launch.simulation).state is State.SUCCEEDED

    def finish_unseen(
        self, launch: CachedLaunch, *, artifacts: Mapping[tuple[int, str, str], bytes] | None = None
    ) -> None:
        """Run the remaining tasks of a launch; the first report has the artifacts.

        A dry run is deleted as soon as it has ended, so its state cannot be read afterwards.
        """
        id = launch.simulation
        first = True
        while isinstance(lease := self.platform.scheduling.leases.lease(launch, "d", None), Lease):
            first_artifacts = artifacts if first and artifacts else {}
            blobs = b"".join(first_artifacts.values())
            described = [(*key, len(blob)) for key, blob in first_artifacts.items()]
            self.report(launch, lease, lease.cursor, lease.stop, artifacts=described, blobs=blobs)
            first = False
            if self.dispatch.close(id):
                break
        self.platform.jobs.finalization.collect(id)


@pytest.fixture
def worker(platform: Platform) -> LeasingWorker:
    return LeasingWorker(platform)


@pytest.fixture
def model(client: FlaskClient) -> str:
    """Name of a stored model."""
    put = client.put(
        "/v1/models/mine?filename=model.py", data=MODEL, headers={"Content-Type": "application/octet-stream"}
    )
    assert put.status_code == 201, put.data
    return "mine"


Submit = Callable[..., TestResponse]


@pytest.fixture
def submit(client: FlaskClient, model: str) -> Submit:
    """Function that submits a simulation of ``tasks`` scenarios of the dataset noop."""

    def send(tasks: int = 20, headers: Mapping[str, str] | None = None, **fields: Any) -> TestResponse:
        document = {"dataset": "noop", "runtime": "python", "model": model, "scenarios": {"range": [0, tasks]}}
        return client.post("/v1/simulations", json=document | fields, headers=headers)

    return send


@pytest.fixture
def finished(submit: Submit, worker: LeasingWorker) -> str:
    """Id of a simulation of 20 tasks that has ended; two tasks failed."""
    id: str = submit().json["id"]
    worker.run_to_end(
        id, artifacts={(0, "note.txt", "text/plain"): b"0123456789", (3, "deep/x.bin", "text/html"): b"<script>"}
    )
    return id
