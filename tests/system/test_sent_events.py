"""Events of a real platform: made from the command line, sent by its jobs, and not lost when those are killed."""

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from tests.system.conftest import StartPlatform
from tests.system.platform_process import PlatformProcess
from tests.waiting import until
from tests.web_files import WebFiles, status, web_files

QUICK = {"runtime": "python", "dataset": "noop", "scenarios": {"range": [0, 3]}}


@pytest.fixture
def receiver() -> Iterator[WebFiles]:
    with web_files() as running:
        running.answers["/hook"] = status(204)
        yield running


def command(platform: PlatformProcess, *arguments: str) -> str:
    """Run a command of the client, and return what it prints."""
    program = [str(Path(sys.executable).with_name("windtunnel")), "webhooks", *arguments]
    environ = os.environ | {"WINDTUNNEL_URL": platform.url}
    return subprocess.run(program, env=environ, check=True, capture_output=True, text=True).stdout.strip()


def test_events_are_sent_signed_and_survive_a_kill_of_the_jobs(
    start_platform: StartPlatform, receiver: WebFiles
) -> None:
    platform = start_platform(workers=1, webhook_networks="127.0.0.0/8")
    created = command(platform, "create", f"{receiver.origin}/hook", "--type", "simulation.ended", "-o", "json")
    webhook = json.loads(created)
    webhook = webhook[0] if isinstance(webhook, list) else webhook
    id, secret = webhook["id"], webhook["secret"]
    command(platform, "ping", id)
    until(lambda: receiver.bodies, message="the test is not sent")
    assert Webhook(secret).verify(receiver.bodies[0], receiver.headers[0])["type"] == "org.windtunnel.webhook.ping"

    holding, arrived = threading.Event(), threading.Event()

    def hold(request: BaseHTTPRequestHandler) -> None:
        arrived.set()
        holding.wait(60)
        status(204)(request)

    receiver.answers["/hook"] = hold
    simulation = platform.submit(**QUICK)["id"]
    platform.wait_for_end(simulation)
    assert arrived.wait(60)
    platform.kill("jobs", random.Random(1))  # between request and record
    receiver.answers["/hook"] = status(204)
    until(lambda: len(receiver.bodies) >= 3, message="it is not sent again")
    holding.set()
    events = [Webhook(secret).verify(*sent) for sent in zip(receiver.bodies, receiver.headers, strict=True)][1:]
    assert {event["subject"] for event in events} == {f"simulations/{simulation}"}
    assert len({event["id"] for event in events}) == 1, "a receiver can tell that it is the same"
    until(lambda: "delivered" in command(platform, "deliveries", id, "-n", "1"), message="it is not recorded")
    assert command(platform, "remove", id) == id
    assert id not in command(platform)
