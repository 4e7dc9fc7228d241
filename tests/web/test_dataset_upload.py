"""Datasets and maps by drop: files, folders and archives are sent, described and registered, with their progress."""

import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from playwright.sync_api import Page, expect

from tests.api.test_datasets import upload as upload
from tests.api.test_datasets import work as work
from tests.archives import LINES, MINE
from tests.browser import Errors, accessibility_violations, keep_picture, scrolls_sideways

Work = Callable[[], None]
FILES: Mapping[str, bytes] = {"dataset.json": json.dumps(MINE).encode(), "lines.ndjson": LINES, "notes/a.txt": b"a"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in (FILES | {".DS_Store": b"x"}).items():
        path = tmp_path / "drives" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "drives"


def test_a_folder_becomes_a_dataset_that_can_be_simulated_on(
    page: Page, origin: str, client: FlaskClient, folder: Path, work: Work
) -> None:
    page.goto(f"{origin}/data")
    page.get_by_role("link", name="Register a dataset").click()
    assert accessibility_violations(page) == []
    page.get_by_label("A folder").set_input_files(folder)
    expect(page.locator("[data-files]")).to_contain_text("3 files")
    expect(page.locator("[data-files]")).to_contain_text("a hidden file is left out")
    page.get_by_label("Name").fill("drives")
    page.get_by_label("Tags").fill("gold, stable")
    keep_picture(page, "register")
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("region", name="Registration")).to_contain_text("registering")
    keep_picture(page, "registering")
    work()
    expect(page.get_by_role("heading", level=1)).to_contain_text("drives@1")
    dataset = client.get("/v1/datasets/drives@gold").json
    assert dataset["file_count"] == 3 and dataset["tasks"] and set(dataset["tags"]) >= {"gold", "stable"}


def dropping(page: Page, files: Mapping[str, bytes]) -> None:
    """Drop files on the page, as a file manager does."""
    encoded = [[name, base64.b64encode(content).decode()] for name, content in files.items()]
    page.evaluate(
        """files => {
            const transfer = new DataTransfer();
            for (const [name, text] of files) {
                transfer.items.add(new File([Uint8Array.from(atob(text), letter => letter.charCodeAt(0))], name));
            }
            const target = document.querySelector("dataset-upload");
            target.dispatchEvent(new DragEvent("drop", {dataTransfer: transfer, bubbles: true, cancelable: true}));
        }""",
        encoded,
    )


def test_maps_that_are_dropped_get_a_description(page: Page, origin: str, client: FlaskClient) -> None:
    page.goto(f"{origin}/register")
    dropping(page, {"My Town.xodr": b"<OpenDRIVE/>", "my_town.net.xml": b"<net/>", "liesmich.txt": b"x"})
    expect(page.get_by_label("Name")).to_have_value("My-Town")
    page.get_by_label("Scenarios for each map").fill("12")
    page.set_viewport_size({"width": 360, "height": 740})
    assert not scrolls_sideways(page)
    keep_picture(page, "register-maps-360", full_page=True)
    described = page.evaluate("document.querySelector('dataset-upload').described()[0][1].text()")
    page.get_by_label("Name").press("Enter")
    expect(page.get_by_role("region", name="Registration")).to_be_visible()
    assert json.loads(described) == {
        "extends": "car_street",
        "maps": [{"file": "My Town.xodr", "name": "my_town"}, {"file": "my_town.net.xml", "name": "my_town_2"}],
        "generate": {"count": 12, "seed": 0},
    }
    assert client.get("/v1/datasets/My-Town").json["source"] == {"uploads": "4 files"}


def test_what_is_refused_is_said_and_not_sent_again(
    page: Page, origin: str, client: FlaskClient, page_errors: Errors
) -> None:
    page_errors.expect("422")
    created: list[str] = []
    page.on("request", lambda request: created.append(request.url) if request.url.endswith("/v1/uploads") else None)
    page.goto(f"{origin}/register?name=car_street")
    dropping(page, {"a.csv": b"1,2"})
    page.get_by_role("button", name="Register").click()
    problem = page.locator("dataset-upload .problem")
    expect(problem).to_contain_text("built-in")
    page.get_by_label("Name").fill("tables")
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("region", name="Registration")).to_be_visible()
    assert len(created) == 1 and client.get("/v1/datasets/tables").json["state"] == "registering"


def test_a_registration_that_fails_says_why_and_what_to_do(
    page: Page, origin: str, work: Work, client: FlaskClient
) -> None:
    page.goto(f"{origin}/register")
    dropping(page, {"dataset.json": b'{"extends": "mars<script>"}'})
    page.get_by_label("Name").fill("mars")
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("region", name="Registration")).to_contain_text("registering")
    work()
    expect(page.get_by_role("region", name="Registration")).to_contain_text("failed: ")
    expect(page.get_by_role("link", name="register them again")).to_have_attribute("href", "/register?name=mars")
    page.get_by_text("Delete …").click()
    page.get_by_role("button", name="Delete it").click()
    page.wait_for_url(f"{origin}/data")
    assert client.get("/v1/datasets/mars").status_code == 404


def test_an_upload_that_is_cancelled_leaves_nothing(page: Page, origin: str, client: FlaskClient) -> None:
    page.route("**/v1/uploads/*", lambda route: None if route.request.method == "PATCH" else route.continue_())
    page.goto(f"{origin}/register?name=tables")
    dropping(page, {"a.csv": b"1,2"})
    with page.expect_request(lambda request: request.method == "PATCH"):
        page.get_by_role("button", name="Register").click()
    page.get_by_role("button", name="Cancel the upload").click()
    expect(page.locator("dataset-upload")).to_contain_text("The upload is cancelled.")
    page.unroute_all(behavior="ignoreErrors")
    assert client.get("/v1/uploads").json["items"] == []
