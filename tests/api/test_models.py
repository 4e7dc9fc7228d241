"""Routes of models: creation from forms and bodies, list, content and deletion."""

import gzip
import hashlib
import io
import os
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flask.testing import FlaskClient

from common.errors import NotFound
from core.services.platform import Platform
from core.services.uploads.models import key_of
from core.services.uploads.shipped_models import shipped
from core.settings import Settings
from core.store import model_locks
from core.store.tables import models
from runtimes import environments
from tests.api.answers import MODEL, problem

FORM = {"Content-Type": "multipart/form-data; boundary=b"}
BYTES = {"Content-Type": "application/octet-stream"}


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def multipart(data: bytes) -> bytes:
    return b'--b\r\nContent-Disposition: form-data; name="file"; filename="m.py"\r\n\r\n' + data + b"\r\n--b--\r\n"


def announced(length: int) -> dict[str, Any]:
    """Return the WSGI environment of a client that announces another length than the length of its body."""
    return {"CONTENT_LENGTH": str(length), "wsgi.input_terminated": True}


def test_a_form_creates_a_model(client: FlaskClient) -> None:
    sent = client.post("/v1/models", data={"file": (io.BytesIO(MODEL), "my policy.py"), "runtime": "python"})
    assert sent.status_code == 201, sent.data
    model = sent.json
    assert model["name"] == "my-policy" and model["version"] == 1 and model["format"] == "python"
    assert model["digest"] == digest(MODEL) and model["size"] == len(MODEL)
    assert model["created_at"].endswith("+00:00")
    assert client.get(sent.headers["Location"]).json == model


@pytest.mark.parametrize(
    ("filename", "name"),
    [
        ("modèle v2.py", "modele-v2"),
        ("модель-2.py", f"2-{hashlib.sha256(MODEL).hexdigest()[:12]}"),
        ("модель.py", f"model-{hashlib.sha256(MODEL).hexdigest()[:12]}"),
        ("idm.py", f"idm-{hashlib.sha256(MODEL).hexdigest()[:12]}"),
    ],
)
def test_a_file_whose_name_cannot_be_a_models_name_names_it_apart(
    client: FlaskClient, filename: str, name: str
) -> None:
    sent = client.post("/v1/models", data={"file": (io.BytesIO(MODEL), filename), "runtime": "python"})
    assert sent.status_code == 201 and sent.json["name"] == name


@pytest.mark.parametrize("filename", ["policy.onnx", "policy.tar", "policy"])
def test_a_file_of_zero_bytes_is_refused_whatever_its_name_is(client: FlaskClient, filename: str) -> None:
    sent = client.post("/v1/models", data={"file": (io.BytesIO(bytes(100_000)), filename)})
    assert "zero bytes" in problem(sent, 422, "unknown-format")["detail"]


def test_equal_models_keep_their_names_in_references_by_digest(client: FlaskClient) -> None:
    baseline = client.get("/v1/models/idm").json["digest"]
    for name, data in (("first", MODEL), ("second", MODEL), ("copy", shipped()["idm"].read_bytes())):
        client.put(f"/v1/models/{name}?filename=m.py", data=data, headers=BYTES)
    for reference, name in (
        (f"first@{digest(MODEL)}", "first"),
        (f"second@{digest(MODEL)}", "second"),
        (f"of-another-server@{digest(MODEL)}", "second"),
        (f"idm@{baseline}", "idm"),
        (f"copy@{baseline}", "copy"),
    ):
        assert client.get(f"/v1/models/{reference}").json["name"] == name, reference
    unknown = client.get(f"/v1/models/first@{digest(b'other')}")
    assert "no model with the digest" in problem(unknown, 404, "unknown-model")["detail"]


def test_a_retry_has_the_name_of_its_model_where_another_has_the_same_content(client: FlaskClient) -> None:
    for name in ("first", "second"):
        client.put(f"/v1/models/{name}?filename=m.py", data=MODEL, headers=BYTES)
    id = client.post("/v1/simulations", json={"model": "first", "dataset": "noop"}).json["id"]
    client.post(f"/v1/simulations/{id}/cancel")
    assert client.post(f"/v1/simulations/{id}/retry", json={}).json["model"]["name"] == "first"


def test_a_put_creates_the_next_version_of_a_name(client: FlaskClient) -> None:
    for version, data in enumerate((MODEL, MODEL + b"#", MODEL + b"##"), 1):
        sent = client.put("/v1/models/idm2?filename=model.py", data=data, headers=BYTES)
        assert sent.status_code == 201 and sent.json["version"] == version
    assert client.get("/v1/models/idm2").json["version"] == 3
    assert client.get("/v1/models/idm2@1").json["digest"] == digest(MODEL)
    assert client.get(f"/v1/models/{digest(MODEL + b'#')}").json["version"] == 2


def test_what_ships_is_listed_described_and_marked(client: FlaskClient) -> None:
    client.put("/v1/models/own?filename=model.py", data=MODEL, headers=BYTES)
    items = client.get("/v1/models").json["items"]
    assert [item["name"] for item in items if not item["baseline"]] == ["own"] and items[0]["name"] == "own"
    listed = {item["name"]: item for item in items if item["baseline"]}
    assert listed.keys() == shipped().keys() >= {"idm", "zero", "car_street.onnx"}
    for name, item in listed.items():
        assert item == client.get(f"/v1/models/{name}").json == client.get(f"/v1/models/{name}@1").json
        assert item["version"] == 1 and item["digest"] == digest(shipped()[name].read_bytes())
    assert client.get("/v1/models/idm@2").status_code == 404
    assert client.get(f"/v1/models/{listed['idm']['digest']}").json == listed["idm"]


def test_filters_of_the_list_concern_shipped_models_too(client: FlaskClient) -> None:
    client.put("/v1/models/own?filename=model.py", data=MODEL, headers=BYTES)

    def names(query: str) -> list[str]:
        return [item["name"] for item in client.get(f"/v1/models?{query}").json["items"]]

    assert names("baseline=false") == ["own"] and names("name=idm") == ["idm"]
    assert names("baseline=true") == sorted(shipped()) and names("format=tflite") == ["car_street.tflite"]
    assert names("baseline=true&name=own") == []
    problem(client.get("/v1/models?baseline=2"), 422, "invalid")


def test_a_shipped_model_is_neither_replaced_nor_deleted(client: FlaskClient) -> None:
    before = client.get("/v1/models/idm").json
    form = {"file": (io.BytesIO(MODEL), "model.py"), "name": "idm"}
    for refused in (
        client.put("/v1/models/idm?filename=model.py", data=MODEL, headers=BYTES),
        client.post("/v1/models", data=form),
        client.delete("/v1/models/idm"),
        client.delete("/v1/models/idm@1"),
        client.delete(f"/v1/models/{before['digest']}"),
    ):
        assert "ships with the platform" in problem(refused, 409, "shipped-model")["detail"]
    assert client.get("/v1/models/idm").json == before
    assert client.get("/v1/models?baseline=false").json["items"] == []


def test_a_file_that_is_called_like_a_shipped_model_gets_a_name_of_its_own(client: FlaskClient) -> None:
    sent = client.post("/v1/models", data={"file": (io.BytesIO(MODEL), "idm.py")})
    assert sent.status_code == 201 and sent.json["name"] == f"idm-{digest(MODEL)[7:19]}"
    form = {"model": (io.BytesIO(MODEL), "zero.py"), "dataset": "noop"}
    submitted = client.post("/v1/simulations", data=form)
    assert submitted.status_code == 201 and submitted.json["model"]["digest"] == digest(MODEL)


def test_a_model_that_an_earlier_version_registered_under_a_shipped_name_is_kept(
    client: FlaskClient, platform: Platform
) -> None:
    def model_digest(**fields: str) -> str:
        response = client.post("/v1/simulations", json={"dataset": "noop", "runtime": "python", **fields})
        return str(response.json["model"]["digest"])

    baseline = model_digest()
    client.put("/v1/models/own?filename=model.py", data=MODEL, headers=BYTES)
    platform.database.write(lambda c: c.execute(models.update().values(name="zero")))
    assert model_digest() == baseline != model_digest(model="zero") == digest(MODEL)


def test_a_truncated_upload_leaves_no_file(client: FlaskClient, settings: Settings) -> None:
    for path, headers in (
        ("/v1/models/cut?filename=model.py", BYTES),
        ("/v1/models/cut", BYTES | {"Content-Type": "text/plain"}),
    ):
        cut = client.put(path, data=MODEL, headers=headers, environ_overrides=announced(len(MODEL) + 5))
        assert "5 bytes" in problem(cut, 400, "truncated-upload")["detail"]
    assert client.get("/v1/models?baseline=false").json["items"] == []
    assert [path for path in settings.home.rglob("*") if path.is_file() and path.parent.name == "scratch"] == []


def test_a_truncated_form_is_refused(client: FlaskClient) -> None:
    body = multipart(MODEL)
    assert client.post("/v1/models", data=body, headers=FORM).status_code == 201
    cut = client.post("/v1/models", data=body[:-9], headers=FORM)
    problem(cut, 400, "bad-request")
    cut = client.post("/v1/models", data=body[:-9], headers=FORM, environ_overrides=announced(len(body)))
    problem(cut, 400, "truncated-upload")
    problem(client.post("/v1/models", data=body, headers={"Content-Type": "multipart/form-data"}), 400, "bad-request")


def test_a_full_disk_is_reported_and_deletion_frees_space(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = client.put("/v1/models/stored.py", data=MODEL, headers=BYTES)
    assert stored.status_code == 201
    full = SimpleNamespace(f_bavail=100, f_frsize=4096, f_blocks=1 << 20)  # enough space for rows, but not for models
    with monkeypatch.context() as patched:
        patched.setattr(os, "statvfs", lambda _: full)
        problem(client.put("/v1/models/more.py", data=MODEL + b"#", headers=BYTES), 507, "storage-full")
        form = {"file": (io.BytesIO(MODEL + b"#"), "more.py")}
        problem(client.post("/v1/models", data=form), 507, "storage-full")
        assert client.delete("/v1/models/stored.py").status_code == 204
    assert client.put("/v1/models/more.py", data=MODEL + b"#", headers=BYTES).status_code == 201


def test_a_model_that_is_corrupt_in_the_object_store_is_never_served_completely(
    client: FlaskClient, platform: Platform
) -> None:
    client.put("/v1/models/m.py", data=MODEL, headers=BYTES)
    platform.store.put(key_of(digest(MODEL)), [MODEL.replace(b"a", b"b", 1)])
    problem(client.get("/v1/models/m.py/content"), 500, "corrupt-object")
    problem(client.get("/v1/models/m.py/content", headers={"Range": "bytes=0-9"}), 500, "corrupt-object")
    assert client.put("/v1/models/m.py", data=MODEL, headers=BYTES).status_code == 201
    assert client.get("/v1/models/m.py/content").data == MODEL


def test_a_put_without_a_length_is_refused(client: FlaskClient) -> None:
    chunked = client.put("/v1/models/x", data=MODEL, headers=BYTES, environ_overrides={"CONTENT_LENGTH": ""})
    problem(chunked, 411, "length-required")


def test_a_model_that_is_too_large_is_refused(client: FlaskClient) -> None:
    large = bytes((1 << 20) + 1)
    problem(client.put("/v1/models/large", data=large, headers=BYTES), 413, "too-large")
    problem(client.post("/v1/models", data=multipart(large), headers=FORM), 413, "too-large")


def test_uploaded_files_are_spooled_to_the_configured_folder(
    client: FlaskClient, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    used: list[Path] = []
    real = tempfile.TemporaryFile

    def spy(mode: str, *, buffering: int, dir: Path) -> Any:
        used.append(dir)
        return real(mode, buffering=buffering, dir=dir)

    monkeypatch.setattr("api.body.tempfile.TemporaryFile", spy)
    assert client.post("/v1/models", data={"file": (io.BytesIO(MODEL), "a.py")}).status_code == 201
    assert set(used) == {settings.home.resolve() / "uploads"}


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"name": "only"},
        {"other": (io.BytesIO(MODEL), "a.py")},
        {"file": (io.BytesIO(MODEL), "a.py"), "colour": "red"},
        {"file": (io.BytesIO(MODEL), "a.py"), "name": "a b"},
        {"file": (io.BytesIO(b""), "a.py")},
    ],
)
def test_an_invalid_form_is_refused(client: FlaskClient, form: dict[str, Any]) -> None:
    problem(client.post("/v1/models", data=form, content_type="multipart/form-data"), 422, "invalid")


def test_bytes_of_an_unknown_format_are_refused(client: FlaskClient) -> None:
    problem(client.put("/v1/models/unrecognised", data=b"\x00\x01\x02\x03" * 9, headers=BYTES), 422, "unknown-format")


def test_the_problem_of_an_unknown_runtime_has_similar_names(client: FlaskClient) -> None:
    response = client.put("/v1/models/x?runtime=pyhton", data=MODEL, headers=BYTES)
    assert problem(response, 422, "unknown-runtime")["nearest"] == ["python"]


@pytest.mark.parametrize("ref", ["nobody", "nobody@1", "nobody@x", "sha256:" + "0" * 64, "01jd0000000000000000000000"])
def test_an_unknown_model_is_a_404(client: FlaskClient, ref: str) -> None:
    problem(client.get(f"/v1/models/{ref}"), 404, "unknown-model")
    problem(client.delete(f"/v1/models/{ref}"), 404, "unknown-model")
    problem(client.post(f"/v1/models/{ref}/check"), 404, "unknown-model")


@pytest.mark.parametrize("ref", ["%00", "a%0Ab", "a b", "..", "x" * 201])
def test_an_invalid_name_is_a_404(client: FlaskClient, ref: str) -> None:
    assert client.get(f"/v1/models/{ref}").status_code == 404


def test_a_deleted_model_is_gone(client: FlaskClient, model: str) -> None:
    deleted = client.delete(f"/v1/models/{model}")
    assert deleted.status_code == 204 and deleted.data == b""
    problem(client.get(f"/v1/models/{model}"), 404, "unknown-model")


def test_deleting_a_copy_keeps_the_shipped_model(client: FlaskClient, platform: Platform) -> None:
    content = client.get("/v1/models/idm/content").data
    for name, data in (("copy", content), ("own", MODEL)):
        sent = client.put(f"/v1/models/{name}?filename=idm.py", data=data, headers=BYTES)
        assert sent.status_code == 201 and sent.json["digest"] == digest(data)
        assert platform.store.size(key_of(digest(data))) == len(data)
        assert client.delete(f"/v1/models/{name}").status_code == 204
    assert client.get("/v1/models/idm/content").data == content
    with pytest.raises(NotFound):
        platform.store.size(key_of(digest(MODEL)))  # the object was deleted with its last reference


def test_a_model_in_use_cannot_be_deleted(client: FlaskClient, submit: Any) -> None:
    id = submit().json["id"]
    refused = problem(client.delete("/v1/models/mine"), 409, "in-use")
    assert refused["simulation"] == id


def test_models_are_listed_in_pages(client: FlaskClient) -> None:
    for number in range(5):
        client.put(f"/v1/models/m{number}?filename=a.py", data=MODEL + b"#" * number, headers=BYTES)
    names, path = [], "/v1/models?limit=2&baseline=false"
    while path:
        page = client.get(path)
        names += [item["name"] for item in page.json["items"]]
        assert len(page.json["items"]) <= 2
        path = page.headers["Link"].split(">")[0][1:] if "Link" in page.headers else ""
        assert bool(path) == (page.json["next"] is not None)
    assert names == ["m4", "m3", "m2", "m1", "m0"]
    assert [item["name"] for item in client.get("/v1/models?name=m3").json["items"]] == ["m3"]
    assert client.get("/v1/models?format=onnx&baseline=false").json == {"items": [], "next": None}


def test_a_list_of_both_kinds_of_model_has_each_once_whatever_the_page(client: FlaskClient) -> None:
    for number in range(2):
        client.put(f"/v1/models/m{number}?filename=a.py", data=MODEL + b"#" * number, headers=BYTES)
    expected = ["m1", "m0", *sorted(shipped())]
    for limit in range(1, len(expected) + 2):
        names, path = [], f"/v1/models?limit={limit}"
        while path:
            page = client.get(path)
            names += [item["name"] for item in page.json["items"]]
            path = page.headers["Link"].split(">")[0][1:] if "Link" in page.headers else ""
        assert names == expected


def archive_of(**files: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for name, text in files.items():
            packed.writestr(zipfile.ZipInfo(name.replace("_", ".")), text)  # without the time of the test
    return buffer.getvalue()


SCRIPT = "# /// script\n# requires-python = '>=3.11'\n# dependencies = ['b']\n# ///\n" + MODEL.decode()


@pytest.mark.parametrize(
    ("model", "declared"),
    [
        (MODEL, None),
        (archive_of(model_py=MODEL.decode()), None),
        (SCRIPT.encode(), ("model.py", ["b"], ">=3.11")),
        (archive_of(model_py=SCRIPT), ("model.py", ["b"], ">=3.11")),
        (archive_of(model_py=SCRIPT, requirements_txt="a>=1\n"), ("requirements.txt", ["a>=1"], None)),
        (
            archive_of(model_py=MODEL.decode(), pyproject_toml='[project]\ndependencies = ["c"]\n'),
            ("pyproject.toml", ["c"], None),
        ),
    ],
    ids=["file", "zip", "script", "script-in-zip", "requirements", "project"],
)
def test_a_model_shows_the_packages_that_it_declares(
    client: FlaskClient, model: bytes, declared: tuple[str, list[str], str | None] | None
) -> None:
    client.put("/v1/models/policy", data=model, headers=BYTES)
    shown = client.get("/v1/models/policy").get_json()["dependencies"]
    assert shown == (dict(zip(("file", "requirements", "python"), declared, strict=True)) if declared else None)


def test_a_declaration_that_is_not_accepted_leaves_no_model(client: FlaskClient) -> None:
    model = archive_of(model_py=MODEL.decode(), requirements_txt="-e .\n")
    refused = problem(client.put("/v1/models/policy", data=model, headers=BYTES), 422, "bad-requirements")
    assert "requirements.txt, line 1" in refused["detail"]
    assert client.get("/v1/models/policy").status_code == 404


def test_a_lock_is_shown_once_the_dependencies_are_resolved(client: FlaskClient, platform: Platform) -> None:
    client.put("/v1/models/policy", data=SCRIPT.encode(), headers=BYTES)
    assert "were not resolved yet" in problem(client.get("/v1/models/policy/lock"), 404, "no-lock")["detail"]
    digest = client.get("/v1/models/policy").get_json()["digest"]
    platform.database.write(lambda c: model_locks.add(c, digest, environments.target(), "b==1.0\n", 0.0))
    platform.database.write(lambda c: model_locks.add(c, digest, environments.target(), "b==2.0\n", 1.0))
    answer = client.get("/v1/models/policy/lock")
    assert answer.text == "b==1.0\n" and answer.mimetype == "text/plain", "the first lock stays"
    client.put("/v1/models/plain", data=MODEL, headers=BYTES)
    assert "declares no dependencies" in problem(client.get("/v1/models/plain/lock"), 404, "no-lock")["detail"]


def test_a_compressed_pickle_of_an_estimator_is_of_the_format_of_estimators(client: FlaskClient) -> None:
    pickled = b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00\x8c\x1asklearn.linear_model._base" + os.urandom(2000)
    answer = client.put("/v1/models/policy", data=gzip.compress(pickled), headers=BYTES)
    assert answer.get_json()["format"] == "scikit_learn", answer.data
