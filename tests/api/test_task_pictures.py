"""Pictures of tasks: artifacts that are sent as what their content is, and that no browser takes for anything else."""

import io

import pytest
from flask.testing import FlaskClient
from PIL import Image

from tests.api.answers import problem
from tests.api.conftest import LeasingWorker, Submit
from tests.unit.test_picture_kinds import DRAWING

#: Its name of a document type seems to end before the entities.
BOMB = b'<!DOCTYPE svg SYSTEM "><svg " [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>' + DRAWING


def png() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (4, 3), "navy").save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def drawn(submit: Submit, worker: LeasingWorker) -> str:
    """Path of a simulation whose first task has left pictures, and files with names of pictures."""
    id = submit().json["id"]
    files = {
        "beam.svg": DRAWING,
        "fields/end.png": png(),
        "wrong.svg": png(),
        "page.png": b"<html><script>alert(1)</script></html>",
        "bomb.svg": BOMB,
    }
    worker.run_to_end(id, artifacts={(0, name, "text/html"): content for name, content in files.items()})
    return f"/v1/simulations/{id}/tasks/0/pictures"


@pytest.mark.parametrize(
    ("name", "media_type"),
    [("beam.svg", "image/svg+xml"), ("fields/end.png", "image/png"), ("wrong.svg", "image/png")],
)
def test_a_picture_is_sent_as_what_its_content_is(client: FlaskClient, drawn: str, name: str, media_type: str) -> None:
    answer = client.get(f"{drawn}/{name}")
    assert (answer.status_code, answer.mimetype) == (200, media_type)
    assert answer.data == (DRAWING if name == "beam.svg" else png())
    assert answer.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    again = client.get(f"{drawn}/{name}", headers={"If-None-Match": answer.headers["ETag"]})
    assert again.status_code == 304


def test_what_is_no_picture_is_refused_with_the_reason(client: FlaskClient, drawn: str) -> None:
    refused = problem(client.get(f"{drawn}/page.png"), 406, "not-acceptable")
    assert "it is not a PNG, JPEG, WebP or SVG picture" in refused["detail"]
    assert "entities" in problem(client.get(f"{drawn}/bomb.svg"), 406, "not-acceptable")["detail"]
    problem(client.get(f"{drawn}/missing.png"), 404, "unknown-artifact")
