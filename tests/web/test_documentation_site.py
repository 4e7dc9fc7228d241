"""Documentation site: it builds strictly, its links and anchors lead somewhere, and no page requests another host."""

import shutil
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt
from playwright.sync_api import Page, Request, expect

from scripts import site

ROOT = Path(__file__).parents[2]
#: Elements that Python-Markdown and CommonMark could see differently.
COUNTED = ("li", "table", "tr", "pre", "h2", "h3", "img", "blockquote")
#: Elements of the theme that load scripts of other hosts when a page has them.
LOADERS = {"mermaid", "glightbox", "arithmatex", "pyodide"}


class Document(HTMLParser):
    """A page of the site: its anchors, links, what it loads, and the elements of its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.classes: set[str] = set()
        self.elements: Counter[str] = Counter()
        self._inside_text = False
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        self.classes.update(values.get("class", "").split())
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link":
            self.loads.append(values["href"])
        self.loads += [values[name] for name in ("src", "srcset", "poster", "data") if name in values]
        if "style" in values:
            self.loads += [part for part in values["style"].split("url(")[1:]]
        self._inside_text |= tag == "article"
        self.elements[tag] += self._inside_text

    def handle_endtag(self, tag: str) -> None:
        self._inside_text &= tag != "article"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of this repository, built as `make docs` builds it."""
    home = tmp_path_factory.mktemp("site")
    outcome = site.build(ROOT, home)
    assert outcome.returncode == 0, outcome.stdout
    return home / site.SITE


@pytest.fixture(scope="module")
def documents(built: Path) -> dict[Path, Document]:
    return {path: Document(path) for path in sorted(built.rglob("*.html")) if path.name != "404.html"}


def page_of(built: Path, source: Path) -> Path:
    """The page that is made of a Markdown file; a README is the page of its folder."""
    return built / (source.with_name("index.html") if source.name == "README.md" else source.with_suffix(".html"))


def test_every_markdown_file_is_a_page_and_is_in_the_navigation(built: Path, documents: dict[Path, Document]) -> None:
    sources = list(site.pages(ROOT))
    assert {page_of(built, source) for source in sources} == set(documents)
    navigation = (ROOT / site.CONFIG).read_text()
    assert [str(source) for source in sources if f" {source}\n" not in navigation] == []


def test_every_link_leads_to_a_file_of_the_site_and_to_an_anchor_of_its_page(documents: dict[Path, Document]) -> None:
    assert [f"{path.name}: {link}" for path, link in _broken(documents)] == []


def _broken(documents: dict[Path, Document]) -> Iterator[tuple[Path, str]]:
    for path, document in documents.items():
        for link in document.links + document.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                yield path, link
            elif parts.fragment and target in documents and unquote(parts.fragment) not in documents[target].anchors:
                yield path, link


def test_no_page_loads_anything_from_another_host(built: Path, documents: dict[Path, Document]) -> None:
    elsewhere = {load for document in documents.values() for load in document.loads if urlsplit(load).netloc}
    assert not elsewhere
    assert not [path for path, document in documents.items() if document.classes & LOADERS]
    sheets = [path for path in built.rglob("*.css") if any(f"{mark}http" in path.read_text() for mark in ('("', "("))]
    assert not sheets


def test_lists_and_tables_of_the_site_are_those_that_a_forge_shows(
    built: Path, documents: dict[Path, Document]
) -> None:
    """A list without a blank line before it is a list on a forge, and would be part of the sentence here."""
    markdown = MarkdownIt("commonmark").enable("table")
    for source in site.pages(ROOT):
        html = markdown.render((ROOT / source).read_text())
        there = {tag: html.count(f"<{tag}>") + html.count(f"<{tag} ") for tag in COUNTED}
        here = {tag: documents[page_of(built, source)].elements[tag] for tag in COUNTED}
        assert here == there, source


def test_a_link_to_a_missing_page_and_one_to_a_missing_anchor_fail_the_build(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    site.stage(ROOT, copy)
    shutil.copyfile(ROOT / site.CONFIG, copy / site.CONFIG)
    page = copy / "docs/slurm.md"
    for link, message in (("nothing.md", "page does not exist"), ("api.md#nothing", "anchor does not exist")):
        text = page.read_text()
        page.write_text(f"{text}\n[A link]({link}).\n")
        outcome = site.build(copy, tmp_path / "home")
        page.write_text(text)
        assert outcome.returncode != 0 and message in outcome.stdout


def test_pages_opened_as_files_are_searched_without_any_network(built: Path, page: Page) -> None:
    requests: list[str] = []

    def record(request: Request) -> None:
        requests.append(request.url)

    page.on("request", record)
    page.goto((built / "index.html").as_uri())
    page.keyboard.press("/")
    page.keyboard.type("fencing token")
    expect(page.get_by_role("link").filter(has_text="Glossary").first).to_be_visible()
    page.goto((built / "docs/states.html").as_uri())
    expect(page.get_by_role("heading", name="States of a simulation")).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert requests and [url for url in requests if urlsplit(url).scheme not in ("file", "data", "blob")] == []
