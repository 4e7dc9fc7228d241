"""Models at HTTP addresses, from a real server: what is allowed, redirects hop by hop, forbidden addresses, limits."""

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from common.errors import Invalid, OriginFailed, OriginRefused
from core.domain.access.scopes import LOCAL_CALLER
from core.services.platform import Platform
from datasets.model_origins import config
from datasets.model_origins.config import AllowedAddress, MlflowServer, OriginConfig
from datasets.model_origins.web import WebReader, is_public
from tests.imported_models import PYTHON, imported, importing_platform
from tests.web_files import WebFiles, content, endless, redirect, status, web_files


@pytest.fixture
def files() -> Iterator[WebFiles]:
    with web_files() as running:
        running.answers["/policy.py"] = content(PYTHON, ETag='"v1"')
        yield running


@pytest.fixture
def platform(files: WebFiles, tmp_path: Path) -> Iterator[Platform]:
    allowed = {
        files.origin: AllowedAddress(origin=files.origin, private=True, token="secret-of-files"),
        files.named: AllowedAddress(origin=files.named),
        "https://models.example": AllowedAddress(origin="https://models.example"),
    }
    with importing_platform(tmp_path, model_origins=OriginConfig(addresses=allowed)) as built:
        yield built


def test_a_file_of_an_allowed_origin_becomes_a_model_and_its_etag_is_recorded(
    platform: Platform, files: WebFiles
) -> None:
    record = imported(platform, f"{files.origin}/policy.py")
    assert record["state"] == "ready", record
    assert record["source"]["etag"] == '"v1"' and record["source"]["uri"] == f"{files.origin}/policy.py"
    assert files.requests == [("/policy.py", "Bearer secret-of-files")]


def test_a_file_that_changes_later_leaves_the_imported_model_as_it_is(platform: Platform, files: WebFiles) -> None:
    first = imported(platform, f"{files.origin}/policy.py")
    files.answers["/policy.py"] = content(PYTHON.replace(b"0", b"1"), ETag='"v2"')
    second = imported(platform, f"{files.origin}/policy.py")
    assert first["digest"] != second["digest"]
    assert b"".join(platform.files.models.content(platform.files.models.get(LOCAL_CALLER, first["digest"]))) == PYTHON


@pytest.mark.parametrize("url", ["https://other.example/x.py", "http://models.example/x.py", "http://127.0.0.1:1/x"])
def test_an_origin_that_is_not_allowed_is_refused_at_once(platform: Platform, files: WebFiles, url: str) -> None:
    with pytest.raises(Invalid, match="does not allow models from"):
        platform.submissions.model_imports.request(LOCAL_CALLER, url)
    assert files.requests == []


@pytest.mark.parametrize(
    "target",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://127.0.0.1:1/secret",
        "http://[::1]:1/secret",
        "https://other.example/x.py",
        "//other.example/x.py",
        "file:///etc/passwd",
        "http://user:secret@127.0.0.1/x",
        "http://[broken/x",
        "http://127.0.0.1:99999999/x",
        "gopher://127.0.0.1/x",
    ],
)
def test_a_redirect_to_what_is_not_allowed_is_refused(platform: Platform, files: WebFiles, target: str) -> None:
    files.answers["/moved.py"] = redirect(target)
    record = imported(platform, f"{files.origin}/moved.py")
    assert record["state"] == "failed", record
    assert "does not allow models from" in record["reason"] or "not valid" in record["reason"], record
    assert [path for path, _ in files.requests] == ["/moved.py"]


def test_a_redirect_within_an_allowed_origin_is_followed(platform: Platform, files: WebFiles) -> None:
    files.answers["/latest.py"] = redirect("/policy.py", 307)
    record = imported(platform, f"{files.origin}/latest.py")
    assert record["state"] == "ready" and record["source"]["uri"] == f"{files.origin}/policy.py", record


def test_a_redirect_to_another_origin_does_not_carry_the_token(files: WebFiles) -> None:
    with web_files() as other:
        other.answers["/x.py"] = content(PYTHON)
        files.answers["/away.py"] = redirect(f"{other.origin}/x.py")
        allowed = {
            files.origin: AllowedAddress(origin=files.origin, private=True, token="secret"),
            other.origin: AllowedAddress(origin=other.origin, private=True),
        }
        assert b"".join(WebReader(allowed).open(f"{files.origin}/away.py", "default").chunks) == PYTHON
        assert other.requests == [("/x.py", None)]


def test_redirects_without_end_are_refused(platform: Platform, files: WebFiles) -> None:
    files.answers["/round.py"] = redirect("/round.py")
    record = imported(platform, f"{files.origin}/round.py")
    assert record["state"] == "failed" and "redirects more than 5 times" in record["reason"]
    assert len(files.requests) == 6


def test_a_name_that_resolves_to_a_private_address_is_refused_without_a_request(
    platform: Platform, files: WebFiles
) -> None:
    record = imported(platform, f"{files.named}/policy.py")
    assert record["state"] == "failed" and "not public" in record["reason"], record
    assert files.requests == []


def test_metadata_addresses_are_refused_even_if_private_addresses_are_allowed() -> None:
    origin = "http://169.254.169.254"
    reader = WebReader({origin: AllowedAddress(origin=origin, private=True)})
    with pytest.raises(OriginRefused, match="not public"):
        reader.open(f"{origin}/latest/meta-data/", "default")


@pytest.mark.parametrize(
    ("number", "public"),
    [
        ("8.8.8.8", True),
        ("2001:4860:4860::8888", True),
        ("10.0.0.1", False),
        ("100.64.0.1", False),
        ("100.100.100.200", False),
        ("127.0.0.1", False),
        ("169.254.169.254", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("fd00:ec2::254", False),
        ("fe80::1%eth0", False),
        ("::ffff:127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
    ],
)
def test_addresses_of_the_public_internet_are_told_from_others(number: str, public: bool) -> None:
    assert is_public(number) is public


def test_an_endless_body_is_cut_at_the_limit_of_models(platform: Platform, files: WebFiles) -> None:
    files.answers["/endless.py"] = endless
    record = imported(platform, f"{files.origin}/endless.py")
    assert record["state"] == "failed" and "WINDTUNNEL_MAX_UPLOAD" in record["reason"], record
    assert list(platform.store.list("models/")) == []


def test_a_body_that_takes_too_long_is_refused(files: WebFiles) -> None:
    files.answers["/endless.py"] = endless
    allowed = {files.origin: AllowedAddress(origin=files.origin, private=True)}
    with pytest.raises(OriginRefused, match="did not arrive within"):
        for _ in WebReader(allowed, longest=0.0).open(f"{files.origin}/endless.py", "default").chunks:
            pass


def test_a_body_that_breaks_off_is_not_taken_for_the_whole_file(platform: Platform, files: WebFiles) -> None:
    files.answers["/short.py"] = content(PYTHON, Content_Length=str(len(PYTHON) + 10), Connection="close")
    record = imported(platform, f"{files.origin}/short.py")
    assert record["state"] == "fetching" and "cannot be read" in record["reason"], record
    assert list(platform.store.list("models/")) == []


@pytest.mark.parametrize(
    ("code", "state"), [(404, "failed"), (401, "failed"), (403, "failed"), (503, "fetching"), (429, "fetching")]
)
def test_a_status_is_final_or_tried_again(platform: Platform, files: WebFiles, code: int, state: str) -> None:
    files.answers["/x.py"] = status(code)
    record = imported(platform, f"{files.origin}/x.py")
    assert record["state"] == state and str(code) in record["reason"], record


def test_a_compressed_answer_is_refused(platform: Platform, files: WebFiles) -> None:
    files.answers["/x.py"] = content(b"x", Content_Encoding="gzip")
    record = imported(platform, f"{files.origin}/x.py")
    assert record["state"] == "failed" and "compressed" in record["reason"]


def test_a_server_that_does_not_answer_is_a_failure_that_may_pass() -> None:
    origin = "http://127.0.0.1:9"
    reader = WebReader({origin: AllowedAddress(origin=origin, private=True)})
    with pytest.raises(OriginFailed):
        reader.open(f"{origin}/x.py", "default")


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"addresses": {"models.example": {}}}, "by its origin"),
        ({"addresses": {"https://Models.example": {}}}, "by its origin"),
        ({"addresses": {"https://models.example/x": {}}}, "by its origin"),
        ({"addresses": {"https://models.example:443": {}}}, "by its origin"),
        ({"addresses": {"https://models.example": {"secret": "abc"}}}, "may have private, token and projects"),
        ({"addresses": {"https://models.example": {"private": "abc"}}}, "private is true or false"),
        ({"addresses": []}, "must be an object"),
        ({"mlflow": {"Lab": {"uri": "https://m"}}}, "name has"),
        ({"mlflow": {"lab": {}}}, "needs a uri"),
        ({"mlflow": {"lab": {"uri": "https://abc:abc@m"}}}, "without credentials"),
        ({"mlflow": {"lab": {"uri": "file:///abc"}}}, "without credentials"),
        ({"mlflow": {"lab": {"uri": "https://m", "token": 5}}}, "not a string"),
    ],
)
def test_an_error_in_the_connections_file_is_named_without_its_values(
    tmp_path: Path, document: dict[str, Any], words: str
) -> None:
    file = tmp_path / "connections.json"
    file.write_text(json.dumps(document))
    file.chmod(0o600)
    with pytest.raises(ValueError, match=words) as refused:
        config.load(file)
    assert "abc" not in str(refused.value)


def test_the_example_of_the_documentation_is_loaded_and_its_options_are_all_there_are(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "model-references.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    file = tmp_path / "connections.json"
    file.write_text(example)
    file.chmod(0o600)
    loaded = config.load(file)
    assert loaded.addresses["http://10.1.2.3:8080"].private and loaded.server("lab").log_results
    for option in {field.name for kind in (AllowedAddress, MlflowServer) for field in fields(kind)} - {
        "origin",
        "name",
    }:
        assert f"`{option}`" in page, option


def test_origins_are_read_from_the_connections_file(tmp_path: Path) -> None:
    file = tmp_path / "connections.json"
    file.write_text(
        json.dumps(
            {
                "addresses": {"https://models.example": {"token": "t"}, "http://10.0.0.1:8080": {"private": True}},
                "mlflow": {"lab": {"uri": "https://mlflow.example/base", "username": "u", "password": "p"}},
            }
        )
    )
    file.chmod(0o600)
    loaded = config.load(file)
    assert loaded.addresses["http://10.0.0.1:8080"].private and loaded.addresses["https://models.example"].token == "t"
    assert loaded.server(None).uri == "https://mlflow.example/base" and "'p'" not in repr(loaded)
