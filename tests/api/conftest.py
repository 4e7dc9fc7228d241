"""Fixtures: a platform on SQLite and a folder, its application, and a worker that runs simulations to their end."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from core.notifications.local_notifier import LocalNotifier
from core.services.platform import Platform, PlatformOptions, build
from core.settings import Settings
from datasets.objectstore import open_store
from server import composition as root
from tests.api.answers import MODEL
from tests.api.leasing_worker import LeasingWorker as LeasingWorker
from tests.api.people import people as people
from tests.databases import sqlite_database
from tests.executor_configs import LOCAL

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
