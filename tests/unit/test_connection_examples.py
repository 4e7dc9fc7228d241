"""Examples of docs/connections.md: each is loaded as the platform loads it; requests go to the documented address."""

import json
import re
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from datasets.objectstore import connections
from datasets.objectstore.connections import Connection
from datasets.objectstore.s3_client import client

PAGE = (Path(__file__).parents[2] / "docs" / "connections.md").read_text(encoding="utf-8")
#: Section -> its example of connections.json, and the address of an object in its text.
SECTION = re.compile(r"^## ([^\n]+)\n+```json\n(.*?)```\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
EXAMPLES = {title: (example, text) for title, example, text in SECTION.findall(PAGE)}


def load(folder: Path, *examples: str) -> dict[str, Connection]:
    """Load one file with the connections of these examples, as the platform does."""
    merged = {name: values for example in examples for name, values in json.loads(example)["connections"].items()}
    file = folder / "connections.json"
    file.write_text(json.dumps({"connections": merged}))
    file.chmod(0o600)
    return dict(connections.load(file))


def test_there_is_an_example_of_each_kind() -> None:
    assert list(EXAMPLES) == ["AWS", "MinIO", "Google Cloud Storage", "Ceph"]


@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_example_is_loaded_and_its_objects_are_requested_from_the_documented_address(
    kind: str, tmp_path: Path
) -> None:
    example, text = EXAMPLES[kind]
    (connection,) = load(tmp_path, example).values()
    assert connection.access_key and connection.secret_key and "fleet" in connection.buckets
    assert all(connections.is_bucket(bucket) for bucket in connection.buckets)
    (documented,) = re.findall(r"requested\s+from\s+`([^`]+)`", text)
    # a presigned URL is computed without a request, from the same endpoint and region as every request
    url = client(connection).get_presigned_url("GET", "fleet", "2026/a.csv", timedelta(minutes=1))
    assert url.partition("?")[0] == documented
    (credential,) = parse_qs(urlsplit(url).query)["X-Amz-Credential"]
    assert credential.split("/")[0] == connection.access_key
    assert credential.split("/")[2:] == [connection.region, "s3", "aws4_request"]


def test_all_examples_fit_into_one_file(tmp_path: Path) -> None:
    assert set(load(tmp_path, *(example for example, _ in EXAMPLES.values()))) == {"aws", "lab", "google", "ceph"}


def test_every_field_of_a_connection_is_documented_with_its_default() -> None:
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", PAGE, re.MULTILINE)
    documented = {name: default.strip(" `") for names, default in rows for name in re.findall(r"`(\w+)`", names)}
    assert set(documented) == {field.name for field in fields(Connection)} - {"name"}
    assert documented["region"] == Connection(name="x", endpoint="http://x").region


def test_on_aws_the_region_of_a_request_is_that_of_the_connection_whatever_the_endpoint_names() -> None:
    """As the page warns: without `region`, requests go to us-east-1."""
    endpoint = "https://s3.eu-central-1.amazonaws.com"
    connection = Connection(name="aws", endpoint=endpoint, access_key="key", secret_key="secret")
    url = client(connection).get_presigned_url("GET", "fleet", "a", timedelta(minutes=1))
    assert urlsplit(url).hostname == "fleet.s3.us-east-1.amazonaws.com"
