"""Models by reference: read once from a real S3 server, stored by digest, and kept in the simulation's provenance."""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from minio import Minio

from common.errors import Invalid, UnknownImport
from core.domain.access.scopes import LOCAL_CALLER
from core.domain.scheduling.states import State
from core.domain.submissions.submission import Submission
from core.services.due_jobs import DueJobs
from core.services.platform import Platform
from core.services.simulations.new_simulations import resubmission
from core.store import model_imports
from core.store.claims import HeldClaim
from datasets.objectstore.bucket_reader import BucketReader, ListedObject
from datasets.objectstore.connections import Connection
from tests.imported_models import PYTHON, imported, importing_platform
from tests.ports import free_ports
from tests.s3_servers import S3Server, fresh_bucket


@pytest.fixture
def bucket(minio: S3Server) -> tuple[Minio, str]:
    client = Minio(minio.endpoint.removeprefix("http://"), minio.access_key, minio.secret_key, secure=False)
    name = fresh_bucket()
    client.make_bucket(name)
    return client, name


@pytest.fixture
def platform(bucket: tuple[Minio, str], minio: S3Server, tmp_path: Path) -> Iterator[Platform]:
    [silent] = free_ports(1)
    lab = Connection(
        name="lab",
        endpoint=minio.endpoint,
        access_key=minio.access_key,
        secret_key=minio.secret_key,
        buckets=(bucket[1], "missing"),
    )
    away = Connection(name="away", endpoint=f"http://127.0.0.1:{silent}", buckets=("elsewhere",))
    wrong = Connection(
        name="wrong", endpoint=minio.endpoint, access_key="unknown", secret_key="x" * 20, buckets=("guarded",)
    )
    with importing_platform(tmp_path, connections={"lab": lab, "away": away, "wrong": wrong}) as built:
        yield built


def put(bucket: tuple[Minio, str], key: str, data: bytes = PYTHON) -> str:
    """Write an object; return its reference."""
    client, name = bucket
    client.put_object(name, key, BytesIO(data), len(data))
    return f"s3://{name}/{key}"


def submitted(platform: Platform, reference: str, **fields: Any) -> str:
    """Submit a simulation of a model by reference; return its id."""
    submission = Submission(dataset="cartpole", model_reference=reference, **fields)
    return platform.submissions.simulations.submit(LOCAL_CALLER, submission)[0].id


def fetch_due(platform: Platform) -> int:
    """Run the imports that are due; return their number."""
    due = DueJobs(platform.database).of("import")
    for id in due:
        platform.submissions.model_imports.fetch(id)
    return len(due)


def test_a_model_that_meets_a_defect_of_what_reads_it_is_refused_at_once(
    platform: Platform, bucket: tuple[Minio, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def defective(*_: Any, **__: Any) -> None:
        raise OverflowError("too large")

    monkeypatch.setattr("core.services.uploads.models.declared", defective)
    record = imported(platform, put(bucket, "policies/brake.py"))
    assert record["state"] == "failed", record
    assert record["reason"].startswith("The model could not be read (OverflowError: 'too large').")


def test_an_object_of_a_connection_becomes_a_model_of_its_digest(platform: Platform, bucket: tuple[Minio, str]) -> None:
    reference = put(bucket, "policies/brake.py")
    record = imported(platform, reference)
    assert record["state"] == "ready", record
    model = platform.files.models.get(LOCAL_CALLER, record["model"])
    assert (model.name, model.format, model.digest) == ("brake", "python", record["digest"])
    assert b"".join(platform.files.models.content(model)) == PYTHON
    assert model.source is not None and model.source["uri"] == reference and model.source["connection"] == "lab"
    assert len(model.source["etag"]) == 32 and model.source["size"] == len(PYTHON)


def test_a_simulation_waits_for_its_model_and_keeps_what_its_reference_resolved_to(
    platform: Platform, bucket: tuple[Minio, str]
) -> None:
    reference = put(bucket, "brake.py")
    id = submitted(platform, reference)
    waiting = platform.submissions.simulations.get(LOCAL_CALLER, id)
    assert (waiting.state, waiting.model.digest, waiting.position) == (State.QUEUED, None, None)
    assert waiting.reason == f"its model is being imported from {reference}"
    assert fetch_due(platform) == 1 and fetch_due(platform) == 0
    ready = platform.submissions.simulations.get(LOCAL_CALLER, id)
    assert ready.state is State.QUEUED and ready.position == 1 and ready.reason is not None
    assert ready.runtime.name == "python" and ready.provenance.play.isolation
    source = ready.provenance.model.source
    assert source and source["reference"] == reference and source["etag"] and source["resolved_at"]
    put(bucket, "brake.py", PYTHON.replace(b"0", b"1"))
    again = resubmission({"spec": ready.spec, "provenance": ready.provenance_document})
    assert again.model == f"brake@{ready.model.digest}" and again.model_reference is None
    repeated = platform.submissions.simulations.submit(LOCAL_CALLER, again)[0]
    assert repeated.model.digest == ready.model.digest
    assert repeated.provenance.model.source == source


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("s3://missing/x.onnx", "There is no s3://missing/x.onnx (connection lab)"),
        ("s3://guarded/x.onnx", "may not be read"),
    ],
)
def test_a_simulation_of_a_model_that_is_not_there_ends_as_failed_with_the_reason(
    platform: Platform, reference: str, words: str
) -> None:
    id = submitted(platform, reference)
    assert fetch_due(platform) == 1
    platform.jobs.finalization.collect(id)
    ended = platform.submissions.simulations.get(LOCAL_CALLER, id)
    assert ended.state is State.FAILED and words in (ended.reason or ""), ended.reason
    assert b"".join(platform.analysis.results.archive(LOCAL_CALLER, id, model=True).read(0, 2)) == b"PK"


@pytest.mark.parametrize(
    ("reference", "connection", "words"),
    [
        ("s3://nowhere/x", None, "Name the `connection`"),
        ("s3://nowhere/x", "lab", "does not allow the bucket"),
        ("s3://nowhere/x", "other", "There is no connection"),
        ("s3://nowhere", None, "Not a model reference"),
        ("s3://missing/folder/", None, "Not a model reference"),
        ("file:///etc/passwd", None, "Not a model reference"),
        ("models:/name", None, "Name a version or an alias"),
        ("runs:/abc/../secret", None, "has parts that no artifact has"),
        ("https://user:secret@host/x", None, "no credentials in it"),
    ],
)
def test_a_reference_that_may_not_be_read_is_refused_at_once(
    platform: Platform, reference: str, connection: str | None, words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        platform.submissions.model_imports.request(LOCAL_CALLER, reference, connection)
    with pytest.raises(Invalid, match=words):
        submitted(platform, reference, connection=connection)
    with pytest.raises(Invalid, match="Name one model"):
        platform.submissions.simulations.submit(
            LOCAL_CALLER, Submission(dataset="cartpole", model="idm", model_reference="s3://missing/x")
        )


def test_a_model_larger_than_any_model_may_be_is_refused_before_it_is_read(
    platform: Platform, bucket: tuple[Minio, str]
) -> None:
    record = imported(platform, put(bucket, "big.onnx", bytes((1 << 20) + 1)))
    assert record["state"] == "failed" and "WINDTUNNEL_MAX_UPLOAD" in record["reason"]
    assert list(platform.store.list("models/")) == []


def test_a_file_that_is_no_model_fails_with_what_it_is(platform: Platform, bucket: tuple[Minio, str]) -> None:
    record = imported(platform, put(bucket, "page.onnx", b"<!DOCTYPE html><html>"))
    assert record["state"] == "failed" and "web page" in record["reason"], record


def test_a_model_that_its_runtime_does_not_take_ends_the_simulation_as_failed(
    platform: Platform, bucket: tuple[Minio, str]
) -> None:
    id = submitted(platform, put(bucket, "brake.py"), runtime="onnx", format="python")
    fetch_due(platform)
    platform.jobs.finalization.collect(id)
    ended = platform.submissions.simulations.get(LOCAL_CALLER, id)
    assert ended.state is State.FAILED and "the runtime onnx accepts" in (ended.reason or "").lower(), ended.reason


def test_an_origin_that_does_not_answer_is_tried_again_and_the_simulation_says_why_it_waits(
    platform: Platform,
) -> None:
    id = submitted(platform, "s3://elsewhere/x.py")
    assert fetch_due(platform) == 1
    waiting = platform.submissions.simulations.get(LOCAL_CALLER, id)
    assert waiting.state is State.QUEUED and "not here yet: s3://elsewhere/x.py" in (waiting.reason or "")
    assert fetch_due(platform) == 0  # it pauses


def test_an_object_that_changes_between_its_version_and_its_bytes_is_read_again(
    platform: Platform, bucket: tuple[Minio, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = put(bucket, "brake.py")
    find = BucketReader.find

    def changed_after(self: BucketReader, bucket_name: str, key: str) -> ListedObject:
        found = find(self, bucket_name, key)
        put(bucket, key, PYTHON + b"# changed\n")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(BucketReader, "find", changed_after)
        first = imported(platform, reference)
    assert first["state"] == "fetching" and "was changed" in first["reason"], first
    platform.submissions.model_imports.fetch(first["id"])
    again = platform.submissions.model_imports.get(LOCAL_CALLER, first["id"])
    assert again["state"] == "ready" and again["source"]["size"] == len(PYTHON) + 10


def test_an_import_whose_job_was_killed_is_done_by_the_next(platform: Platform, bucket: tuple[Minio, str]) -> None:
    id = submitted(platform, put(bucket, "brake.py"))
    [due] = DueJobs(platform.database).of("import")
    now = platform.database.write(platform.database.now)
    assert platform.database.write(lambda c: model_imports.CLAIMS.take(c, HeldClaim(due, "killed"), 9.0, now - 10.0))
    assert fetch_due(platform) == 1
    assert platform.submissions.simulations.get(LOCAL_CALLER, id).model.digest is not None


def test_a_deleted_simulation_leaves_no_import(platform: Platform, bucket: tuple[Minio, str]) -> None:
    id = submitted(platform, put(bucket, "brake.py"))
    platform.submissions.simulations.cancel(LOCAL_CALLER, id)
    platform.submissions.simulations.delete(LOCAL_CALLER, id)
    platform.jobs.deletion.remove(id)
    assert DueJobs(platform.database).of("import") == []


def test_a_cancelled_simulation_ends_its_import(platform: Platform, bucket: tuple[Minio, str]) -> None:
    id = submitted(platform, put(bucket, "brake.py"))
    assert platform.submissions.simulations.cancel(LOCAL_CALLER, id).state is State.CANCELLED
    fetch_due(platform)
    assert fetch_due(platform) == 0
    assert list(platform.store.list("models/")) == []


def test_an_unknown_import_is_not_found(platform: Platform) -> None:
    with pytest.raises(UnknownImport):
        platform.submissions.model_imports.get(LOCAL_CALLER, "x")
