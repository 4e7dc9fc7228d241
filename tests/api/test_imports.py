"""Imports of models over HTTP: requests, answers, refusals, and simulations that name a model by reference."""

from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO

import pytest
from flask import Flask
from flask.testing import FlaskClient

from core.domain.access.scopes import LOCAL_CALLER, Caller
from core.domain.submissions.submission import Submission
from core.notifications.local_notifier import LocalNotifier
from core.services.due_jobs import DueJobs
from core.services.platform import Platform, PlatformOptions, build
from core.settings import Settings
from core.store import accounts, sign_ins
from core.store.database import Connection
from datasets.model_origins.config import AllowedAddress, OriginConfig
from datasets.objectstore import open_store
from server import composition as root
from tests.api.answers import MODEL, problem
from tests.databases import sqlite_database
from tests.executor_configs import LOCAL
from tests.web_files import WebFiles, content, web_files


@pytest.fixture
def files() -> Iterator[WebFiles]:
    with web_files() as running:
        running.answers["/policy.py"] = content(MODEL)
        yield running


@pytest.fixture
def platform(settings: Settings, files: WebFiles) -> Iterator[Platform]:
    settings.home.mkdir()
    database = sqlite_database(settings.home / "windtunnel.db")
    allowed = {files.origin: AllowedAddress(origin=files.origin, private=True)}
    yield build(
        database,
        open_store(settings.objects),
        LocalNotifier(),
        PlatformOptions(
            home=settings.home,
            executor_configs=[LOCAL],
            sandbox={"level": 3},
            max_upload=settings.max_upload,
            model_origins=OriginConfig(addresses=allowed),
        ),
    )
    database.close()


@pytest.fixture
def client(platform: Platform, settings: Settings) -> FlaskClient:
    application: Flask = root.create_flask(platform, settings, {"level": 3, "missing": []})
    return application.test_client()


def fetch_due(platform: Platform) -> None:
    """Run the imports that are due."""
    for id in DueJobs(platform.database).of("import"):
        platform.submissions.model_imports.fetch(id)


@pytest.mark.parametrize("route", ["/v1/imports", "/v1/models"])
def test_an_import_is_accepted_and_read_at_its_location(
    client: FlaskClient, platform: Platform, files: WebFiles, route: str
) -> None:
    answer = client.post(route, json={"model_reference": f"{files.origin}/policy.py", "name": "mine"})
    assert answer.status_code == 202 and answer.json["state"] == "fetching", answer.data
    fetch_due(platform)
    ready = client.get(answer.headers["Location"]).json
    assert ready["state"] == "ready" and ready["ended_at"]
    model = client.get("/v1/models/mine").json
    assert model["id"] == ready["model"] and model["source"]["reference"] == f"{files.origin}/policy.py"


def test_an_imported_model_gets_its_tags(client: FlaskClient, platform: Platform, files: WebFiles) -> None:
    body = {"model_reference": f"{files.origin}/policy.py", "name": "mine"}
    problem(client.post("/v1/imports", json=body | {"tags": ["latest"]}), 422, "invalid")
    assert client.post("/v1/imports", json=body | {"tags": ["gold", "stable"]}).status_code == 202
    fetch_due(platform)
    assert client.get("/v1/models/mine@gold").json["tags"] == ["gold", "stable"]


def test_a_simulation_by_reference_is_accepted_and_repeated_by_its_digest(
    client: FlaskClient, platform: Platform, files: WebFiles
) -> None:
    body = {"dataset": "noop", "model_reference": f"{files.origin}/policy.py", "scenarios": {"range": [0, 3]}}
    headers = {"Idempotency-Key": "one"}
    accepted = client.post("/v1/simulations", json=body, headers=headers)
    assert accepted.status_code == 201, accepted.data
    assert (accepted.json["model"]["digest"], accepted.json["runtime"]["name"]) == (None, None)
    assert client.post("/v1/simulations", json=body, headers=headers).json["id"] == accepted.json["id"]
    fetch_due(platform)
    found = client.get(f"/v1/simulations/{accepted.json['id']}").json
    assert found["runtime"]["name"] == "python" and found["position"] == 1
    again = client.post("/v1/reruns", json={"spec": found["spec"], "provenance": found["provenance"]})
    assert again.status_code == 201 and again.json["model"]["digest"] == found["model"]["digest"], again.data
    assert len(files.requests) == 1


def test_a_form_may_name_a_reference_and_no_file_beside_it(client: FlaskClient, files: WebFiles) -> None:
    form = {"dataset": "noop", "model_reference": f"{files.origin}/policy.py", "format": "python"}
    assert client.post("/v1/forms/simulations", data=form, content_type="multipart/form-data").status_code == 201
    both = client.post("/v1/forms/simulations", data={**form, "model": (BytesIO(MODEL), "model.py")})
    assert "Send a model as a file, or name it" in problem(both, 422, "invalid")["detail"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"model_reference": "ftp://host/x"}, "There are `s3://bucket/key`"),
        ({"model_reference": "https://other.example/x"}, "does not allow models from https://other.example"),
        ({"model_reference": "models:/pole/1"}, "MLflow servers that are configured here: none"),
        ({"model_reference": "s3://bucket/x"}, "Name the `connection`"),
        ({"connection": "lab"}, "for a `model_reference` only"),
    ],
)
def test_a_reference_that_may_not_be_read_is_a_problem_with_the_next_step(
    client: FlaskClient, fields: dict[str, str], words: str
) -> None:
    assert (
        words in problem(client.post("/v1/simulations", json={"dataset": "noop", **fields}), 422, "invalid")["detail"]
    )
    if "model_reference" in fields:
        assert words in problem(client.post("/v1/imports", json=fields), 422, "invalid")["detail"]


def test_an_unknown_import_and_unknown_members_are_refused(client: FlaskClient, files: WebFiles) -> None:
    problem(client.get("/v1/imports/01m859y0v8e429d0m79kbgvtgs"), 404, "unknown-import")
    problem(client.post("/v1/imports", json={"model_reference": files.origin, "token": "x"}), 422, "invalid")


def add_submitter(platform: Platform, name: str) -> Caller:
    def write(c: Connection) -> None:
        assert accounts.add_user(c, name, {"state": "active", "created_by": "operator", "created_at": 1.0})
        accounts.put_member(c, "default", name, "submitter", 1.0)

    platform.database.write(write)
    return replace(LOCAL_CALLER, user=name)


def test_an_import_makes_no_model_for_who_has_left(platform: Platform, files: WebFiles) -> None:
    imports, ada = platform.submissions.model_imports, add_submitter(platform, "ada")
    id = imports.request(ada, f"{files.origin}/policy.py")["id"]
    platform.database.write(lambda c: accounts.leave(c, "ada", 2.0))
    fetch_due(platform)
    ended = imports.get(LOCAL_CALLER, str(id))
    assert ended["state"] == "failed" and "ada may not submit in default any more" in str(ended["reason"])
    assert files.requests == []


def test_an_import_waits_for_who_is_away(platform: Platform, files: WebFiles) -> None:
    imports, ada = platform.submissions.model_imports, add_submitter(platform, "ada")
    id = str(imports.request(ada, f"{files.origin}/policy.py")["id"])
    platform.database.write(lambda c: sign_ins.set_away(c, "ada", 2.0))
    fetch_due(platform)
    waiting = imports.get(LOCAL_CALLER, id)
    assert waiting["state"] == "fetching" and "identity provider of ada" in str(waiting["reason"])
    platform.database.write(lambda c: sign_ins.set_away(c, "ada", None))
    platform.database.write(lambda c: c.exec_driver_sql("UPDATE model_imports SET not_before=0"))
    fetch_due(platform)
    assert imports.get(LOCAL_CALLER, id)["state"] == "ready"


def test_a_model_that_an_accepted_simulation_waits_for_is_fetched_though_its_user_has_left(
    platform: Platform, files: WebFiles
) -> None:
    ada = add_submitter(platform, "ada")
    submission = Submission(dataset="noop", model_reference=f"{files.origin}/policy.py")
    simulation = platform.submissions.simulations.submit(ada, submission)[0].id
    platform.database.write(lambda c: accounts.leave(c, "ada", 2.0))
    fetch_due(platform)
    assert platform.submissions.simulations.get(LOCAL_CALLER, simulation).runtime.name == "python"
