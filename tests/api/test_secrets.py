"""Errors of a failed registration name the bucket, but never the credentials."""

import logging
import traceback
from collections.abc import Iterator

import pytest
from flask.testing import FlaskClient

from common.errors import PlatformError
from core.notifications.local_notifier import LocalNotifier
from core.services.platform import Platform, PlatformOptions, build
from core.settings import Settings
from datasets.objectstore import open_store
from datasets.objectstore.connections import Connection
from server import composition as root
from tests.databases import sqlite_database
from tests.executor_configs import LOCAL
from tests.s3_servers import S3Server, fresh_bucket

SECRET = "an-extremely-secret-key"
ACCESS = "an-unused-access-key"


@pytest.fixture
def platform(minio: S3Server, settings: Settings) -> Iterator[Platform]:
    """A platform with unusable connections: wrong keys, and an unreachable host."""
    settings.home.mkdir()
    database = sqlite_database(settings.home / "windtunnel.db")
    keys = {"access_key": ACCESS, "secret_key": SECRET}
    connections = {
        "refused": Connection(name="refused", endpoint=minio.endpoint, **keys),
        "away": Connection(name="away", endpoint="http://127.0.0.1:1", **keys),
    }
    store = open_store(settings.objects)
    yield build(
        database,
        store,
        LocalNotifier(),
        PlatformOptions(
            home=settings.home,
            executor_configs=[LOCAL],
            sandbox={"level": 3},
            connections=connections,
        ),
    )
    database.close()


@pytest.mark.parametrize("connection", ["refused", "away"])
def test_errors_of_a_failing_registration_do_not_contain_the_credentials(
    platform: Platform, settings: Settings, connection: str, minio: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    client: FlaskClient = root.create_flask(platform, settings, {"level": 3, "missing": []}).test_client()
    bucket = fresh_bucket()
    response = client.post(
        "/v1/datasets", json={"name": "d", "source": {"s3": f"s3://{bucket}/all/", "connection": connection}}
    )
    assert response.status_code == 202, response.data
    outputs = [response.text]
    try:
        platform.jobs.dataset_registration.register(response.json["id"])
    except PlatformError as error:
        outputs += [*traceback.format_exception(error), repr(error), repr(error.members)]
    for path in ("/v1/datasets/d", "/v1/datasets", f"/v1/datasets/{response.json['id']}", "/v1/datasets/d/files"):
        outputs.append(client.get(path).text)
    assert "ready" not in client.get("/v1/datasets/d").json.get("state", "")
    assert bucket in "".join(outputs)
    outputs.append(caplog.text)
    for output in outputs:
        for hidden in (SECRET, ACCESS, "X-Amz-Credential", "Signature="):
            assert hidden not in output
    for file in settings.home.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert SECRET.encode() not in content and ACCESS.encode() not in content, file
