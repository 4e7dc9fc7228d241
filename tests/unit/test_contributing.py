"""CONTRIBUTING.md: what it names is there, and it is short."""

import re

import pytest

from scripts import site
from tests.product import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text()
CODE = re.findall(r"`([^`\n]+)`", PAGE)
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_the_page_is_a_short_tour_of_ten_files() -> None:
    assert len(PAGE.splitlines()) <= 200
    assert [int(number) for number in re.findall(r"^(\d+)\. \*\*`[\w/.]+`\*\*", PAGE, re.MULTILINE)] == [*range(1, 11)]


@pytest.mark.parametrize("path", sorted({code for code in CODE if "/" in code and " " not in code}))
def test_each_file_and_folder_that_it_names_is_there(path: str) -> None:
    assert (ROOT / path).exists() or path == "var/logs"


@pytest.mark.parametrize("command", sorted({code for code in CODE if code.startswith(("make ", "python -m "))}))
def test_each_command_that_it_names_is_a_target_or_a_module(command: str) -> None:
    program, _, words = command.partition(" ")
    if program == "make":
        assert words in TARGETS
    else:
        module = words.removeprefix("-m ").split()[0]
        assert (ROOT / f"{module.replace('.', '/')}.py").exists()


def test_readme_and_site_lead_to_it() -> None:
    assert "(CONTRIBUTING.md)" in (ROOT / "README.md").read_text() and "CONTRIBUTING.md" in site.PAGES
    assert " CONTRIBUTING.md\n" in (ROOT / site.CONFIG).read_text()
