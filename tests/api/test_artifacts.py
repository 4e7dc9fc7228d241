"""Downloads of a simulation: artifacts, archive, replays and logs, with byte ranges, safe in browsers and terminals."""

import io
import json
import zipfile
import zlib
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from flask.testing import FlaskClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from api.downloads import attachment, inert
from api.escaping import escaped
from core.domain.access.scopes import LOCAL_CALLER, PLATFORM, Caller
from core.domain.scheduling.states import State
from core.services.platform import Platform
from core.services.simulations.archive_extras import ArchiveDescription
from core.services.simulations.finalization import Finalization
from core.services.simulations.results import Results
from core.services.uploads.models import key_of
from core.store import simulations, tables
from runtimes import catalogue, environments
from tests.api.answers import MODEL, problem
from tests.api.conftest import LeasingWorker, Submit
from tests.cached import ENVIRONMENTS
from tests.dispatching import last_submitted
from workers.background_jobs import Jobs
from workers.replay_job import EvaluatorEnded


def test_artifacts_are_listed_in_pages(client: FlaskClient, finished: str) -> None:
    path = f"/v1/simulations/{finished}/artifacts"
    items = client.get(path).json["items"]
    assert items == [
        {"task": 0, "name": "note.txt", "media_type": "text/plain", "size": 10},
        {"task": 3, "name": "deep/x.bin", "media_type": "text/html", "size": 8},
    ]
    first = client.get(f"{path}?limit=1")
    assert first.json == {"items": items[:1], "next": "0/note.txt"}
    second = client.get(first.headers["Link"].split(">")[0][1:])
    assert second.json == {"items": items[1:], "next": None}
    problem(client.get(f"{path}?after=x"), 422, "invalid")


def test_an_artifact_is_an_attachment_that_runs_no_scripts(client: FlaskClient, finished: str) -> None:
    response = client.get(f"/v1/simulations/{finished}/artifacts/3/deep/x.bin")
    assert response.data == b"<script>" and response.mimetype == "application/octet-stream"
    assert response.headers["Content-Disposition"] == "attachment; filename=\"x.bin\"; filename*=UTF-8''x.bin"
    assert response.headers["Content-Security-Policy"].startswith("sandbox")
    assert response.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("media_type", "sent"),
    [
        ("text/javascript", "application/octet-stream"),
        ("application/javascript;charset=utf-8", "application/octet-stream"),
        ("text/css", "application/octet-stream"),
        ("image/svg+xml", "application/octet-stream"),
        ("TEXT/HTML", "application/octet-stream"),
        ("", "application/octet-stream"),
        ("text/plain; charset=utf-8", "text/plain"),
        ("image/png", "image/png"),
    ],
)
def test_an_artifact_is_no_script_and_no_style_sheet_of_the_page(media_type: str, sent: str) -> None:
    assert inert(media_type) == sent


def test_a_range_of_an_artifact_is_served(client: FlaskClient, finished: str) -> None:
    path = f"/v1/simulations/{finished}/artifacts/0/note.txt"
    part = client.get(path, headers={"Range": "bytes=2-4"})
    assert part.status_code == 206 and part.data == b"234"
    problem(client.get(path, headers={"Range": "bytes=10-"}), 416, "range-not-satisfiable")


@pytest.mark.parametrize("name", ["0/other", "1/note.txt", "-1/note.txt", "999999999/x", "0/..%2f..%2fx", "0/a%00b"])
def test_an_unknown_artifact_is_a_404(client: FlaskClient, finished: str, name: str) -> None:
    assert client.get(f"/v1/simulations/{finished}/artifacts/{name}").status_code == 404


# -- the archive


def test_an_archive_exists_only_after_the_end(client: FlaskClient, submit: Submit) -> None:
    problem(client.get(f"/v1/simulations/{submit().json['id']}/archive"), 409, "not-finished")


def test_the_length_of_an_archive_is_known_before_it_is_sent(client: FlaskClient, finished: str) -> None:
    path = f"/v1/simulations/{finished}/archive"
    head, response = client.head(path), client.get(path)
    assert (
        head.headers["Content-Length"] == str(len(response.data)) and head.headers["ETag"] == response.headers["ETag"]
    )
    assert head.data == b"" and response.mimetype == "application/zip"
    with zipfile.ZipFile(io.BytesIO(response.data)) as archive:
        assert archive.testzip() is None
        assert archive.read("results.ndjson") == client.get(f"/v1/simulations/{finished}/results").data
        assert archive.read("artifacts/0/note.txt") == b"0123456789"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(data=st.data())
def test_every_range_of_an_archive_equals_a_slice(client: FlaskClient, finished: str, data: st.DataObject) -> None:
    path = f"/v1/simulations/{finished}/archive"
    response = client.get(path)
    first = data.draw(st.integers(0, len(response.data) - 1))
    last = data.draw(st.integers(first, len(response.data) + 3))
    part = client.get(path, headers={"Range": f"bytes={first}-{last}", "If-Range": response.headers["ETag"]})
    assert part.status_code == 206
    assert part.data == response.data[first : last + 1]


@pytest.mark.parametrize("reported", [0, 3])
def test_the_archive_of_a_simulation_that_ended_early_is_complete(
    client: FlaskClient, submit: Submit, worker: LeasingWorker, platform: Platform, reported: int
) -> None:
    id = submit(tasks=288).json["id"]
    launch = worker.launch(id)
    lease = worker.lease(launch)
    if reported:
        worker.report(launch, lease, 0, reported)
    assert client.post(f"/v1/simulations/{id}/cancel").json["state"] == "cancelling"
    dispatch = worker.dispatch
    busy = last_submitted(dispatch)
    dispatch.give_up(busy, State.CANCELLED, "cancelled by its owner")
    platform.jobs.finalization.collect(id)
    simulation = client.get(f"/v1/simulations/{id}").json
    assert simulation["state"] == "cancelled" and simulation["tasks"] == {"total": 288, "done": reported, "failed": 0}
    response = client.get(f"/v1/simulations/{id}/archive")
    assert response.headers["Content-Length"] == str(len(response.data))
    with zipfile.ZipFile(io.BytesIO(response.data)) as archive:
        assert archive.testzip() is None
        assert archive.read("results.ndjson").count(b"\n") == reported
        assert msgspec.json.decode(archive.read("summary.json"))["tasks"] == simulation["tasks"]


def open_archive(client: FlaskClient, id: str, query: str = "") -> zipfile.ZipFile:
    """Return an archive, after a check that its length was announced correctly and its CRCs are right."""
    response = client.get(f"/v1/simulations/{id}/archive{query}")
    assert response.headers["Content-Length"] == str(len(response.data))
    archive = zipfile.ZipFile(io.BytesIO(response.data))
    assert archive.testzip() is None
    return archive


def test_an_archive_explains_itself_and_has_the_model_and_the_logs(
    client: FlaskClient, submit: Submit, worker: LeasingWorker
) -> None:
    id = submit().json["id"]
    launch = worker.launch(id)
    worker.platform.scheduling.leases.log(launch, "model 0", b"first\nsecond\n")
    worker.finish_unseen(launch)
    archive = open_archive(client, id)
    assert archive.namelist()[:4] == ["README.txt", "simulation.json", "summary.json", "results.ndjson"]
    assert archive.namelist()[-2:] == ["logs.txt", "model/model.py"]
    assert archive.read("model/model.py") == MODEL
    assert archive.read("logs.txt") == b"model 0 | first\nmodel 0 | second\n"
    readme = archive.read("README.txt").decode()
    for name in ("simulation.json", "summary.json", "results.ndjson", "logs.txt", "model/FILE", "trace.f32.zz"):
        assert name in readme
    worker.platform.scheduling.leases.log(launch, "model 0", b"late\n")  # after the end
    assert open_archive(client, id).read("logs.txt") == b"model 0 | first\nmodel 0 | second\n"


def test_an_archive_has_the_model_unless_asked_not_to_or_its_bytes_are_lost(
    client: FlaskClient, finished: str, platform: Platform
) -> None:
    names = open_archive(client, finished).namelist()
    assert open_archive(client, finished, "?model=false").namelist() == names[:-1]
    problem(client.get(f"/v1/simulations/{finished}/archive?model=no"), 422, "invalid")
    digest = client.get(f"/v1/simulations/{finished}").json["model"]["digest"]
    platform.files.models.delete(LOCAL_CALLER, digest)  # its bytes stay as long as a simulation refers to them
    assert open_archive(client, finished).namelist() == names
    platform.store.delete(key_of(digest))
    assert open_archive(client, finished).namelist() == names[:-1]


def test_the_archive_of_a_simulation_that_an_earlier_version_finalized_has_a_readme_too(
    client: FlaskClient, finished: str, platform: Platform
) -> None:
    with platform.database.read() as c:
        summary = json.loads(simulations.find(c, PLATFORM, finished).summary)
    del summary["archive"]["extras"]
    platform.database.write(lambda c: c.execute(update(tables.simulations).values(summary=json.dumps(summary))))
    names = open_archive(client, finished).namelist()
    assert names[0] == "README.txt" and not any(name.startswith("model/") for name in names)


def test_a_repetition_on_a_server_without_the_model_says_which_one_to_upload_first(
    client: FlaskClient, finished: str, platform: Platform
) -> None:
    archive = open_archive(client, finished)
    document, model = json.loads(archive.read("simulation.json")), archive.read("model/model.py")
    digest = document["provenance"]["model"]["digest"]
    platform.files.models.delete(LOCAL_CALLER, digest)
    refused = problem(client.post("/v1/simulations", json=document), 422, "unknown-model")
    assert f"no model with the digest {digest}. Upload it first" in refused["detail"] and refused["digest"] == digest
    uploaded = client.post("/v1/models", data={"file": (io.BytesIO(model), "model.py")})
    assert (uploaded.status_code, uploaded.json["digest"]) == (201, digest)
    assert client.post("/v1/simulations", json=document).status_code == 201


def test_an_archive_is_complete_although_the_number_of_workers_changed_meanwhile(
    client: FlaskClient, submit: Submit, platform: Platform
) -> None:
    id = submit(workers=1).json["id"]

    class ResizingResults(Results):
        """Results that change the number of workers after the first measurement of an archive."""

        resized = False

        def describe_archive(self, caller: Caller, row: simulations.SimulationRow, *rest: Any) -> ArchiveDescription:
            measurement = super().describe_archive(caller, row, *rest)
            if row.id == id and not self.resized:
                self.resized = True
                assert client.patch(f"/v1/simulations/{id}", json={"workers": 12}).status_code == 200
            return measurement

    resizing_results = ResizingResults(platform.database, platform.store, platform.submissions.changes)
    outputs = platform.jobs.finalization.outputs
    finalization = Finalization(platform.database, platform.store, platform.notifier, resizing_results, outputs)
    LeasingWorker(replace(platform, jobs=replace(platform.jobs, finalization=finalization))).run_to_end(id)
    assert resizing_results.resized
    response = client.get(f"/v1/simulations/{id}/archive")
    assert response.headers["Content-Length"] == str(len(response.data))
    with zipfile.ZipFile(io.BytesIO(response.data)) as archive:
        assert archive.testzip() is None
        assert msgspec.json.decode(archive.read("simulation.json"))["spec"]["workers"] == 12
    refused = problem(client.patch(f"/v1/simulations/{id}", json={"workers": 3}), 409, "illegal-transition")
    assert "succeeded" in refused["detail"]
    second_response = client.get(f"/v1/simulations/{id}/archive")
    assert second_response.data == response.data and second_response.headers["ETag"] == response.headers["ETag"]


def test_a_file_name_that_is_not_ascii_is_sent_in_both_forms() -> None:
    disposition = attachment('na\u00efve "x".txt')
    assert disposition == "attachment; filename=\"na_ve _x_.txt\"; filename*=UTF-8''na%C3%AFve%20%22x%22.txt"


# -- replays


def test_a_task_without_a_trace_has_its_result_as_a_picture(client: FlaskClient, finished: str) -> None:
    path = f"/v1/simulations/{finished}/tasks/6/replay"
    replay = client.get(path)
    document = msgspec.json.decode(replay.data)
    assert (document["scene"]["kind"], document["frames"], document["result"]["task"]) == ("result", [], 6)
    picture = client.get(f"{path}?format=svg")
    assert picture.mimetype == "image/svg+xml"
    assert "the model raised" in "".join(ElementTree.fromstring(picture.data).itertext())
    assert client.get(path, headers={"If-None-Match": replay.headers["ETag"]}).status_code == 304


def test_a_task_without_a_result_has_no_replay(client: FlaskClient, submit: Submit) -> None:
    problem(client.get(f"/v1/simulations/{submit().json['id']}/tasks/0/replay"), 404, "unknown-artifact")


def test_a_replay_is_computed_on_request(
    client: FlaskClient, submit: Submit, worker: LeasingWorker, platform: Platform
) -> None:
    id = submit(tasks=3).json["id"]
    worker.run_to_end(id, artifacts={(0, "trace.f32.zz", "application/octet-stream"): b"trace"})
    path = f"/v1/simulations/{id}/tasks/0/replay"
    wait = client.get(path)
    assert wait.status_code == 202 and wait.headers["Retry-After"] == "1" and "Content-Type" not in wait.headers
    assert [job for job in platform.notifier.jobs if id in job[1]] == [("replay", f"{id}:0")]  # type: ignore[attr-defined]
    platform.analysis.replays.keep(LOCAL_CALLER, id, 0, {"dt": 0.1, "frames": []})
    replay = client.get(path)
    assert replay.status_code == 200 and replay.mimetype == "application/json"
    document = msgspec.json.decode(replay.data)
    assert document["result"]["task"] == 0 and {"name", "title", "unit"} <= document["metrics"][0].keys()
    assert client.get(path, headers={"If-None-Match": replay.headers["ETag"]}).status_code == 304
    problem(client.get(path, headers={"Accept": "image/png"}), 406, "not-acceptable")
    refused = problem(client.get(f"{path}?format=svg"), 406, "not-acceptable")  # the replay has no scene
    assert "application/json" in refused["detail"]


def test_a_replay_that_fails_is_reported_and_not_computed_again(
    client: FlaskClient, submit: Submit, worker: LeasingWorker, platform: Platform
) -> None:
    id = submit(tasks=3).json["id"]
    worker.run_to_end(id, artifacts={(0, "trace.f32.zz", "application/octet-stream"): b"trace"})
    path = f"/v1/simulations/{id}/tasks/0/replay"
    assert client.get(path).status_code == 202
    platform.notifier.jobs.clear()  # type: ignore[attr-defined]
    platform.analysis.replays.refuse(id, 0, "simulator: RuntimeError: lane -1 in /home/someone/net.xml")
    detail = problem(client.get(path), 404, "no-replay")["detail"]
    assert "the simulator failed" in detail.lower() and "RuntimeError" not in detail and "net.xml" not in detail
    assert [job for job in platform.notifier.jobs if id in job[1]] == []  # type: ignore[attr-defined]


def test_a_replay_whose_evaluator_ends_three_times_is_refused_and_not_computed_again(
    client: FlaskClient, submit: Submit, worker: LeasingWorker, platform: Platform
) -> None:
    environments.prepare(catalogue.simulators()["noop"], ENVIRONMENTS, lambda message, fraction: None)
    id = submit(tasks=3, params={"crash_at": 0}).json["id"]
    trace = zlib.compress(bytes(16))
    worker.run_to_end(id, artifacts={(0, "trace.f32.zz", "application/octet-stream"): trace})
    make = Jobs(
        platform.jobs,
        platform.files,
        platform.catalogue,
        platform.pipelines,
        platform.upkeep,
        environments_folder=ENVIRONMENTS,
        sandbox=None,
    ).table["replay"]
    path = f"/v1/simulations/{id}/tasks/0/replay"
    for _ in range(2):
        with pytest.raises(EvaluatorEnded):
            make(f"{id}:0")
        assert client.get(path).status_code == 202
    make(f"{id}:0")
    problem(client.get(path), 404, "no-replay")

    other = submit(tasks=3).json["id"]
    worker.run_to_end(other, artifacts={(0, "trace.f32.zz", "application/octet-stream"): trace})
    make(f"{other}:0")
    assert client.get(path.replace(id, other)).status_code == 200


# -- logs


def log(platform: Platform, worker: LeasingWorker, id: str, *pieces: bytes) -> None:
    launch = worker.launch(id)
    for piece in pieces:
        platform.scheduling.leases.log(launch, "host-0", piece)
    worker.finish(launch)


def test_control_characters_in_logs_are_escaped(
    client: FlaskClient, submit: Submit, worker: LeasingWorker, platform: Platform
) -> None:
    id = submit(tasks=3).json["id"]
    log(platform, worker, id, b"hello\n", b"\x1b[2Jred\xe2\x80\xaetxet\xff\n")
    response = client.get(f"/v1/simulations/{id}/logs")
    assert response.content_type == "text/plain; charset=utf-8"
    assert response.data.decode() == "host-0 | hello\nhost-0 | \\x1b[2Jred\\u202etxet\\xff\n"
    assert b"\x1b[2J" in client.get(f"/v1/simulations/{id}/logs?raw=true").data
    assert client.get(f"/v1/simulations/{id}/logs?follow=true").data == response.data
    assert b"\x1b[2J" in client.get(f"/v1/simulations/{id}/logs?raw=1").data
    problem(client.get(f"/v1/simulations/{id}/logs?raw=yes"), 422, "invalid")


@given(st.binary())
def test_escaped_logs_have_no_terminal_control_characters(data: bytes) -> None:
    text = b"".join(escaped([data])).decode()
    assert not [char for char in text if not char.isprintable() and char not in "\n\t" and ord(char) < 0xA0]
    assert not set(text) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")


def test_text_of_any_language_is_not_escaped() -> None:
    text = "日本語 ÄÖÜ 😀\tok\n".encode()
    assert b"".join(escaped([text])) == text
