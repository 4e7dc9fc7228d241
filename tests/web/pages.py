"""Fixtures of tests of pages: the API and its page on loopback, on a platform without runners."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from flask import Flask
from werkzeug.serving import make_server

from core.services.platform import Platform
from core.settings import Settings
from server import composition as root
from tests.api.conftest import application as application  # pytest looks fixtures up by name in a conftest
from tests.api.conftest import client as client
from tests.api.conftest import finished as finished
from tests.api.conftest import model as model
from tests.api.conftest import platform as platform
from tests.api.conftest import submit as submit
from tests.api.conftest import worker as worker

TOKEN = "correct-horse-battery"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings with streams for the pages of a test, also for those that have been left."""
    return Settings(home=tmp_path / "home", streams=100, max_upload=1 << 20)


def serve(application: Flask) -> Iterator[str]:
    """Serve an application on loopback; yield its origin."""
    server = make_server("127.0.0.1", 0, application, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def origin(application: Flask) -> Iterator[str]:
    """The origin of a server without a token."""
    yield from serve(application)


@pytest.fixture
def guarded_origin(platform: Platform, settings: Settings) -> Iterator[str]:
    """The origin of a server that requires a token."""
    yield from serve(root.create_flask(platform, replace(settings, token=TOKEN), {"level": 3, "missing": []}))
