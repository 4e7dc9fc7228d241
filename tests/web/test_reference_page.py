"""Page /docs: the API's reference by Swagger UI, with the header, colours and policies of the other pages."""

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser import accessibility_violations, scrolls_sideways
from tests.web.pages import TOKEN

#: What the markup of Swagger UI violates, which no style sheet mends.
OF_SWAGGER_UI = {
    *("heading-order", "landmark-main-is-top-level", "landmark-no-duplicate-main", "landmark-unique"),
    *("nested-interactive", "scrollable-region-focusable", "select-name", "target-size"),
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_the_reference_looks_as_the_other_pages_do(page: Page, origin: str, scheme: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(origin)
    colours = "getComputedStyle(document.documentElement).backgroundColor + getComputedStyle(document.body).fontFamily"
    others = page.evaluate(colours)
    page.get_by_role("link", name="API", exact=True).click()
    expect(page.get_by_role("navigation", name="Main").get_by_role("link", name="API")).to_have_attribute(
        "aria-current", "page"
    )
    page.locator("#operations-simulations-list_simulations").wait_for()
    assert page.evaluate(colours) == others
    assert page.locator("html.dark-mode").count() == (scheme == "dark")
    path = page.locator(".opblock-summary-path").first
    assert path.evaluate("e => getComputedStyle(e).color") == page.evaluate("getComputedStyle(document.body).color")
    assert not scrolls_sideways(page)
    assert {found.partition(":")[0] for found in accessibility_violations(page)} <= OF_SWAGGER_UI
    assert accessibility_violations(page, within=".top") == []


def test_the_reference_loads_nothing_from_elsewhere_and_can_be_tried(page: Page, origin: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{origin}/docs")
    operation = page.locator("#operations-simulations-count_simulations")
    operation.locator(".opblock-summary-control").click()
    operation.get_by_role("button", name="Try it out").click()
    operation.get_by_role("button", name="Execute").click()
    expect(operation.locator(".live-responses-table")).to_contain_text('"total": 0')
    assert [url for url in asked if not url.startswith((origin, "data:"))] == []


def test_the_reference_needs_the_token_as_other_pages_do(guarded_origin: str) -> None:
    asked = httpx.get(f"{guarded_origin}/docs")
    assert asked.status_code == 303 and asked.headers["Location"] == "/sign-in?next=%2Fdocs"
    answer = httpx.get(f"{guarded_origin}/docs", headers={"Authorization": f"Bearer {TOKEN}"})
    policy = answer.headers["Content-Security-Policy"]
    assert answer.status_code == 200 and policy.startswith("default-src 'self';") and "script-src" not in policy
