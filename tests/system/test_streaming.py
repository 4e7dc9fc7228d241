"""The request of the README, and streams of results and events: followed, disconnected, resumed; Prefer: wait."""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest

from tests.system.conftest import StartPlatform
from tests.system.platform_process import FINAL, MODELS, PlatformProcess
from tests.waiting import until

README_REQUEST = '{"runtimePath": "tensorflow", "model_data": "car_street"}'
SLOW_SIMULATION = {"runtime": "python", "dataset": "noop", "scenarios": {"range": [0, 300]}, "params": {"sleep_ms": 10}}
SHORT_SIMULATION = {"runtime": "python", "dataset": "noop", "scenarios": {"range": [0, 20]}}

#: Bytes that curl 7.88 sends for the request of the README, for machines without curl.
CURL_REQUEST = (
    "POST {path} HTTP/1.1\r\nHost: karrozzeria:5000\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n"
    "Content-Length: {length}\r\nContent-Type: {type}\r\n\r\n{body}"
)
SENDERS = ["bytes", *(["curl"] if shutil.which("curl") else [])]


def send_request(
    platform: PlatformProcess, sender: str, path: str, body: str, type: str | None
) -> tuple[int, dict[str, Any]]:
    """Send a request to karrozzeria:5000, resolved to this platform; return the status and the body."""
    if sender == "curl":
        # the command of the README; the options only resolve the host name
        command = ["curl", "-X", "POST", f"http://karrozzeria:5000{path}", "-d", body]
        options = ["--connect-to", f"karrozzeria:5000:127.0.0.1:{platform.port}", "-s", "-w", "\n%{http_code}", "-q"]
        headers = ["-H", f"Content-Type: {type}"] if type else []
        process = subprocess.run([*command, *options, *headers], capture_output=True, text=True, check=True, timeout=60)
        text, _, status = process.stdout.rpartition("\n")
        return int(status), json.loads(text)
    request = CURL_REQUEST.format(
        path=path, length=len(body), type=type or "application/x-www-form-urlencoded", body=body
    )
    with socket.create_connection(("127.0.0.1", platform.port), timeout=60.0) as connection:
        connection.sendall(request.encode())
        head, text = b"", b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(4096)
        head, _, text = head.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        while len(text) < length:
            text += connection.recv(4096)
    return int(head.split()[1]), json.loads(text)


@contextmanager
def open_stream(platform: PlatformProcess, path: str, **options: Any) -> Iterator[httpx.Response]:
    """Open a stream on its own connection, which is closed at the end."""
    with httpx.Client(base_url=platform.url, timeout=60.0, trust_env=False) as client:
        with client.stream(options.pop("method", "GET"), path, **options) as response:
            yield response


def received_results(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """Yield results as they arrive; blank lines are heartbeats."""
    for line in response.iter_lines():
        if line:
            yield json.loads(line)


def received_events(response: httpx.Response) -> Iterator[dict[str, str]]:
    """Yield server-sent events, without comments."""
    fields: dict[str, str] = {}
    for line in response.iter_lines():
        if not line:
            if "data" in fields:
                yield fields
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")


@pytest.mark.parametrize("sender", SENDERS)
@pytest.mark.parametrize("path", ["/1.0/simluation/tests", "/1.0/simulation/tests"])
@pytest.mark.parametrize("type", [None, "application/json"], ids=["form", "json"])
def test_the_request_of_the_readme_works_verbatim(
    platform: PlatformProcess, sender: str, path: str, type: str | None
) -> None:
    status, simulation = send_request(platform, sender, path, README_REQUEST, type)
    assert status == 201
    assert (simulation["runtime"]["name"], simulation["dataset"]["name"], simulation["tasks"]["total"]) == (
        "tensorflow",
        "car_street",
        288,
    )
    until(lambda: platform.get(simulation["id"])["tasks"]["done"] > 0, message="no task is done")
    platform.http.post(f"/v1/simulations/{simulation['id']}/cancel")
    platform.wait_for_end(simulation["id"])


@pytest.mark.parametrize("sender", SENDERS)
def test_json_with_characters_of_forms_is_not_changed(platform: PlatformProcess, sender: str) -> None:
    body = '{"runtimePath": "python", "model_data": "noop", "scenarios": {"tasks": [0]}, "labels": {"a": "1+1&b=%41"}}'
    status, simulation = send_request(platform, sender, "/1.0/simluation/tests", body, None)
    assert (status, simulation["labels"]) == (201, {"a": "1+1&b=%41"})
    platform.wait_for_end(simulation["id"])


@pytest.mark.parametrize("sender", SENDERS)
def test_the_legacy_host_serves_the_1_0_paths_only(platform: PlatformProcess, sender: str) -> None:
    status, problem = send_request(platform, sender, "/v1/simulations", README_REQUEST, "application/json")
    assert (status, problem["status"]) == (421, 421)


def test_a_submission_that_accepts_ndjson_gets_a_stream_of_its_results(platform: PlatformProcess) -> None:
    with open_stream(
        platform, "/v1/simulations", method="POST", json=SHORT_SIMULATION, headers={"Accept": "application/x-ndjson"}
    ) as response:
        assert response.status_code == 201
        assert response.headers["content-type"].startswith("application/x-ndjson")
        tasks = sorted(result["task"] for result in received_results(response))
    assert tasks == list(range(20))
    assert platform.get(response.headers["location"].rpartition("/")[2])["state"] == "succeeded"


def test_a_form_with_a_model_gets_a_stream(platform: PlatformProcess) -> None:
    with open_stream(
        platform,
        "/v1/simulations",
        method="POST",
        data={"dataset": "noop", "scenarios": '{"range": [0, 20]}'},
        files={"model": ("echo.py", (MODELS / "echo.py").read_bytes())},
        headers={"Accept": "text/event-stream"},
    ) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        tasks = [json.loads(event["data"])["task"] for event in received_events(response) if event["event"] == "result"]
    assert sorted(tasks) == list(range(20))


def test_results_are_streamed_while_the_simulation_runs(platform: PlatformProcess) -> None:
    with open_stream(
        platform, "/v1/simulations", method="POST", json=SLOW_SIMULATION, headers={"Accept": "application/x-ndjson"}
    ) as response:
        arrival_times = [time.monotonic() for _ in received_results(response)]
    assert len(arrival_times) == 300
    assert arrival_times[-1] - arrival_times[0] > 0.5  # two workers sleep 1.5 s each


def test_disconnecting_does_not_stop_the_simulation(platform: PlatformProcess) -> None:
    with open_stream(
        platform, "/v1/simulations", method="POST", json=SLOW_SIMULATION, headers={"Accept": "application/x-ndjson"}
    ) as response:
        id = response.headers["location"].rpartition("/")[2]
        next(received_results(response))
    assert platform.get(id)["state"] not in FINAL
    assert platform.wait_for_end(id)["tasks"]["done"] == 300


def test_a_resumed_stream_neither_loses_nor_duplicates_lines(platform: PlatformProcess) -> None:
    id = platform.submit(**SLOW_SIMULATION)["id"]
    received: list[dict[str, Any]] = []
    for remaining in (1, 40, 100, 1000):
        with open_stream(platform, f"/v1/simulations/{id}/results?follow=true&skip={len(received)}") as response:
            assert response.status_code == 200
            for result in received_results(response):
                received.append(result)
                remaining -= 1
                if remaining == 0:
                    break
    assert sorted(result["task"] for result in received) == list(range(300))
    with open_stream(platform, f"/v1/simulations/{id}/results?follow=true") as response:
        assert list(received_results(response)) == received  # the order of arrival is stored
    with open_stream(platform, f"/v1/simulations/{id}/results?follow=true&skip=300") as response:
        assert list(received_results(response)) == []


def test_a_followed_stream_of_a_cancelled_simulation_ends_as_incomplete(platform: PlatformProcess) -> None:
    id = platform.submit(**SLOW_SIMULATION)["id"]
    with open_stream(platform, f"/v1/simulations/{id}/results?follow=true") as response:
        lines = received_results(response)
        next(lines)
        platform.http.post(f"/v1/simulations/{id}/cancel")
        last = list(lines)[-1]
    assert set(last) == {"incomplete"}
    assert "cancel" in last["incomplete"]


def test_events_are_numbered_and_resumed_after_the_last(platform: PlatformProcess) -> None:
    id = platform.submit(**SLOW_SIMULATION)["id"]
    events: list[dict[str, str]] = []
    for remaining in (2, 3, 1000):
        headers = {"Last-Event-ID": events[-1]["id"]} if events else {}
        with open_stream(platform, f"/v1/simulations/{id}/events", headers=headers) as response:
            assert response.status_code == 200
            for event in received_events(response):
                events.append(event)
                remaining -= 1
                if remaining == 0:
                    break
    numbers = [int(event["id"]) for event in events]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    states = [json.loads(event["data"])["state"] for event in events if event["event"] == "state"]
    assert states == ["queued", "staging", "launching", "running", "succeeded"]
    assert events[-1]["event"] == "state"  # no event follows the end
    done = [json.loads(event["data"])["done"] for event in events if event["event"] == "progress"]
    assert done
    assert done == sorted(done)


def test_a_client_with_the_last_event_gets_a_204(platform: PlatformProcess) -> None:
    id = platform.run(**SHORT_SIMULATION)["id"]
    with open_stream(platform, f"/v1/simulations/{id}/events") as response:
        last = list(received_events(response))[-1]["id"]
    for options in ({"headers": {"Last-Event-ID": last}}, {"params": {"after": last}}):
        response = platform.http.get(f"/v1/simulations/{id}/events", **options)
        assert (response.status_code, response.content) == (204, b"")


def test_a_submission_with_prefer_wait_is_answered_at_the_end(platform: PlatformProcess) -> None:
    response = platform.post(headers={"Prefer": "wait=30"}, **SHORT_SIMULATION)
    assert response.status_code == 201
    assert response.headers["preference-applied"] == "wait=30"
    assert (response.json()["state"], response.json()["tasks"]["done"]) == ("succeeded", 20)


def test_a_short_wait_is_answered_with_the_present_state(platform: PlatformProcess) -> None:
    start = time.monotonic()
    response = platform.post(headers={"Prefer": "wait=1"}, **(SLOW_SIMULATION | {"scenarios": {"range": [0, 600]}}))
    assert 0.9 < time.monotonic() - start < 10.0
    assert response.json()["state"] not in FINAL
    platform.http.post(f"/v1/simulations/{response.json()['id']}/cancel")
    platform.wait_for_end(response.json()["id"])


def test_the_output_of_a_model_is_in_the_logs_with_escaped_control_characters(platform: PlatformProcess) -> None:
    id = platform.run(model=MODELS / "prints_escapes.py", dataset="noop", scenarios={"range": [0, 2]})["id"]
    escaped, raw = (platform.http.get(f"/v1/simulations/{id}/logs{query}") for query in ("", "?raw=1"))
    assert b"hello from a model" in raw.content
    assert b"\x1b[31m" in raw.content
    assert b"hello from a model" in escaped.content
    assert b"\x1b" not in escaped.content


def test_a_follower_of_a_killed_api_process_resumes_without_loss(start_platform: StartPlatform) -> None:
    platform = start_platform()
    id = platform.submit(**(SLOW_SIMULATION | {"scenarios": {"range": [0, 600]}}))["id"]
    received: list[int] = []
    cut = 0

    def followed() -> bool:
        """Resume after the last received result; return whether all results have arrived."""
        nonlocal cut
        with (
            suppress(httpx.TransportError),
            open_stream(platform, f"/v1/simulations/{id}/results?follow=true&skip={len(received)}") as response,
        ):
            for result in received_results(response) if response.status_code == 200 else ():
                received.append(result["task"])
                if len(received) > 100 and not cut:
                    cut = 1
                    for pid in platform.pids("api"):
                        platform.kill_process(pid)
        return len(received) >= 600

    until(followed, message=lambda: f"only {len(received)} results arrived")
    assert cut
    assert sorted(received) == list(range(600))
