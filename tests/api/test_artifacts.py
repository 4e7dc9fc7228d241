"""Files to take away: artifacts, the archive, replays, logs; whole or in part, and harmless in a browser."""

import io
import zipfile
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from flask.testing import FlaskClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.downloads import attachment
from api.escaping import escaped
from core.domain.states import State
from core.services.platform import Platform
from core.services.simulations.finalization import Finalization
from core.services.simulations.results import Results
from tests.api.answers import problem
from tests.api.conftest import LeasingWorker, Submit


def test_artifacts_are_listed_by_pages(client: FlaskClient, finished: str) -> None:
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


def test_an_artifact_is_a_harmless_attachment(client: FlaskClient, finished: str) -> None:
    answer = client.get(f"/v1/simulations/{finished}/artifacts/3/deep/x.bin")
    assert answer.data == b"<script>" and answer.mimetype == "text/html"
    assert answer.headers["Content-Disposition"] == "attachment; filename=\"x.bin\"; filename*=UTF-8''x.bin"
    assert answer.headers["Content-Security-Policy"].startswith("sandbox")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_a_part_of_an_artifact(client: FlaskClient, finished: str) -> None:
    path = f"/v1/simulations/{finished}/artifacts/0/note.txt"
    part = client.get(path, headers={"Range": "bytes=2-4"})
    assert part.status_code == 206 and part.data == b"234"
    problem(client.get(path, headers={"Range": "bytes=10-"}), 416, "range-not-satisfiable")


@pytest.mark.parametrize("name", ["0/other", "1/note.txt", "-1/note.txt", "999999999/x", "0/..%2f..%2fx", "0/a%00b"])
def test_an_artifact_that_is_not_there(client: FlaskClient, finished: str, name: str) -> None:
    assert client.get(f"/v1/simulations/{finished}/artifacts/{name}").status_code == 404


# -- the archive


def test_an_archive_is_there_only_at_the_end(client: FlaskClient, submit: Submit) -> None:
    problem(client.get(f"/v1/simulations/{submit().json['id']}/archive"), 409, "not-finished")


def test_an_archive_tells_its_length_before_it_is_sent(client: FlaskClient, finished: str) -> None:
    path = f"/v1/simulations/{finished}/archive"
    head, whole = client.head(path), client.get(path)
    assert head.headers["Content-Length"] == str(len(whole.data)) and head.headers["ETag"] == whole.headers["ETag"]
    assert head.data == b"" and whole.mimetype == "application/zip"
    with zipfile.ZipFile(io.BytesIO(whole.data)) as archive:
        assert archive.testzip() is None
        assert archive.read("results.ndjson") == client.get(f"/v1/simulations/{finished}/results").data
        assert archive.read("artifacts/0/note.txt") == b"0123456789"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(data=st.data())
def test_every_range_of_an_archive_is_what_a_slice_would_be(
    client: FlaskClient, finished: str, data: st.DataObject
) -> None:
    path = f"/v1/simulations/{finished}/archive"
    whole = client.get(path)
    first = data.draw(st.integers(0, len(whole.data) - 1))
    last = data.draw(st.integers(first, len(whole.data) + 3))
    part = client.get(path, headers={"Range": f"bytes={first}-{last}", "If-Range": whole.headers["ETag"]})
    assert part.status_code == 206
    assert part.data == whole.data[first : last + 1]


@pytest.mark.parametrize("played", [0, 3])
def test_the_archive_of_a_simulation_that_ended_early_is_whole(
    client: FlaskClient, submit: Submit, driver: LeasingWorker, platform: Platform, played: int
) -> None:
    id = submit(tasks=288).json["id"]
    launch = driver.launch(id)
    lease = driver.lease(launch)
    if played:
        driver.report(launch, lease, 0, played)
    assert client.post(f"/v1/simulations/{id}/cancel").json["state"] == "cancelling"
    dispatch = driver.dispatch
    (busy,) = dispatch.snapshot().busy
    dispatch.give_up(busy, State.CANCELLED, "cancelled by its owner")
    platform.finalization.collect(id)
    told = client.get(f"/v1/simulations/{id}").json
    assert told["state"] == "cancelled" and told["tasks"] == {"total": 288, "done": played, "failed": 0}
    whole = client.get(f"/v1/simulations/{id}/archive")
    assert whole.headers["Content-Length"] == str(len(whole.data))
    with zipfile.ZipFile(io.BytesIO(whole.data)) as archive:
        assert archive.testzip() is None
        assert archive.read("results.ndjson").count(b"\n") == played
        assert msgspec.json.decode(archive.read("summary.json"))["tasks"] == told["tasks"]


def test_an_archive_is_whole_though_the_width_changed_while_it_was_measured(
    client: FlaskClient, submit: Submit, platform: Platform
) -> None:
    id = submit(workers=1).json["id"]

    class Widened(Results):
        """Measures an archive; the width changes at the end of the first time."""

        widened = False

        def describe_archive(self, *arguments: Any) -> dict[str, Any]:
            found = super().describe_archive(*arguments)
            if not self.widened:
                self.widened = True
                assert client.patch(f"/v1/simulations/{id}", json={"workers": 12}).status_code == 200
            return found

    read = Widened(platform.database, platform.store, platform.changes)
    finalization = Finalization(platform.database, platform.store, platform.notifier, read)
    LeasingWorker(replace(platform, finalization=finalization)).play(id)
    assert read.widened
    whole = client.get(f"/v1/simulations/{id}/archive")
    assert whole.headers["Content-Length"] == str(len(whole.data))
    with zipfile.ZipFile(io.BytesIO(whole.data)) as archive:
        assert archive.testzip() is None
        assert msgspec.json.decode(archive.read("simulation.json"))["spec"]["workers"] == 12
    refused = problem(client.patch(f"/v1/simulations/{id}", json={"workers": 3}), 409, "illegal-transition")
    assert "succeeded" in refused["detail"]
    again = client.get(f"/v1/simulations/{id}/archive")
    assert again.data == whole.data and again.headers["ETag"] == whole.headers["ETag"]


def test_a_name_that_is_not_plain_is_told_in_both_forms() -> None:
    told = attachment('na\u00efve "x".txt')
    assert told == "attachment; filename=\"na_ve _x_.txt\"; filename*=UTF-8''na%C3%AFve%20%22x%22.txt"


# -- replays


def test_a_replay_without_a_trace_is_not_there(client: FlaskClient, finished: str) -> None:
    problem(client.get(f"/v1/simulations/{finished}/tasks/0/replay"), 404, "unknown-artifact")


def test_a_replay_is_made_when_it_is_asked_for(
    client: FlaskClient, submit: Submit, driver: LeasingWorker, platform: Platform
) -> None:
    id = submit(tasks=3).json["id"]
    driver.play(id, artifacts={(0, "trace.f32.zz", "application/octet-stream"): b"trace"})
    path = f"/v1/simulations/{id}/tasks/0/replay"
    wait = client.get(path)
    assert wait.status_code == 202 and wait.headers["Retry-After"] == "1" and "Content-Type" not in wait.headers
    assert list(platform.notifier.jobs) == [("replay", f"{id}:0")]  # type: ignore[attr-defined]
    platform.replays.keep(id, 0, {"dt": 0.1, "frames": []})
    made = client.get(path)
    assert made.status_code == 200 and made.mimetype == "application/json"
    assert msgspec.json.decode(made.data)["result"]["task"] == 0
    assert client.get(path, headers={"If-None-Match": made.headers["ETag"]}).status_code == 304
    problem(client.get(path, headers={"Accept": "image/png"}), 406, "not-acceptable")
    refused = problem(client.get(f"{path}?format=svg"), 406, "not-acceptable")  # it has no scene
    assert "application/json" in refused["detail"]


def test_what_cannot_be_shown_is_said_and_not_promised_again(
    client: FlaskClient, submit: Submit, driver: LeasingWorker, platform: Platform
) -> None:
    id = submit(tasks=3).json["id"]
    driver.play(id, artifacts={(0, "trace.f32.zz", "application/octet-stream"): b"trace"})
    path = f"/v1/simulations/{id}/tasks/0/replay"
    assert client.get(path).status_code == 202
    platform.notifier.jobs.clear()  # type: ignore[attr-defined]
    platform.replays.refuse(id, 0, "this world has nothing to show")
    assert "nothing to show" in problem(client.get(path), 404, "no-replay")["detail"]
    assert not platform.notifier.jobs  # type: ignore[attr-defined]


# -- logs


def log(platform: Platform, driver: LeasingWorker, id: str, *pieces: bytes) -> None:
    launch = driver.launch(id)
    for piece in pieces:
        platform.leases.log(launch, "host-0", piece)
    driver.finish(launch)


def test_logs_are_shown_and_never_obeyed(
    client: FlaskClient, submit: Submit, driver: LeasingWorker, platform: Platform
) -> None:
    id = submit(tasks=3).json["id"]
    log(platform, driver, id, b"hello\n", b"\x1b[2Jred\xe2\x80\xaetxet\xff\n")
    answer = client.get(f"/v1/simulations/{id}/logs")
    assert answer.content_type == "text/plain; charset=utf-8"
    assert answer.data.decode() == "host-0 | hello\nhost-0 | \\x1b[2Jred\\u202etxet\\xff\n"
    assert b"\x1b[2J" in client.get(f"/v1/simulations/{id}/logs?raw=true").data
    assert client.get(f"/v1/simulations/{id}/logs?follow=true").data == answer.data
    assert b"\x1b[2J" in client.get(f"/v1/simulations/{id}/logs?raw=1").data
    problem(client.get(f"/v1/simulations/{id}/logs?raw=yes"), 422, "invalid")


@given(st.binary())
def test_nothing_a_terminal_obeys_is_left(data: bytes) -> None:
    text = b"".join(escaped([data])).decode()
    assert not [char for char in text if not char.isprintable() and char not in "\n\t" and ord(char) < 0xA0]
    assert not set(text) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")


def test_words_of_any_language_are_left_alone() -> None:
    words = "日本語 ÄÖÜ 😀\tok\n".encode()
    assert b"".join(escaped([words])) == words
