"""Routes of datasets: registration, files, scenarios, differences, tags, prefetch and deletion."""

import hashlib
import json
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from flask.testing import FlaskClient

from common.errors import Corrupt
from core.domain.access.scopes import LOCAL_CALLER
from core.domain.submissions.provenance import ResolvedDataset
from core.notifications.local_notifier import LocalNotifier
from core.services.analysis.result_tables import ResultTables
from core.services.datasets.file_sources import Sources
from core.services.datasets.scenario_specs import ScenarioSpecs
from core.services.platform import Platform
from tests.api.answers import MODEL, problem
from tests.api.conftest import LeasingWorker
from tests.archives import LINES, MINE, Files, tar, zipped


@pytest.fixture
def upload(platform: Platform) -> Callable[[bytes], str]:
    """Function that creates a finished upload and returns its id."""

    def create_upload(body: bytes) -> str:
        record = platform.files.uploads.create(LOCAL_CALLER, len(body))
        if body:
            platform.files.uploads.append(LOCAL_CALLER, record.id, 0, iter([body]))
        return record.id

    return create_upload


@pytest.fixture
def work(platform: Platform) -> Callable[[], None]:
    """Function that runs the enqueued jobs."""

    def run_jobs() -> None:
        notifier = platform.notifier
        assert isinstance(notifier, LocalNotifier)
        while notifier.jobs:
            job, id = notifier.jobs.popleft()
            if job == "register":
                platform.jobs.dataset_registration.register(id)
            elif job == "prefetch":
                platform.catalogue.prefetches.download(id)

    return run_jobs


@pytest.fixture
def register(
    client: FlaskClient, upload: Callable[[bytes], str], work: Callable[[], None]
) -> Callable[..., dict[str, Any]]:
    """Function that registers files under a name, waits for the end and returns the version."""

    def register_files(name: str, files: Files | bytes, **extra: Any) -> dict[str, Any]:
        body = files if isinstance(files, bytes) else tar(files)
        document = {"name": name, "source": {"upload": upload(body)}, **extra}
        response = client.post("/v1/datasets", json=document)
        assert response.status_code == 202, response.data
        work()
        version: dict[str, Any] = client.get(response.headers["Location"]).json
        return version

    return register_files


Register = Callable[..., dict[str, Any]]
PLAIN = {"a.txt": b"alpha", "b/c.bin": b"0123456789", "empty": b""}


def test_a_tar_becomes_a_version_with_files_and_scenarios(client: FlaskClient, register: Register) -> None:
    version = register("drives", PLAIN)
    assert (version["state"], version["version"], version["file_count"], version["bytes"]) == ("ready", "1", 3, 15)
    listed = client.get("/v1/datasets/drives/files?limit=2").json
    assert [item["path"] for item in listed["items"]] == ["a.txt", "b/c.bin"] and listed["next"] == "b/c.bin"
    rest = client.get("/v1/datasets/drives/files?limit=2&after=b/c.bin").json
    assert [item["path"] for item in rest["items"]] == ["empty"] and rest["next"] is None
    part = client.get("/v1/datasets/drives/files/b/c.bin", headers={"Range": "bytes=2-4"})
    assert (part.status_code, part.data) == (206, b"234")
    assert client.get("/v1/datasets/drives/files/empty").data == b""
    problem(client.get("/v1/datasets/drives/files/nowhere"), 404, "unknown-file")
    assert "drives" in [item["name"] for item in client.get("/v1/datasets").json["items"]]


def test_a_zip_and_a_tar_of_the_same_files_are_the_same_version(client: FlaskClient, register: Register) -> None:
    first = register("drives", PLAIN)
    second = register("drives", zipped(PLAIN))
    assert second["id"] == first["id"] and second["version"] == "1"
    other = register("drives", PLAIN | {"a.txt": b"omega"})
    assert other["version"] == "2"
    versions = client.get("/v1/datasets/drives/versions").json["items"]
    assert [item["version"] for item in versions] == ["2", "1"]


def test_single_uploads_become_files(client: FlaskClient, upload: Callable[[bytes], str], work: Any) -> None:
    files = [{"path": path, "upload": upload(body)} for path, body in PLAIN.items()]
    response = client.post("/v1/datasets", json={"name": "loose", "source": {"uploads": files}})
    work()
    version = client.get(response.headers["Location"]).json
    assert version["state"] == "ready" and version["file_count"] == 3
    assert client.get("/v1/datasets/loose/files/a.txt").data == b"alpha"


def test_an_upload_is_named_by_its_id_or_its_address(
    client: FlaskClient, upload: Callable[[bytes], str], work: Any
) -> None:
    for name, address in (("one", "/v1/uploads/{}"), ("two", "http://localhost:5000/v1/uploads/{}")):
        source = {"upload": address.format(upload(tar(PLAIN)))}
        response = client.post("/v1/datasets", json={"name": name, "source": source})
        assert response.status_code == 202, response.data
        work()
        assert client.get(response.headers["Location"]).json["file_count"] == 3
    files = [{"path": "a.txt", "upload": address.format(upload(b"alpha"))}]
    assert client.post("/v1/datasets", json={"name": "three", "source": {"uploads": files}}).status_code == 202
    problem(client.post("/v1/datasets", json={"name": "x", "source": {"upload": "http://elsewhere/"}}), 422, "invalid")


def test_an_upload_is_kept_while_a_registration_needs_it(
    client: FlaskClient, upload: Callable[[bytes], str], work: Any
) -> None:
    tus_version = {"Tus-Resumable": "1.0.0"}
    for body, state in ((tar(PLAIN), "ready"), (b"no archive", "failed")):
        address = f"/v1/uploads/{upload(body)}"
        response = client.post("/v1/datasets", json={"name": "drives", "source": {"upload": address}})
        problem(client.delete(address, headers=tus_version), 409, "in-use")
        work()
        assert client.get(response.headers["Location"]).json["state"] == state
        assert client.delete(address, headers=tus_version).status_code == 204
    address = f"/v1/uploads/{upload(tar(PLAIN))}"
    withdrawn = client.post("/v1/datasets", json={"name": "other", "source": {"upload": address}})
    assert client.delete(withdrawn.headers["Location"]).status_code == 204
    assert client.delete(address, headers=tus_version).status_code == 204
    work()


def test_file_names_are_found_in_any_unicode_normalization(client: FlaskClient, register: Register) -> None:
    composed, decomposed = "caf\u00e9/\u00fc.csv.gz", "cafe\u0301/u\u0308.csv.gz"
    register("accents", {decomposed: b"1,2", "z": b""})
    assert [item["path"] for item in client.get("/v1/datasets/accents/files").json["items"]] == [composed, "z"]
    for path in (composed, decomposed):
        response = client.get(f"/v1/datasets/accents/files/{path}")
        assert (response.data, response.mimetype) == (b"1,2", "application/octet-stream")
        assert [item["path"] for item in client.get(f"/v1/datasets/accents/files?after={path}").json["items"]] == ["z"]


@pytest.mark.parametrize("size", [100, 3 << 20])
def test_a_file_that_is_corrupt_in_the_object_store_is_never_served_completely(
    client: FlaskClient, platform: Platform, register: Register, size: int
) -> None:
    register("drives", {"a": bytes(size), "b": b"sound"})
    (key,) = platform.store.list("packs/")
    content = bytearray(b"".join(platform.store.get(key)))
    content[content.index(bytes(100)) + 50] ^= 1
    platform.store.put(key, [bytes(content)])
    response = client.get("/v1/datasets/drives/files/a")
    if size == 100:  # the whole content was read before the head of the response was sent
        problem(response, 500, "corrupt-object")
    else:
        with pytest.raises(Corrupt):
            _ = response.data  # a server closes the connection here, before the announced length
    assert client.get("/v1/datasets/drives/files/b").data == b"sound"


def test_a_file_that_the_object_store_lost_is_an_error_and_not_a_404(
    client: FlaskClient, platform: Platform, register: Register
) -> None:
    register("drives", {"a": b"1"})
    (key,) = platform.store.list("packs/")
    platform.store.delete(key)
    lost = problem(client.get("/v1/datasets/drives/files/a"), 500, "corrupt-object")
    assert key not in lost["detail"]


def test_versions_are_compared_line_by_line(client: FlaskClient, register: Register) -> None:
    register("drives", PLAIN)
    register("drives", {"a.txt": b"omega", "b/c.bin": b"0123456789", "new": b"!"})
    lines = client.get("/v1/datasets/drives/diff?from=1&to=latest").data.splitlines()
    assert [(item["path"], item["change"]) for item in map(json.loads, lines)] == [
        ("a.txt", "changed"),
        ("empty", "removed"),
        ("new", "added"),
    ]


def test_tags_can_be_moved_and_latest_is_automatic(client: FlaskClient, register: Register) -> None:
    register("drives", PLAIN, tags=["gold"])
    register("drives", {"only": b"this"})
    assert client.get("/v1/datasets/drives@gold").json["version"] == "1"
    assert client.get("/v1/datasets/drives@latest").json["version"] == "2"
    moved = client.put("/v1/datasets/drives/tags/gold", json={"version": "2"})
    assert moved.json["tags"] == ["gold"] and moved.json["version"] == "2"
    assert client.get("/v1/datasets/drives@gold").json["version"] == "2"
    problem(client.put("/v1/datasets/drives/tags/latest", json={"version": "1"}), 422, "invalid")
    problem(client.put("/v1/datasets/drives/tags/7", json={"version": "1"}), 422, "invalid")
    unknown = problem(client.get("/v1/datasets/drives@glod"), 404, "unknown-dataset")
    assert unknown["detail"] == "The dataset drives has no version or tag 'glod'. Its tags: latest, gold."
    assert client.delete("/v1/datasets/drives/tags/gold").status_code == 204
    problem(client.get("/v1/datasets/drives@gold"), 404, "unknown-dataset")
    problem(client.put("/v1/datasets/nowhere/tags/gold", json={"version": "1"}), 404, "unknown-dataset")
    problem(client.post("/v1/datasets/nowhere/prefetch"), 404, "unknown-dataset")


def test_a_manifest_refers_to_stored_content(
    client: FlaskClient, register: Register, upload: Callable[[bytes], str], work: Any
) -> None:
    register("drives", PLAIN)
    stored = {item["path"]: item for item in client.get("/v1/datasets/drives/files").json["items"]}
    lines = [{"path": f"copy/{path}", "digest": item["digest"], "size": item["size"]} for path, item in stored.items()]
    response = client.post("/v1/datasets", json={"name": "other", "source": {"manifest": lines}})
    work()
    assert client.get(response.headers["Location"]).json["state"] == "ready"
    assert client.delete("/v1/datasets/drives").status_code == 204
    assert client.get("/v1/datasets/other/files/copy/a.txt").data == b"alpha"
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    id = upload(body)
    for name, source in (("third", {"manifest_upload": id}), ("fourth", {"manifest": {"upload": id}})):
        response = client.post("/v1/datasets", json={"name": name, "source": source})
        work()
        same = client.get("/v1/datasets/other").json["digest"]
        assert client.get(response.headers["Location"]).json["digest"] == same


def test_a_manifest_takes_content_that_is_not_stored_yet_from_an_archive(
    client: FlaskClient, register: Register, upload: Callable[[bytes], str], work: Any
) -> None:
    register("drives", PLAIN)
    stored = client.get("/v1/datasets/drives/files").json["items"]
    lines = [{"path": item["path"], "digest": item["digest"], "size": item["size"]} for item in stored]
    new, digest = b"omega", "sha256:" + hashlib.sha256(b"omega").hexdigest()
    lines += [{"path": path, "digest": digest, "size": 5} for path in ("new/z.txt", "new/same.txt")]
    source = {"manifest": lines, "upload": upload(tar({"any-name": new}))}
    response = client.post("/v1/datasets", json={"name": "drives", "source": source})
    assert response.status_code == 202, response.data
    work()
    version = client.get(response.headers["Location"]).json
    assert (version["state"], version["version"]) == ("ready", "2"), version
    assert client.get("/v1/datasets/drives/files/new/z.txt").data == new
    assert client.get("/v1/datasets/drives/files/a.txt").data == b"alpha"
    whole = register("whole", {**PLAIN, "new/z.txt": new, "new/same.txt": new})
    assert whole["digest"] == version["digest"], "the same files have the same digest, however they were sent"


def test_an_archive_beside_a_manifest_must_have_the_content_that_is_missing(
    client: FlaskClient, upload: Callable[[bytes], str], work: Any
) -> None:
    line = {"path": "x", "digest": "sha256:" + "0" * 64, "size": 5}
    source = {"manifest": [line], "upload": upload(tar({"x": b"other"}))}
    response = client.post("/v1/datasets", json={"name": "other", "source": source})
    work()
    version = client.get(response.headers["Location"]).json
    assert version["state"] == "failed" and "0000" in version["reason"]


def test_a_manifest_of_missing_content_is_refused(client: FlaskClient, work: Any) -> None:
    line = {"path": "x", "digest": "sha256:" + "0" * 64, "size": 1}
    response = client.post("/v1/datasets", json={"name": "other", "source": {"manifest": [line]}})
    work()
    version = client.get(response.headers["Location"]).json
    assert version["state"] == "failed" and "0000" in version["reason"]
    assert client.get("/v1/datasets/other").json == version
    problem(client.get(f"/v1/datasets/{version['id']}/files"), 409, "not-ready")


@pytest.mark.parametrize("pack", [tar, zipped])
def test_the_one_folder_of_an_archive_is_entered_if_it_has_a_description(
    register: Register, client: FlaskClient, pack: Callable[[dict[str, bytes]], bytes]
) -> None:
    clutter = {"mine/.DS_Store": b"x", "__MACOSX/mine/._lines.ndjson": b"x", "mine/b/._c": b"x"}
    plain = register("plain", pack(EXTENSION_FILES))
    compressed = register(
        "compressed", pack({f"mine/{path}": body for path, body in EXTENSION_FILES.items()} | clutter)
    )
    assert compressed["state"] == "ready" and compressed["tasks"] == plain["tasks"] > 0
    assert compressed["digest"] == plain["digest"]


def test_folders_of_plain_files_keep_their_names(register: Register, client: FlaskClient) -> None:
    for name, files in (
        ("one", {"drives/a.csv": b"", "drives/.DS_Store": b""}),
        ("two", {"a/x": b"", "b/dataset.json": b""}),
    ):
        version = register(name, zipped(files))
        listed = [file["path"] for file in client.get(f"/v1/datasets/{version['id']}/files").json["items"]]
        assert listed == [path for path in files if "DS_Store" not in path]


@pytest.mark.parametrize(
    ("body", "fragment"),
    [
        (tar({"../x": b""}), "leads out"),
        (tar({"/etc/x": b""}), "leads out"),
        (tar({"a": b"", "A": b""}), "case"),
        (tar({"a": b"", "a/b": b""}), "as a file"),
        (tar({"x" * 300: b""}), "too long"),
        (zipped({"..\\x": b""}), "backslash"),
        (b"not an archive at all", "neither"),
        (tar(PLAIN)[:60], "truncated"),
        (tar({}), "no files"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_archive_that_cannot_be_stored_is_refused_with_the_reason(
    register: Register, body: bytes, fragment: str
) -> None:
    version = register("drives", body)
    assert version["state"] == "failed" and fragment in version["reason"], version


def test_a_registration_that_failed_is_found_by_its_name(
    client: FlaskClient, upload: Callable[[bytes], str], work: Callable[[], None], register: Register
) -> None:
    document = {"name": "broken", "source": {"upload": upload(b"no archive")}}
    accepted = client.post("/v1/datasets", json=document).json
    running = client.get("/v1/datasets/broken").json
    assert (running["id"], running["state"]) == (accepted["id"], "registering")
    waiting = problem(client.get("/v1/datasets/broken/files"), 409, "not-ready")
    assert "is being registered" in waiting["detail"] and waiting["state"] == "registering"
    work()
    for ref in ("broken", "broken@latest", accepted["id"]):
        failed = client.get(f"/v1/datasets/{ref}").json
        assert (failed["id"], failed["state"]) == (accepted["id"], "failed")
        assert "neither a zip nor a tar" in failed["reason"] and "POST /v1/datasets" in failed["next_step"]
    listed = [item for item in client.get("/v1/datasets").json["items"] if item["name"] == "broken"]
    assert [(item["state"], item["reason"]) for item in listed] == [("failed", failed["reason"])]
    refused = problem(client.get("/v1/datasets/broken/files"), 409, "not-ready")
    assert "neither a zip nor a tar" in refused["detail"] and "POST /v1/datasets" in refused["detail"]
    submission = {"dataset": "broken", "model": "zero"}
    refused = problem(client.post("/v1/simulations", json=submission), 409, "not-ready")
    assert "neither a zip nor a tar" in refused["detail"]
    # A ready version of the name takes precedence over every registration that failed, also over later ones.
    ready = register("broken", PLAIN)
    register("broken", b"no archive either")
    assert client.get("/v1/datasets/broken").json["id"] == ready["id"]
    listed = [item for item in client.get("/v1/datasets").json["items"] if item["name"] == "broken"]
    assert [item["id"] for item in listed] == [ready["id"]]
    states = [item["state"] for item in client.get("/v1/datasets/broken/versions").json["items"]]
    assert states == ["failed", "ready", "failed"]
    assert client.delete("/v1/datasets/broken").status_code == 204
    problem(client.get("/v1/datasets/broken"), 404, "unknown-dataset")


def test_a_failed_registration_leaves_no_objects(platform: Platform, register: Register) -> None:
    register("drives", tar({"fine": b"x" * 1000, "../x": b""}))
    assert [*platform.store.list("packs/"), *platform.store.list("manifests/")] == []


@pytest.mark.parametrize(
    "document",
    [
        {"name": "noop", "source": {"upload": "0" * 26}},
        {"name": "x", "source": {}},
        {"name": "x", "source": {"upload": "0" * 26}},
        {"name": "x", "source": {"s3": "s3://bucket/x"}},
        {"name": "x", "source": {"s3": "s3://bucket/x", "connection": "nowhere"}},
        {"name": "x", "source": {"s3": "https://bucket/x"}},
        {"name": "x", "source": {"manifest": [{"path": "a", "digest": "sha256:1", "size": 1}]}},
        {"name": "x", "source": {"manifest": 7}},
        {"name": "x", "source": {"manifest": []}},
        {"name": "x", "source": {"manifest": [], "s3": "s3://bucket/x"}},
        {"name": "x", "source": {"upload": "0" * 26, "s3": "s3://bucket/x"}},
        {"name": "x", "source": {"manifest": [], "manifest_upload": "0" * 26}},
        {"name": "x", "source": {"manifest_upload": "0" * 26}},
        {"name": "0" * 26, "source": {"manifest": [{"path": "a", "digest": "sha256:" + "0" * 64, "size": 1}]}},
        {"name": "../x", "source": {"upload": "0" * 26}},
        {"name": "x", "source": {"upload": "0" * 26}, "tags": ["latest"]},
    ],
)
def test_an_invalid_registration_is_refused_immediately(client: FlaskClient, document: dict[str, Any]) -> None:
    response = client.post("/v1/datasets", json=document)
    assert response.status_code == 422, response.data


EXTENSION_FILES = {"dataset.json": json.dumps(MINE).encode(), "lines.ndjson": LINES}


def test_a_dataset_that_extends_a_built_in_one_is_simulated(
    client: FlaskClient, platform: Platform, register: Register, worker: LeasingWorker
) -> None:
    version = register("mine", EXTENSION_FILES)
    assert (version["simulator"], version["extends"], version["tasks"], version["title"]) == ("noop", "noop", 5, "Mine")
    scenarios = client.get("/v1/datasets/mine/scenarios?limit=2").json
    assert [item["name"] for item in scenarios["items"]] == ["case-0", "case-1"] and scenarios["next"] == 2
    put = client.put("/v1/models/m?filename=model.py", data=MODEL, headers={"Content-Type": "application/octet-stream"})
    assert put.status_code == 201
    sent = client.post("/v1/simulations", json={"dataset": "mine", "runtime": "python", "model": "m"})
    assert sent.status_code == 201, sent.data
    frozen = sent.json["provenance"]["dataset"]
    assert (frozen["name"], frozen["version"], frozen["digest"]) == ("mine", "1", version["digest"])
    problem(client.delete("/v1/datasets/mine@1"), 409, "in-use")
    launch = worker.launch(sent.json["id"])
    definition = platform.scheduling.leases.describe(launch)["play"]["definition"]
    assert (
        definition["simulator"] == "noop" and definition["tasks"] == 5 and definition["scenarios"] == "scenarios.ndjson"
    )
    folder = platform.scheduling.staging.folder(LOCAL_CALLER, msgspec.convert(frozen, ResolvedDataset), sent.json["id"])
    assert [json.loads(line)["name"] for line in (folder / "scenarios.ndjson").read_text().splitlines()][-1] == "case-4"
    worker.finish(launch)
    assert client.delete("/v1/datasets/mine").status_code == 204
    assert client.get(f"/v1/simulations/{sent.json['id']}/summary").json["tasks"]["total"] == 5


def test_fields_of_scenarios_are_parameters_until_their_dataset_is_deleted(
    client: FlaskClient, platform: Platform, register: Register, worker: LeasingWorker
) -> None:
    lines = b"".join(b'{"lanes": %d, "options": {"config": {"duration": 20}}}\n' % lanes for lanes in (4, 2, 3))
    register("wide", {"dataset.json": json.dumps(MINE | {"extends": "highway"}).encode(), "lines.ndjson": lines})
    client.put("/v1/models/m?filename=model.py", data=MODEL, headers={"Content-Type": "application/octet-stream"})
    submission = {"dataset": "wide", "runtime": "python", "model": "m", "sweep": {"latency_steps": [0, 1]}}
    id = client.post("/v1/simulations", json=submission).json["id"]
    worker.run_to_end(id)
    path = f"/v1/simulations/{id}/parameters"
    listed = {parameter["name"]: parameter["values"] for parameter in client.get(path).json["parameters"]}
    assert listed == {"lanes": [2, 3, 4], "options.config.duration": [20], "params.latency_steps": [0, 1]}
    groups = client.get(f"/v1/simulations/{id}/dependence?metric=steps&parameter=lanes").json["groups"]
    assert [(group["value"], group["min"], group["max"]) for group in groups] == [(2, 1, 4), (3, 2, 5), (4, 0, 3)]
    assert client.delete("/v1/datasets/wide").status_code == 204
    specs = ScenarioSpecs(platform.database, platform.store, Sources(platform.store, {}))
    parameters = ResultTables(platform.database, platform.analysis.results, specs).parameters(LOCAL_CALLER, id)
    assert list(parameters) == ["params.latency_steps"]


def test_blank_lines_are_not_scenarios(client: FlaskClient, register: Register) -> None:
    files = {"dataset.json": json.dumps(MINE | {"scenarios": "./lines.ndjson"}).encode()}
    version = register("gaps", files | {"lines.ndjson": b'\n{"name": "a"}\r\n\n  \n{"name": "b"}\n\n'})
    assert (version["state"], version["tasks"]) == ("ready", 2), version
    listed = client.get("/v1/datasets/gaps/scenarios").json["items"]
    assert listed == [{"index": 0, "name": "a"}, {"index": 1, "name": "b"}]


def test_a_rerun_uses_the_version_of_the_first_run(
    client: FlaskClient, platform: Platform, register: Register, worker: LeasingWorker
) -> None:
    register("mine", EXTENSION_FILES)
    client.put("/v1/models/m?filename=model.py", data=MODEL, headers={"Content-Type": "application/octet-stream"})
    sent = client.post("/v1/simulations", json={"dataset": "mine", "runtime": "python", "model": "m"}).json
    worker.run_to_end(sent["id"], artifacts={(0, "trace.f32.zz", "application/octet-stream"): b"trace"})
    replay = f"/v1/simulations/{sent['id']}/tasks/0/replay"
    assert client.get(replay).status_code == 202
    archived = {"spec": sent["spec"], "provenance": sent["provenance"]}
    assert client.delete("/v1/datasets/mine").status_code == 204
    register("mine", EXTENSION_FILES | {"more.txt": b"the same name, something else"})
    refused = client.post("/v1/simulations", json=archived)
    problem(refused, 422, "unknown-dataset")
    assert sent["dataset"]["digest"] in refused.json["detail"]
    problem(client.get(replay), 404, "unknown-dataset")
    register("again", EXTENSION_FILES)
    rerun = client.post("/v1/simulations", json=archived)
    assert rerun.status_code == 201, rerun.data
    assert rerun.json["dataset"]["digest"] == sent["dataset"]["digest"]
    assert client.get(replay).status_code == 202


def test_a_dataset_without_a_description_cannot_be_simulated(
    client: FlaskClient, register: Register, model: str
) -> None:
    register("plain", PLAIN)
    refused = client.post("/v1/simulations", json={"dataset": "plain", "runtime": "python", "model": model})
    problem(refused, 422, "not-playable")
    problem(client.get("/v1/datasets/plain/scenarios"), 422, "not-playable")


@pytest.mark.parametrize(
    ("description", "lines", "fragment"),
    [
        ({"extends": "noop"}, LINES, "scenarios"),
        (MINE | {"simulator": "sumo"}, LINES, "simulator"),
        (MINE | {"extends": "os:system"}, LINES, "extends"),
        (MINE | {"scenarios": "nowhere"}, LINES, "nowhere"),
        (MINE, b'{"env": "os:system"}\n', "Line 1"),
        (MINE, LINES + b"{}\n{\n", "Line 7"),
        (MINE, b'{"index": 3}\n', "index"),
        (MINE, b"", "no scenarios"),
        (MINE | {"extends": "highway"}, b'{"options": {"config": {"other_vehicles_type": "os.system"}}}\n', "config"),
        (MINE | {"extends": "car_street"}, b'{"street": "moon"}\n', "street"),
    ],
)
def test_scenarios_with_forbidden_members_are_refused(
    register: Register, description: dict[str, Any], lines: bytes, fragment: str
) -> None:
    version = register("mine", {"dataset.json": json.dumps(description).encode(), "lines.ndjson": lines})
    assert version["state"] == "failed" and fragment in version["reason"], version


def test_a_prefetch_reports_its_progress(
    client: FlaskClient, platform: Platform, register: Register, work: Any
) -> None:
    register("drives", PLAIN)
    problem(client.get("/v1/datasets/drives/prefetch"), 404, "not-found")
    assert client.post("/v1/datasets/drives/prefetch").status_code == 202
    work()
    prefetch = client.get("/v1/datasets/drives/prefetch").json
    assert prefetch["state"] == "ready" and prefetch["total_bytes"] == 15
    assert client.post("/v1/datasets/noop/prefetch").json["state"] == "ready"


def test_a_prefetch_that_is_ready_does_not_say_what_its_node_had_already(
    client: FlaskClient, register: Register, work: Any
) -> None:
    told = []
    for name in ("drives", "equal"):  # the second one may be another project's
        register(name, PLAIN)
        assert client.post(f"/v1/datasets/{name}/prefetch").status_code == 202
        work()
        told.append(client.get(f"/v1/datasets/{name}/prefetch").json)
    assert told[0] == told[1]
    assert (told[0]["files"], told[0]["bytes"], told[0]["fraction"]) == (3, 15, 1.0)


def test_a_built_in_dataset_cannot_be_deleted(client: FlaskClient) -> None:
    problem(client.delete("/v1/datasets/noop"), 422, "invalid")
    assert [item["version"] for item in client.get("/v1/datasets/noop/versions").json["items"]] == ["1"]


def test_a_scenario_of_any_dataset_has_the_labels_that_an_evaluator_adds(
    platform: Platform, register: Register
) -> None:
    register("mine", {"dataset.json": json.dumps(MINE).encode(), "lines.ndjson": LINES})
    specs = ScenarioSpecs(platform.database, platform.store, Sources(platform.store, {}))
    mine = platform.catalogue.datasets.frozen(platform.catalogue.datasets.find(LOCAL_CALLER, "mine"))
    assert specs.labels(LOCAL_CALLER, mine, 3) == {"name": "case-3"}
    built_in = platform.catalogue.datasets.find(LOCAL_CALLER, "car_street")
    labels = specs.labels(LOCAL_CALLER, platform.catalogue.datasets.frozen(built_in), 0)
    assert {"street", "density", "event", "mix"} <= labels.keys()
    assert (
        specs.labels(LOCAL_CALLER, platform.catalogue.datasets.frozen(built_in), 10**6) == {}
    )  # a scenario that cannot be read
    [packed] = platform.store.list("packs/")
    platform.store.delete(packed)
    assert specs.labels(LOCAL_CALLER, mine, 3) == {}


def test_a_range_of_a_damaged_pack_is_refused(client: FlaskClient, platform: Platform, register: Register) -> None:
    register("drives", {"a.txt": b"alpha", "b.bin": b"0123456789"})
    [packed] = platform.store.list("packs/")
    whole = b"".join(platform.store.get(packed))
    ranges = {"Range": "bytes=2-4"}
    assert client.get("/v1/datasets/drives/files/b.bin", headers=ranges).data == b"234"
    platform.store.put(packed, [whole.replace(b"3", b"X")])
    problem(client.get("/v1/datasets/drives/files/b.bin", headers=ranges), 500, "corrupt-object")
    assert client.get("/v1/datasets/drives/files/a.txt", headers=ranges).data == b"pha"
    platform.store.put(packed, [whole])
    assert client.get("/v1/datasets/drives/files/b.bin", headers=ranges).data == b"234"


@pytest.mark.parametrize("path", ["files", "files/dataset.json"])
def test_a_built_in_dataset_says_that_it_lists_no_files(client: FlaskClient, path: str) -> None:
    refused = problem(client.get(f"/v1/datasets/car_street@1/{path}"), 404, "unknown-dataset")
    assert "built-in dataset: it lists no files" in refused["detail"]
    assert "/v1/datasets/car_street/scenarios" in refused["detail"]


def test_every_scenario_of_a_street_is_drawn_without_a_simulation(client: FlaskClient) -> None:
    for index in range(0, 288, 7):
        response = client.get(f"/v1/datasets/car_street/scenarios/{index}/map")
        assert response.status_code == 200 and response.content_type == "image/svg+xml"
        picture = ElementTree.fromstring(response.data)
        classes = [element.get("class") for element in picture.iter() if element.get("class")]
        assert classes.count("route") == classes.count("start") == classes.count("end") == 1
        scenario = client.get(f"/v1/datasets/car_street/scenarios?after={index}&limit=1").json["items"][0]
        assert ("crossing" in classes) >= (scenario["street"] == "crosswalk")
        assert scenario["name"] in response.text and len(response.data) < 100_000
    assert "sandbox" in response.headers["Content-Security-Policy"]
    unchanged = client.get(response.request.path, headers={"If-None-Match": response.headers["ETag"]})
    assert unchanged.status_code == 304


@pytest.mark.parametrize(
    ("path", "status", "slug", "expected"),
    [
        ("car_street/scenarios/288/map", 404, "not-found", "no scenario 288"),
        ("car_street/scenarios/-1/map", 404, "not-found", "no scenario -1"),
        ("cartpole/scenarios/0/map", 404, "not-found", "have no street"),
        ("nothing/scenarios/0/map", 404, "unknown-dataset", "no dataset"),
    ],
)
def test_what_has_no_map_is_explained(client: FlaskClient, path: str, status: int, slug: str, expected: str) -> None:
    assert expected in problem(client.get(f"/v1/datasets/{path}"), status, slug)["detail"]


def test_scenarios_of_a_registered_dataset_are_drawn(client: FlaskClient, register: Register) -> None:
    scenario = client.get("/v1/datasets/car_street/scenarios?after=200&limit=1").json["items"][0]
    scenario |= {"index": 0, "name": "my own start"}
    described = {"extends": "car_street", "scenarios": "lines.ndjson"}
    files = {"dataset.json": json.dumps(described).encode(), "lines.ndjson": json.dumps(scenario).encode()}
    version, built_in = register("mine", files), client.get("/v1/datasets/car_street").json
    members = ("interface", "metrics", "params", "score", "failure", "group_by")
    assert [version[name] for name in members] == [built_in[name] for name in members]
    response = client.get("/v1/datasets/mine/scenarios/0/map")
    assert response.status_code == 200 and "my own start" in response.text
