"""Headers of reports: packed by runners, unpacked by the runner API; a body without a valid header is refused."""

import io
import json
import sqlite3
import struct
from contextlib import closing
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from api import runner_api
from core.domain.scheduling.ranges import Lease
from core.services.platform import Platform
from core.services.scheduling.leases import CachedLaunch
from core.settings import Settings
from datasets.objectstore import filesystem
from runtimes.harness.runner.runner_api_messages import ReportHeader, pack_report, unpack_report
from tests.api.answers import line
from tests.api.conftest import LeasingWorker, Submit
from tests.dispatching import last_submitted
from tests.executor_configs import LOCAL
from tests.reports import report_of

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=1000)
HEADERS = st.builds(
    ReportHeader,
    worker=NAMES,
    stage=NAMES,
    start=st.integers(0, 2**40),
    fencing_token=NAMES,
    since=st.integers(0, 2**40),
    to=st.integers(0, 2**40),
    lines=st.just(0),
    artifacts=st.lists(st.tuples(st.integers(-1, 9), NAMES, NAMES, st.integers(0, 2**40))),
    sketch=st.dictionaries(st.text(), st.tuples(FLOATS, FLOATS, FLOATS, FLOATS, FLOATS)),
    rate=st.none() | st.floats(0, allow_nan=False, allow_infinity=False),
    next=st.booleans(),
)


@given(HEADERS, st.binary(), st.binary())
def test_a_report_is_unpacked_as_it_was_packed(header: ReportHeader, lines: bytes, blobs: bytes) -> None:
    header = msgspec.structs.replace(header, lines=len(lines))
    assert unpack_report(pack_report(header, lines, blobs)) == (header, lines, blobs)


class Reporter:
    """A runner with a lease of a real simulation, which sends any body to the runner API."""

    def __init__(self, worker: LeasingWorker, launch: CachedLaunch, token: str) -> None:
        self.lease: Lease = worker.lease(launch)
        self._application = runner_api.create(worker.platform.scheduling.leases)
        self.headers: dict[str, str] = {}
        self._path, self._token = f"/v1/launches/{launch.id}/report", token

    def body(self, **changes: Any) -> bytes:
        """Return the body of a report of the whole lease, with changed members of its header (``...``: removed)."""
        since, to = self.lease.cursor, self.lease.stop
        lines = b"".join(line(task) for task in range(since, to))
        header = json.loads(msgspec.json.encode(report_of(self.lease, since, to, lines).header)) | changes
        encoded = json.dumps({name: value for name, value in header.items() if value is not ...}).encode()
        return struct.pack("<I", len(encoded)) + encoded + lines

    def send(self, body: bytes) -> tuple[int, Any]:
        status: list[str] = []

        def start(line: str, headers: list[tuple[str, str]]) -> None:
            status.append(line)
            self.headers = dict(headers)

        environ = {"PATH_INFO": self._path, "REQUEST_METHOD": "POST", "HTTP_AUTHORIZATION": f"Bearer {self._token}"}
        request = {"CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body)}
        response = b"".join(self._application(environ | request, start))
        return int(status[0].split()[0]), json.loads(response)


@pytest.fixture
def reporter(worker: LeasingWorker, submit: Submit) -> Reporter:
    submit()
    dispatch = worker.dispatch
    busy = last_submitted(dispatch)
    assert dispatch.admit(busy, LOCAL.name)
    busy = last_submitted(dispatch)
    launch = dispatch.launch(busy)
    assert launch is not None
    return Reporter(worker, worker.platform.scheduling.leases.authenticate(launch.id, launch.token), launch.token)


def test_a_member_that_the_server_does_not_know_is_ignored(reporter: Reporter) -> None:
    status, response = reporter.send(reporter.body(unknown="member"))
    assert (status, response["cursor"]) == (200, reporter.lease.stop)


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"stage": ...}, "Object missing required field `stage`"),
        ({"from": "0"}, "Expected `int`, got `str` - at `$.from`"),
        ({"artifacts": [[0, "x"]]}, "Expected `array` of length 4 - at `$.artifacts[0]`"),
    ],
)
def test_a_header_that_is_wrong_is_refused_with_its_position(
    reporter: Reporter, changes: dict[str, Any], detail: str
) -> None:
    assert reporter.send(reporter.body(**changes)) == (400, {"status": 400, "detail": detail})
    assert reporter.send(reporter.body())[0] == 200, "the same results with a correct header still count"


def test_a_body_without_a_whole_header_is_refused(reporter: Reporter) -> None:
    assert reporter.send(b"abc") == (400, {"status": 400, "detail": "The report has no header."})
    status, response = reporter.send(reporter.body()[:40])
    assert status == 400 and "truncated" in response["detail"]


def test_a_body_with_fewer_lines_than_announced_is_refused(reporter: Reporter) -> None:
    body = reporter.body()
    status, response = reporter.send(body[: body.rindex(b'{"task"')])
    assert (
        status == 400 and f"lines for the tasks [{reporter.lease.cursor}, {reporter.lease.stop})" in response["detail"]
    )


def test_a_database_that_is_locked_is_an_outage_to_runners(
    reporter: Reporter, platform: Platform, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    platform.database.write(lambda c: c.execute(text("PRAGMA busy_timeout=10")) and None)  # milliseconds
    with closing(sqlite3.connect(settings.home / "windtunnel.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        status, response = reporter.send(reporter.body())
        assert status == 503 and "try again" in response["detail"]
        assert reporter.headers["Retry-After"] == "2"
        other.execute("COMMIT")
    assert reporter.send(reporter.body())[0] == 200


def test_a_disk_that_is_full_is_named_to_runners(
    reporter: Reporter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(filesystem, "RESERVE", 1 << 60)
        patch.setattr(filesystem, "RESERVE_FRACTION", 1)
        status, response = reporter.send(reporter.body())
    assert status == 507 and "full" in response["detail"] and "Traceback" not in caplog.text
    assert reporter.send(reporter.body())[0] == 200
