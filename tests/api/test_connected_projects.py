"""Connections of projects: one that does not list a project is answered there as one that does not exist."""

from collections.abc import Iterator
from typing import Any

import pytest
from werkzeug.test import TestResponse

from core.notifications.local_notifier import LocalNotifier
from core.services.platform import Platform, PlatformOptions, build
from core.settings import Settings
from datasets.model_origins.config import AllowedAddress, MlflowServer, OriginConfig
from datasets.objectstore import open_store
from datasets.objectstore.connections import Connection
from tests.api.people import MODEL, People
from tests.databases import sqlite_database
from tests.executor_configs import LOCAL

BUCKET = "http://127.0.0.1:9"  # nothing answers: what is asked of it fails later, in a job
ADDRESS = "http://127.0.0.1:9"


@pytest.fixture
def platform(settings: Settings) -> Iterator[Platform]:
    settings.home.mkdir()
    database = sqlite_database(settings.home / "windtunnel.db")
    names = {"lab": ("red",), "old": ("default",), "all": ("*",)}
    options = PlatformOptions(
        home=settings.home,
        executor_configs=[LOCAL],
        sandbox={"level": 3},
        streams=4,
        connections={
            name: Connection(name=name, endpoint=BUCKET, buckets=(f"{name}-bucket",), projects=projects)
            for name, projects in names.items()
        },
        model_origins=OriginConfig(
            addresses={ADDRESS: AllowedAddress(origin=ADDRESS, private=True, projects=("red",))},
            mlflow={"tracking": MlflowServer(name="tracking", uri=BUCKET, log_results=True, projects=("red",))},
        ),
    )
    yield build(database, open_store(settings.objects), LocalNotifier(), options)
    database.close()


def register(people: People, who: str, connection: str | None, bucket: str = "lab-bucket") -> TestResponse:
    source: dict[str, Any] = {"s3": f"s3://{bucket}/2026/"} | ({"connection": connection} if connection else {})
    return people.ask(who, "POST", "/v1/datasets", json={"name": "streets", "source": source})


def bring(people: People, who: str, reference: str, connection: str | None = None) -> TestResponse:
    named = {} if connection is None else {"connection": connection}
    return people.ask(who, "POST", "/v1/imports", json={"model_reference": reference} | named)


def test_a_dataset_is_registered_through_connections_of_its_project_alone(people: People) -> None:
    assert register(people, "red submitter", "lab").status_code == 202
    assert register(people, "red submitter", None).status_code == 202, "it is the only one for the bucket"
    assert register(people, "blue submitter", "all", "all-bucket").status_code == 202
    there, nowhere = (register(people, "blue submitter", name) for name in ("lab", "nil"))
    assert there.status_code == nowhere.status_code == 422
    assert there.text.replace("lab", "nil") == nowhere.text.replace("lab", "nil")
    assert "configured are: all." in there.text
    unnamed, no_bucket = (
        register(people, "blue submitter", None),
        register(people, "blue submitter", None, "nil-bucket"),
    )
    assert unnamed.status_code == 422 and unnamed.text.replace("lab-bucket", "nil-bucket") == no_bucket.text
    assert register(people, "red submitter", "old", "old-bucket").status_code == 422, "it lists none: `default` has it"


@pytest.mark.parametrize(
    ("reference", "connection"),
    [
        ("s3://lab-bucket/model.py", "lab"),
        ("s3://lab-bucket/model.py", None),
        (f"{ADDRESS}/model.py", None),
        ("models:/brake/1", "tracking"),
        ("models:/brake/1", None),
    ],
)
def test_models_are_imported_from_origins_of_their_project_alone(
    people: People, reference: str, connection: str | None
) -> None:
    assert bring(people, "red submitter", reference, connection).status_code == 202
    refused = bring(people, "blue submitter", reference, connection)
    assert refused.status_code == 422 and "red" not in refused.text.replace("configured", "")
    body = {"dataset": "noop", "model_reference": reference} | ({"connection": connection} if connection else {})
    assert people.ask("blue submitter", "POST", "/v1/simulations", json=body).status_code == 422
    assert people.ask("red submitter", "POST", "/v1/simulations", json=body).status_code == 201


def test_results_of_a_shared_model_are_not_logged_to_the_server_of_its_owner(
    people: People, platform: Platform
) -> None:
    sent = people.ask("red submitter", "PUT", "/v1/models/brake", data=MODEL, headers={"Content-Type": "text/x-python"})
    assert sent.status_code == 201
    source = '{"connection": "tracking", "run_id": "r1"}'
    platform.database.write(
        lambda c: c.exec_driver_sql("UPDATE models SET source=? WHERE name='brake'", (source,)) and None
    )
    assert people.ask("red maintainer", "PUT", "/v1/models/brake/shares/blue").status_code in (200, 201, 204)
    body = {"dataset": "noop", "model": "red/brake", "log_to_run": True}
    refused = people.ask("blue submitter", "POST", "/v1/simulations", json=body)
    assert refused.status_code == 422 and "no MLflow server" in refused.text
