"""Pages of datasets, models, runtimes and operations."""

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient
from playwright.sync_api import Page, expect

from core.domain.access.scopes import LOCAL_CALLER
from core.services.platform import Platform
from core.services.uploads.models import key_of
from core.settings import Settings
from datasets.nodecache.node_cache import NodeCache
from tests.api.conftest import Submit
from tests.api.test_datasets import register as register
from tests.api.test_datasets import upload as upload
from tests.api.test_datasets import work as work
from tests.archives import LINES, MINE
from tests.browser import Errors, accessibility_violations, scrolls_sideways

Register = Callable[..., dict[str, Any]]
#: A picture of one red pixel.
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108020000009077"
    "53de0000000c49444154789c63f8cfc00000030101009e2f2f6b0000000049454e44ae426082"
)


@pytest.fixture
def drives(register: Register) -> str:
    """Name of a dataset with two versions, with tables, text, a picture and bytes."""
    files = {
        "dataset.json": json.dumps(MINE).encode(),
        "lines.ndjson": LINES,
        "table.csv": b"speed,street\n1.5,arterial\n2.5,crosswalk\n",
        "notes/readme.txt": "Bérénice <script>alert(1)</script>".encode(),
        "pixel.png": PIXEL,
        "blob.bin": b"\xff\x00\xfe",
        "empty.csv": b"",
        "a b/ü 100%.txt": "Käse".encode(),
        "#part?of=it.txt": b"a fragment",
        "日本.txt": b"Japan",
    }
    register("drives", files)
    register("drives", files | {"notes/readme.txt": b"changed", "added.txt": b"new"})
    return "drives"


def test_a_dataset_has_its_versions_scenarios_and_files(page: Page, origin: str, drives: str) -> None:
    page.goto(f"{origin}/data")
    page.get_by_role("link", name=drives).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("drives@2")
    expect(page.get_by_role("region", name="Table of scenarios").locator("tbody tr")).not_to_have_count(0)
    page.get_by_role("link", name="to 2").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.get_by_role("row", name="added added.txt")).to_be_visible()


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("table.csv", "crosswalk"),
        ("notes/readme.txt", "changed"),
        ("blob.bin", "neither text nor"),
        ("empty.csv", "is empty"),
        ("a b/ü 100%.txt", "Käse"),
        ("#part?of=it.txt", "a fragment"),
        ("日本.txt", "Japan"),
    ],
)
def test_a_file_is_previewed(page: Page, origin: str, drives: str, path: str, shown: str) -> None:
    page.goto(f"{origin}/data/{drives}@2")
    page.get_by_role("link", name=path, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(path)
    expect(page.locator("main")).to_contain_text(shown)


def test_a_long_file_name_fits_the_window(page: Page, origin: str, register: Register) -> None:
    name = "a" * 190 + ".txt"
    register("long", {"dataset.json": json.dumps(MINE).encode(), "lines.ndjson": LINES, name: b"text"})
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 740})
        page.goto(f"{origin}/data/long")
        expect(page.get_by_role("link", name=name)).to_be_visible()
        assert not scrolls_sideways(page)
    assert accessibility_violations(page) == []
    page.get_by_role("link", name=name).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(name)
    page.set_viewport_size({"width": 360, "height": 740})
    assert not scrolls_sideways(page)


def test_a_picture_of_a_dataset_is_shown(page: Page, origin: str, drives: str) -> None:
    page.goto(f"{origin}/data/{drives}@2/files/pixel.png")
    assert page.locator("img.preview").evaluate("image => image.decode().then(() => image.naturalWidth)") == 1


def test_markup_in_a_file_is_text(page: Page, origin: str, drives: str) -> None:
    page.goto(f"{origin}/data/{drives}@1/files/notes/readme.txt")
    expect(page.locator("pre")).to_have_text("Bérénice <script>alert(1)</script>")


def test_a_dataset_leads_to_the_simulations_that_used_it(
    page: Page, origin: str, submit: Submit, client: FlaskClient
) -> None:
    id = submit().json["id"]
    page.goto(f"{origin}/data/noop@1")
    page.locator("a[href^='/simulations?dataset=noop']").click()
    page.wait_for_url("**/simulations?**")
    expect(page.locator(f"#row-{id}")).to_be_visible()


def test_a_scenario_is_drawn_on_its_street_without_a_simulation(page: Page, origin: str) -> None:
    page.goto(f"{origin}/data/car_street@1")
    page.get_by_role("link", name="Map of scenario 3", exact=True).click()
    picture = page.locator("#scenario-map img")
    expect(picture).to_have_attribute("alt", re.compile(r"^Map of scenario 3, .* street signal_grid"))
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
    assert accessibility_violations(page) == []
    page.set_viewport_size({"width": 360, "height": 740})
    assert not scrolls_sideways(page)
    page.get_by_role("link", name="Map of scenario 4", exact=True).focus()
    page.keyboard.press("Enter")
    expect(picture).to_have_attribute("alt", re.compile(r"^Map of scenario 4"))


def test_a_scenario_has_a_page_with_its_map(page: Page, origin: str) -> None:
    page.goto(f"{origin}/data/car_street/scenarios/200")
    expect(page.get_by_role("img", name="Map of scenario 200")).to_be_visible()
    expect(page.locator("dl.facts")).to_contain_text("street")
    assert accessibility_violations(page) == []


def test_a_dataset_without_streets_offers_no_maps(page: Page, origin: str) -> None:
    page.goto(f"{origin}/data/cartpole")
    expect(page.get_by_role("region", name="Table of scenarios")).to_be_visible()
    expect(page.get_by_role("link", name=re.compile("^Map of"))).to_have_count(0)


def test_a_model_leads_to_its_simulations(page: Page, origin: str, submit: Submit) -> None:
    id = submit().json["id"]
    page.goto(f"{origin}/models")
    page.get_by_role("link", name="mine", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("mine")
    page.get_by_role("region", name="Simulations").get_by_role("link").click()
    page.wait_for_url(f"**/simulations/{id}")


def test_runtimes_show_formats_packages_and_limits(page: Page, origin: str) -> None:
    page.goto(f"{origin}/models")
    page.get_by_role("link", name="Runtimes and formats").click()
    onnx = page.get_by_role("region", name="onnx", exact=True)
    onnx.get_by_text("ONNX", exact=True).click()
    expect(onnx).to_contain_text("largest model")
    onnx.get_by_text(re.compile(r"^\d+ packages$")).click()
    expect(onnx).to_contain_text("onnxruntime")


def test_operations_follow_the_queue(page: Page, origin: str, submit: Submit) -> None:
    page.goto(f"{origin}/operations")
    expect(page.get_by_role("row", name="local")).to_be_visible()
    id = submit().json["id"]
    expect(page.locator(f"#live a[href='/simulations/{id}']")).to_be_visible()
    expect(page.get_by_role("region", name="This server")).to_contain_text("database")


def test_operations_show_what_waits_and_why(page: Page, origin: str, submit: Submit) -> None:
    submit(placement={"executor": "local"})
    page.goto(f"{origin}/operations")
    row = page.get_by_role("region", name="What simulations wait for").locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("waits for free workers of local")
    assert accessibility_violations(page) == []


def test_operations_show_storage_and_caches_as_they_change(
    page: Page, origin: str, finished: str, platform: Platform, settings: Settings
) -> None:
    page.goto(f"{origin}/operations")
    storage = page.get_by_role("region", name="Storage in use")
    expect(storage.get_by_role("row", name="results")).to_contain_text("KiB")
    expect(storage.get_by_role("row", name="database")).to_contain_text("sqlite")
    expect(page.get_by_role("region", name="Storage", exact=True)).to_contain_text("are free on the disk of data and")
    caches = page.get_by_role("region", name="Table of caches")
    expect(caches.get_by_role("row", name="Node cache")).to_contain_text("not reported")
    stored = platform.files.models.get(LOCAL_CALLER, "mine")
    cache = NodeCache(settings.cache, platform.store)
    for _ in range(4):
        cache.object(key_of(stored.digest), stored.digest)
    expect(caches.get_by_role("row", name="Node cache")).to_contain_text("75")
    assert accessibility_violations(page) == []
    page.set_viewport_size({"width": 360, "height": 740})
    assert not scrolls_sideways(page)


@pytest.mark.parametrize("path", ["/data/nothing", "/models/nothing", "/data/car_street@9"])
def test_what_does_not_exist_is_a_page_that_says_so(page: Page, origin: str, path: str, page_errors: Errors) -> None:
    page_errors.expect("404")
    page.goto(f"{origin}{path}")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Unknown")


@pytest.mark.parametrize("path", ["/data", "/data/car_street", "/models", "/models/idm", "/runtimes", "/operations"])
def test_pages_are_accessible_and_fit_a_narrow_window(page: Page, origin: str, path: str) -> None:
    page.goto(f"{origin}{path}")
    assert accessibility_violations(page) == []
    page.set_viewport_size({"width": 360, "height": 740})
    assert not scrolls_sideways(page)


def test_every_built_in_dataset_has_a_page(client: FlaskClient) -> None:
    names = [item["name"] for item in client.get("/v1/datasets").json["items"]]
    assert len(names) > 20
    for name in names:
        answer = client.get(f"/data/{name}")
        assert answer.status_code == 200 and len(answer.data) < 200_000, (name, json.dumps(len(answer.data)))


@pytest.mark.parametrize(
    "name", ["日本", "ü", "a b", "car_street#x", "car_street?x", "car_street%", "..", ".", "../models/idm"]
)
@pytest.mark.parametrize(
    "address", ["/data/{}", "/models/{}", "/simulations/{}", "/comparisons/{}", "/submit?simulation={}"]
)
def test_a_name_that_nothing_can_have_is_answered_404(client: FlaskClient, name: str, address: str) -> None:
    answer = client.get(address.format(quote(name, safe="")), follow_redirects=False)
    assert answer.status_code == 404, answer.text


@pytest.mark.parametrize("name", ["日本", "car_street/versions", "../models/idm", "..", "car_street#x"])
@pytest.mark.parametrize("address", ["/submit?dataset={}", "/comparisons/new?dataset={}"])
def test_a_form_for_an_unknown_dataset_is_shown(client: FlaskClient, name: str, address: str) -> None:
    answer = client.get(address.format(quote(name, safe="")))
    assert answer.status_code == 200 and "Internal Server Error" not in answer.text


def test_a_cookie_of_another_application_may_have_any_character(client: FlaskClient) -> None:
    answer = client.get("/simulations", headers={"Cookie": "other=K\u00e4se"})
    assert answer.status_code == 200, answer.text
