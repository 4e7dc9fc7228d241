"""Errors of forms: each stands at its field, which gets the focus, and goes when the field is changed."""

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.api.test_model_comparisons import Runs
from tests.api.test_model_comparisons import runs as runs
from tests.browser import Errors, accessibility_violations, scrolls_sideways
from tests.web.pages import TOKEN
from web.field_problems import field_problems


@pytest.fixture(autouse=True)
def refusals(page_errors: Errors) -> None:
    """Let the console name the status of a refused form."""
    page_errors.expect("4(01|04|22)")


@pytest.mark.parametrize(
    ("problem", "fields", "at"),
    [
        ({"errors": ["repeat: Not a valid integer.", "seed: Too large."]}, {"repeat": ["x"], "seed": ["y"]},
         {"repeat": "Not a valid integer.", "seed": "Too large."}),
        ({"type": "/problems/unknown-model", "detail": "There is no model 'b'."}, {"model": ["a", "b"]},
         {"model.1": "There is no model 'b'."}),
        ({"detail": "`models`: a and c are the same model."}, {"model": ["b", "c"]},
         {"model.1": "`models`: a and c are the same model."}),
        ({"detail": "The dataset noop has no parameter 'x'; it has: y."}, {"param.x": ["1"]},
         {"param.x": "The dataset noop has no parameter 'x'; it has: y."}),
        ({"errors": ["params.x: Too long."]}, {"param.x": ["1"]}, {"param.x": "Too long."}),
        ({"errors": ["foo: Unknown field.", "placement.cpu: Too many."]}, {"more": ["{}"]},
         {"more": "Unknown field. Too many."}),
        ({"detail": "Labels: not closed.", "field": "labels"}, {"labels": ["x"]}, {"labels": "Labels: not closed."}),
        ({"detail": "There is no executor 'x'."}, {"executor": ["x"]}, {"executor": "There is no executor 'x'."}),
        ({"detail": "The disk is full."}, {"seed": [""]}, {"": "The disk is full."}),
        (None, {"seed": ["x"]}, {}),
    ],
)  # fmt: skip
def test_a_problem_is_told_at_the_fields_that_it_is_about(problem: Any, fields: Any, at: dict[str, str]) -> None:
    assert field_problems(problem, fields, {"": "more", "models": "model"}) == at


def test_errors_of_a_submission_stand_at_their_fields_and_go_with_a_change(page: Page, origin: str) -> None:
    page.goto(f"{origin}/submit?dataset=noop&runtime=python&repeat=many&seed=none")
    page.get_by_role("button", name="Submit").click()
    repeat, seed = page.get_by_label("Repetitions of each"), page.get_by_label("Seed")
    for field in (repeat, seed):
        expect(field).to_have_attribute("aria-invalid", "true")
        expect(field).to_have_accessible_description("Not a valid integer.")
    expect(repeat).to_be_focused()
    expect(page.get_by_role("alert").get_by_role("listitem")).to_have_count(2)
    assert accessibility_violations(page) == []
    page.set_viewport_size({"width": 360, "height": 740})
    assert not scrolls_sideways(page)
    repeat.fill("2")
    expect(repeat).not_to_have_attribute("aria-invalid", "true")
    expect(repeat).to_have_accessible_description("")
    expect(seed).to_have_attribute("aria-invalid", "true")
    seed.fill("1")
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.locator(".field-error:visible")).to_have_count(0)


def test_what_cannot_be_read_is_told_at_its_field_while_it_is_written(page: Page, origin: str) -> None:
    page.goto(f"{origin}/submit?dataset=noop&runtime=python&labels=a%3D1")
    labels = page.get_by_label("Labels")
    page.get_by_text("More", exact=True).click()
    labels.fill('note="two words')
    expect(labels).to_have_accessible_description("Labels: a double quotation mark is not closed.")
    expect(labels).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Seed").fill("1")
    expect(page.locator("#request")).to_contain_text("not closed")
    expect(labels).to_have_attribute("aria-invalid", "true")
    labels.fill('note="two words"')
    expect(labels).not_to_have_attribute("aria-invalid", "true")
    expect(page.locator(".field-error:visible")).to_have_count(0)


def test_errors_of_a_comparison_stand_at_the_model_that_is_unknown(page: Page, origin: str, model: str) -> None:
    page.goto(f"{origin}/comparisons/new?dataset=car_street&model={model}&model=nobody&reference={model}")
    page.get_by_role("button", name="Compare", exact=True).click()
    wrong = page.get_by_label("Model 2")
    expect(wrong).to_have_attribute("aria-invalid", "true")
    expect(wrong).to_be_focused()
    expect(wrong).to_have_accessible_description("There is no model 'nobody'. The page /models lists them.")
    expect(page.get_by_label("Model 1")).not_to_have_attribute("aria-invalid", "true")
    assert accessibility_violations(page) == []
    wrong.fill("")
    expect(page.locator(".field-error:visible")).to_have_count(0)
    page.get_by_label("Error rate, in percent").fill("200")
    expect(page.get_by_label("Error rate, in percent")).to_have_attribute("aria-invalid", "true")


def test_a_model_that_cannot_join_is_told_at_its_field(page: Page, origin: str, runs: Runs) -> None:
    id = runs.create("new", "old")
    page.goto(f"{origin}/comparisons/{id}")
    for name in ("nobody", "new"):
        joining = page.get_by_role("combobox", name="Model", exact=True)
        joining.fill(name)
        page.get_by_role("button", name="Let it join").click()
        expect(joining).to_have_attribute("aria-invalid", "true")
        expect(joining).to_have_value(name)
        expect(joining).to_be_focused()
    expect(joining).to_have_accessible_description(
        "`models`: new and new are the same model; each can be compared once."
    )
    assert accessibility_violations(page) == []


def test_a_wrong_token_is_told_at_its_field(page: Page, guarded_origin: str) -> None:
    page.goto(guarded_origin)
    token = page.get_by_label("Token")
    token.fill("wrong-horse-battery")
    page.get_by_role("button", name="Sign in").click()
    expect(token).to_have_attribute("aria-invalid", "true")
    expect(token).to_be_focused()
    expect(page.locator("#error-token")).to_contain_text("not the token of the server")
    assert accessibility_violations(page) == []
    token.fill(TOKEN)
    expect(page.locator("#error-token")).to_be_empty()
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Simulations", level=1)).to_be_visible()
