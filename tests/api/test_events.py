"""Streams of events: live, resumed by number, ended with the simulation."""

import json
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from core.services.platform import Platform
from core.settings import Settings
from server import composition as root
from tests.api.answers import problem
from tests.api.conftest import LeasingWorker, Submit


def events_of(data: bytes) -> list[tuple[int, str, dict[str, Any]]]:
    events = []
    for block in data.decode().split("\n\n"):
        fields = dict(row.split(": ", 1) for row in block.split("\n") if row and not row.startswith(":"))
        if "data" in fields:
            events.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
    return events


def test_events_are_streamed_until_the_last(client: FlaskClient, finished: str) -> None:
    response = client.get(f"/v1/simulations/{finished}/events")
    assert response.status_code == 200 and response.content_type == "text/event-stream"
    assert response.data.startswith(b"retry: 2000\n\n")
    events = events_of(response.data)
    assert [number for number, _, _ in events] == list(range(1, len(events) + 1))
    states = [body["state"] for _, kind, body in events if kind == "state"]
    assert states == ["queued", "staging", "launching", "running", "succeeded"]
    assert all(body["at"].endswith(("Z", "+00:00")) for _, _, body in events)


def test_a_reconnecting_browser_continues_after_its_last_event(client: FlaskClient, finished: str) -> None:
    path = f"/v1/simulations/{finished}/events"
    events = events_of(client.get(path).data)
    assert events_of(client.get(path, headers={"Last-Event-ID": "2"}).data) == events[2:]
    assert events_of(client.get(f"{path}?after=2").data) == events[2:]
    assert events_of(client.get(f"{path}?after=1", headers={"Last-Event-ID": "3"}).data) == events[3:]


def test_a_browser_with_all_events_gets_a_204(client: FlaskClient, finished: str) -> None:
    path = f"/v1/simulations/{finished}/events"
    last = events_of(client.get(path).data)[-1][0]
    for number in (last, last + 5):
        response = client.get(path, headers={"Last-Event-ID": str(number)})
        assert response.status_code == 204 and response.data == b""


def test_a_browser_with_all_events_of_a_running_simulation_gets_a_stream(client: FlaskClient, submit: Submit) -> None:
    id = submit().json["id"]
    response = client.get(f"/v1/simulations/{id}/events?after=1", buffered=False)
    assert response.status_code == 200
    response.close()


@pytest.mark.parametrize("number", ["x", "-1", "1.5", "٣", "9" * 30])
def test_an_invalid_event_number_is_refused(client: FlaskClient, finished: str, number: str) -> None:
    path = f"/v1/simulations/{finished}/events"
    problem(client.get(f"{path}?after={number}"), 422, "invalid")
    if number.isascii():
        problem(client.get(path, headers={"Last-Event-ID": number}), 422, "invalid")


def test_heartbeats_keep_the_connection_open(platform: Platform, settings: Settings, submit: Submit) -> None:
    from dataclasses import replace

    application: Flask = root.create_flask(platform, settings)
    application.extensions["windtunnel"] = replace(application.extensions["windtunnel"], heartbeat=0.05)
    client, id = application.test_client(), submit().json["id"]
    for path, beat in (
        ("events?after=1", b": heartbeat\n\n"),
        ("results?follow=true", b"\n"),
        ("logs?follow=true", b"\n"),
    ):
        response = client.get(f"/v1/simulations/{id}/{path}", buffered=False)
        pieces = iter(response.response)
        assert beat in [next(pieces), next(pieces)]
        response.close()
    assert platform.submissions.changes.waiting == 0


def test_head_does_not_open_a_stream(
    client: FlaskClient, submit: Submit, worker: LeasingWorker, platform: Platform
) -> None:
    response = client.head(f"/v1/simulations/{submit().json['id']}/events")
    assert response.status_code == 200 and response.data == b"" and platform.submissions.changes.waiting == 0


def test_events_are_listed_in_pages(client: FlaskClient, finished: str) -> None:
    path = f"/v1/simulations/{finished}/history"
    streamed = events_of(client.get(f"/v1/simulations/{finished}/events").data)
    listed, after = [], 0
    while after is not None:
        page = client.get(path, query_string={"limit": 2, "after": after}).json
        listed += page["items"]
        after = page["next"]
    assert [(event["number"], event["type"]) for event in listed] == [(number, kind) for number, kind, _ in streamed]
    states = client.get(f"{path}?type=state").json["items"]
    assert [event["state"] for event in states] == ["queued", "staging", "launching", "running", "succeeded"]


def test_events_of_a_running_simulation_are_listed_at_once(client: FlaskClient, submit: Submit) -> None:
    id = submit().json["id"]
    page = client.get(f"/v1/simulations/{id}/history").json
    assert [event["state"] for event in page["items"]] == ["queued"] and page["next"] is None


def test_events_of_an_unknown_type_are_refused(client: FlaskClient, finished: str) -> None:
    problem(client.get(f"/v1/simulations/{finished}/history?type=weather"), 422, "invalid")
    problem(client.get("/v1/simulations/01m88xfcfprt21a809kf2g6aj9/history"), 404, "unknown-simulation")
