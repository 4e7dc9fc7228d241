"""Full disk below the API: each request that writes is refused as such, and succeeds when there is space again."""

import io
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from core.settings import Settings
from tests.api.answers import MODEL, problem
from tests.api.conftest import Submit
from tests.api.test_size_limits import FORM, OCTETS, form_of
from tests.api.test_uploads import TUS, append, create, upload_all
from tests.small_disks import SmallDisk, small_disk

PARQUET = "application/vnd.apache.parquet"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", "32m") as disk:
        yield disk


@pytest.fixture
def settings(disk: SmallDisk) -> Settings:
    return Settings(home=disk.folder / "home", streams=4, max_upload=16 << 20, disk_floor=1)


@pytest.fixture
def client(application: Flask) -> FlaskClient:
    """Client that gets what a server would answer, also to an exception."""
    application.config["PROPAGATE_EXCEPTIONS"] = False
    return application.test_client()


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """What requests refer to: ids of a simulation that has ended and of one that waits, and addresses of uploads."""

    ended: str
    queued: str
    unfinished: str
    finished: str


@pytest.fixture
def stored(client: FlaskClient, finished: str, submit: Submit) -> Stored:
    half = create(client, 4)
    assert append(client, half, 0, b"ab").status_code == 204
    return Stored(ended=finished, queued=submit().json["id"], unfinished=half, finished=upload_all(client, fresh()))


def fresh(size: int = 100) -> bytes:
    """Return a model that is not stored yet."""
    return MODEL + b"#" + os.urandom(size // 2).hex().encode()


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("model.py", fresh())
    return buffer.getvalue()


def submit_file(client: FlaskClient, model: bytes) -> Any:
    return client.post("/v1/simulations", data=form_of("model", model, dataset="noop"), headers=FORM)


WRITES: Mapping[str, Callable[[FlaskClient, Stored], Any]] = {
    "submission with a small file": lambda c, s: submit_file(c, fresh()),
    "submission with a file of a buffer's size": lambda c, s: submit_file(c, fresh(8192)),
    "submission with a large file": lambda c, s: submit_file(c, fresh(4 << 20)),
    "submission with a zip": lambda c, s: submit_file(c, zipped()),
    "form of a model": lambda c, s: c.post("/v1/models", data=form_of("file", fresh()), headers=FORM),
    "model": lambda c, s: c.put("/v1/models/fresh?filename=m.py", data=fresh(), headers=OCTETS),
    "large model": lambda c, s: c.put("/v1/models/fresh?filename=m.py", data=fresh(4 << 20), headers=OCTETS),
    "model of an upload": lambda c, s: c.post("/v1/models", json={"upload": s.finished, "filename": "m.py"}),
    "submission": lambda c, s: c.post("/v1/simulations", json={"dataset": "noop", "model": "mine"}),
    "creation of an upload": lambda c, s: c.post("/v1/uploads", headers=TUS | {"Upload-Length": "10"}),
    "bytes of an upload": lambda c, s: append(c, s.unfinished, 2, b"cd"),
    "dataset": lambda c, s: c.post("/v1/datasets", json={"name": "d", "source": {"upload": s.finished}}),
    "retry": lambda c, s: c.post(f"/v1/simulations/{s.ended}/retry", json={}),
    "cancellation": lambda c, s: c.post(f"/v1/simulations/{s.queued}/cancel"),
    "deletion": lambda c, s: c.delete(f"/v1/simulations/{s.ended}"),
    "tag": lambda c, s: c.put("/v1/models/mine/tags/gold", json={"version": "1"}),
    "table of a sweep": lambda c, s: c.get(f"/v1/simulations/{s.ended}/sweep?format=parquet"),
}
#: Requests whose answer has an outcome for each simulation.
BULK: Mapping[str, Callable[[FlaskClient, Stored], Any]] = {
    "cancellations": lambda c, s: c.post("/v1/simulations/cancel", json={"ids": [s.queued]}),
    "retries": lambda c, s: c.post("/v1/simulations/retry", json={"ids": [s.ended]}),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_request_that_cannot_write_says_so_and_succeeds_when_there_is_space(
    client: FlaskClient, disk: SmallDisk, stored: Stored, write: str
) -> None:
    disk.fill()
    problem(WRITES[write](client, stored), 507, "storage-full")
    disk.empty()
    answer = WRITES[write](client, stored)
    assert answer.status_code < 300, answer.data


@pytest.mark.parametrize("write", BULK)
def test_each_simulation_of_a_bulk_change_says_so(
    client: FlaskClient, disk: SmallDisk, stored: Stored, write: str
) -> None:
    disk.fill()
    answer = BULK[write](client, stored)
    assert [item["problem"]["status"] for item in answer.json["items"]] == [507]
    disk.empty()
    assert BULK[write](client, stored).json["done"] == 1
