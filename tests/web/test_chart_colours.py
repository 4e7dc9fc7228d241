"""Colours of charts on canvases, in light and dark: those of the legend, in contrast to the background, at any time."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser import StaticSite, keep_picture, static_site
from tests.waiting import until
from tests.web.test_replay_player import answer, recorded

STATIC = Path(__file__).parents[2] / "web" / "static"
SCHEMES = ("light", "dark")
Scheme = Literal["light", "dark"]
Colour = tuple[int, int, int]

#: Number of the canvas's pixels of each colour, without those that are not opaque: edges of lines, the empty ones.
PIXELS = """
canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const counts = {};
  for (let at = 0; at < data.length; at += 4) {
    if (data[at + 3] < 255) continue;
    const colour = `${data[at]},${data[at + 1]},${data[at + 2]}`;
    counts[colour] = (counts[colour] ?? 0) + 1;
  }
  return counts;
}
"""
#: Computed background of the nearest element that has one.
BACKGROUND = """
element => {
  for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (!colour.includes(", 0)")) return colour;
  }
}
"""


def pixels(canvas: Locator) -> Counter[Colour]:
    """Return how many opaque pixels of a canvas have each colour."""
    counts: dict[str, int] = canvas.evaluate(PIXELS)
    return Counter({numbers(colour): count for colour, count in counts.items()})


def numbers(colour: str) -> Colour:
    """Return a computed colour, `rgb(...)` or `color(srgb ...)`, as three numbers up to 255."""
    factor = 255 if colour.startswith("color(") else 1
    red, green, blue = (round(float(part) * factor) for part in re.findall(r"[\d.]+", colour)[:3])
    return red, green, blue


def colour_of(element: Locator, property: str = "color") -> Colour:
    """Return a computed colour of an element."""
    return numbers(element.evaluate("(element, name) => getComputedStyle(element)[name]", property))


def contrast(first: Colour, second: Colour) -> float:
    """Return the contrast of two colours, from 1 to 21 (WCAG 2.2)."""

    def luminance(colour: Colour) -> float:
        parts = [part / 255 for part in colour]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_black_and_white_have_the_greatest_contrast() -> None:
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast((119, 119, 119), (255, 255, 255)) == pytest.approx(4.48, abs=0.01)


@pytest.fixture
def replays(tmp_path: Path) -> Iterator[StaticSite]:
    """A site with the page `/page`, on which two replays are compared as the web page does it, with its style sheet."""
    styles = "".join(f'<link rel="stylesheet" href="/static/{n}">' for n in ("windtunnel.css", "replay/replay.css"))
    body = '<replay-compare left="/one" right="/two" paused></replay-compare>'
    with static_site(STATIC) as site:
        for path, name in (("/one", "street_collision"), ("/two", "street_arrival")):
            site.responses[path] = [answer(recorded(name))]
        site.pages["/page"] = (
            f'<!doctype html><html lang="en"><head><title>Replays</title>{styles}'
            '<script type="module" src="/static/replay/replay.js"></script></head>'
            f"<body><main><h1>Replays</h1>{body}</main></body></html>"
        )
        yield site


def legend_of(page: Page) -> list[Colour]:
    """Return the colours of the values of both replays, which are the legend of the lines."""
    return [colour_of(page.locator(f".replay-signal .replay-series-{side}").first) for side in (0, 1)]


def is_drawn(page: Page, colours: list[Colour]) -> bool:
    """Tell whether lines in the charts of a page have these colours."""
    drawn = sum((pixels(canvas) for canvas in page.locator(".replay-signal canvas").all()), Counter[Colour]())
    return all(drawn[colour] > 50 for colour in colours)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_lines_of_replays_have_the_colours_of_their_legend(page: Page, replays: StaticSite, scheme: Scheme) -> None:
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.goto(f"{replays.origin}/page")
    expect(page.locator(".replay-signal").first).to_be_visible()
    legend = legend_of(page)
    assert is_drawn(page, legend), "black lines beside a coloured legend"
    background = numbers(page.locator(".replay-signal").first.evaluate(BACKGROUND))
    assert all(contrast(colour, background) >= 4.5 for colour in legend), "they are those of values, which are text"
    keep_picture(page, f"replays-{scheme}", full_page=True)
    page.emulate_media(color_scheme="dark" if scheme == "light" else "light")
    assert set(legend_of(page)).isdisjoint(legend)
    until(lambda: is_drawn(page, legend_of(page)), message="a page that is open does not change with the system")


def test_the_style_sheet_registers_every_colour_that_depends_on_the_mode() -> None:
    sheet = (STATIC / "windtunnel.css").read_text()
    dependent = re.findall(r"(--[\w-]+): light-dark\(", sheet)
    assert dependent and dependent == re.findall(r'@property (--[\w-]+) \{ syntax: "<color>"; inherits: true;', sheet)
