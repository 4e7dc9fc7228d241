"""The platform runs models by reference from a real S3 server."""

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from minio import Minio

from tests.s3_servers import S3Server, fresh_bucket
from tests.system.platform_process import MODELS, PlatformProcess, has_one_result_per_task
from windtunnel import Client, WindtunnelError


def started(folder: Path, connections: dict[str, object]) -> PlatformProcess:
    """Start a platform with a connections file."""
    process = PlatformProcess(folder)
    file = process.home / "connections.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(connections))
    return process.start()


@pytest.fixture
def bucket(minio: S3Server) -> str:
    client = Minio(minio.endpoint.removeprefix("http://"), minio.access_key, minio.secret_key, secure=False)
    name = fresh_bucket()
    client.make_bucket(name)
    data = (MODELS / "echo.py").read_bytes()
    client.put_object(name, "policies/echo.py", io.BytesIO(data), len(data))
    return name


@pytest.fixture
def with_bucket(prepared_environments: None, minio: S3Server, bucket: str, tmp_path: Path) -> Iterator[PlatformProcess]:
    lab = {"endpoint": minio.endpoint, "access_key": minio.access_key, "secret_key": minio.secret_key}
    platform = started(tmp_path / "platform", {"connections": {"lab": {**lab, "buckets": [bucket]}}})
    yield platform
    platform.stop()


def test_an_object_of_a_bucket_is_simulated_and_its_etag_is_in_the_archive(
    with_bucket: PlatformProcess, bucket: str
) -> None:
    reference = f"s3://{bucket}/policies/echo.py"
    ended = with_bucket.run(dataset="noop", model_reference=reference, scenarios={"range": [0, 5]})
    assert ended["state"] == "succeeded", ended["reason"]
    assert has_one_result_per_task(with_bucket.results(ended["id"]), 5)
    archive = with_bucket.http.get(f"/v1/simulations/{ended['id']}/archive")
    with zipfile.ZipFile(io.BytesIO(archive.content)) as files:
        source = json.loads(files.read("simulation.json"))["provenance"]["model"]["source"]
        assert files.read("model/echo.py") == (MODELS / "echo.py").read_bytes()
    assert source["reference"] == source["uri"] == reference and source["etag"] and source["connection"] == "lab"
    wrong = with_bucket.run(dataset="noop", model_reference=f"s3://{bucket}/none.py")
    assert wrong["state"] == "failed" and "There is no s3://" in wrong["reason"], wrong


def test_the_client_imports_a_reference_where_a_stored_model_is_needed(
    with_bucket: PlatformProcess, bucket: str
) -> None:
    with Client(with_bucket.url) as client:
        name = client.models.stored(f"s3://{bucket}/policies/echo.py")
        assert client.models.get(name).digest == name.partition("@")[2]
        assert client.run(f"s3://{bucket}/policies/echo.py", "noop", scenarios=range(2)).ok
        with pytest.raises(WindtunnelError, match="cannot be imported"):
            client.models.stored(f"s3://{bucket}/none.py")
