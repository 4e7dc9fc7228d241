"""Releases by scripts/release.py, cut in a copy of the tree, and what is refused."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.version import Version

from common.version import VERSION
from scripts import release
from tests.recipes import ROOT, Tree

CURRENT = Version(VERSION)
NEXT = f"{CURRENT.major}.{CURRENT.minor + 1}.0"
ENTRIES = """
### Changed: doors

Doors open.

- Doors: they were closed ([architecture](docs/architecture.md#layout)).

### Security and worlds

#### Added: rain

- Results move: it rains in `noop`, and models slip.
"""
DATASET = Path("runtimes/harness/simulators/noop/datasets/noop/dataset.json")


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return Tree(tmp_path_factory.mktemp("release") / "tree")


@pytest.fixture
def tree(copied: Tree) -> Tree:
    """The copy as it was, with entries to release."""
    copied.git("reset", "--quiet", "--hard", copied.git("rev-list", "--max-parents=0", "HEAD").strip())
    copied.git("clean", "--quiet", "--force", "-d")
    with_entries(copied, ENTRIES)
    return copied


def with_entries(tree: Tree, entries: str) -> None:
    """Commit a changelog with these unreleased entries and no others."""
    changelog = tree.folder / release.CHANGELOG
    head, _, rest = changelog.read_text().partition(release.UNRELEASED)
    changelog.write_text(f"{head}{release.UNRELEASED}{entries}{rest[rest.index(chr(10) + '## ') :]}")
    tree.commit()


def cut(tree: Tree, version: str = NEXT) -> tuple[int, str]:
    """Run the script; return its exit code and its output."""
    ended = tree.ended(sys.executable, "-m", "scripts.release", version, "--date", "2030-01-02")
    return ended.returncode, ended.stdout


def changed_dataset(tree: Tree) -> None:
    path = tree.folder / DATASET
    path.write_text(path.read_text().replace('"title": "A world', '"title": "The world'))
    tree.commit()


def test_a_release_sets_the_version_cuts_the_changelog_and_lists_datasets(tree: Tree) -> None:
    changed_dataset(tree)
    code, output = cut(tree)
    assert code == 0, output
    written = {path for path, _ in release.PLACES} | {"CHANGELOG.md", "mkdocs.yml", "openapi.yaml"}
    page = f"docs/releases/{NEXT}.md"
    assert tree.changed() == written | {page}
    difference = tree.git("diff", "--unified=0", "openapi.yaml")
    assert {line[1:].split()[0] for line in difference.splitlines() if re.match(r"[+-] ", line)} == {
        "version:",
        "windtunnel:",
    }
    changelog = (tree.folder / "CHANGELOG.md").read_text()
    title = f"## [{NEXT}] - 2030-01-02\n\n[All entries]({page}), [which results move]({page}#results).\n"
    assert f"{release.UNRELEASED}\n{title}" in changelog
    assert f"- Changed: [doors]({page}#changed-doors). Doors open.\n\n### Security and worlds\n" in changelog
    assert f"- Added: [rain]({page}#added-rain).\n" in changelog
    text = (tree.folder / page).read_text()
    results, _, sections = text.partition("\n## Changed: doors\n")
    assert "- it rains in `noop`" in results and "- Results move: it rains" in sections
    assert re.search(r"^\| `car_street@1` \| `sha256:[0-9a-f]{64}` \| equal \|$", results, re.MULTILINE)
    assert re.search(r"^\| `noop@1` \| `sha256:[0-9a-f]{64}` \| \*\*changed\*\* \|$", results, re.MULTILINE)
    assert "Doors open.\n\n- Doors: they were closed ([architecture](../architecture.md#layout))." in sections
    assert "\n## Security and worlds\n\n### Added: rain\n" in sections
    assert f"          - {page}\n" in (tree.folder / "mkdocs.yml").read_text()
    served = tree.run(sys.executable, "-c", "from core.services.submissions import resolving as r; print(r.VERSION)")
    assert served.stdout.strip() == NEXT
    tree.commit()
    assert cut(tree, f"{CURRENT.major + 1}.0.0") == (
        1,
        "CHANGELOG.md has nothing that is unreleased: there is nothing to release.\n",
    )


@pytest.mark.parametrize("version", ["0.1.0", VERSION, "1.0", "v9.0.0", "9.0.0rc1"])
def test_a_version_that_is_not_higher_or_has_not_three_numbers_is_refused(version: str) -> None:
    with pytest.raises(release.Refused, match=r"is not higher than|write three numbers"):
        release.checked_version(version)


def lower(tree: Tree) -> None:
    (tree.folder / "common/version.py").write_text('"""Version."""\n\nVERSION = "99.0.0"\n')
    tree.commit()


def no_word(tree: Tree) -> None:
    with_entries(tree, ENTRIES.replace("- Results move: ", "- "))
    changed_dataset(tree)


def another_dataset(tree: Tree) -> None:
    with_entries(tree, ENTRIES.replace("rains in `noop`", "rains in `noop_b`"))
    changed_dataset(tree)


def gone(tree: Tree) -> None:
    tree.git("rm", "-r", "--quiet", str(DATASET.parent))
    with_entries(tree, ENTRIES.replace("rains in `noop`", "rains"))


def no_section(tree: Tree) -> None:
    with_entries(tree, "\n- Doors: they were closed.\n")


def not_committed(tree: Tree) -> None:
    (tree.folder / "README.md").write_text("changed")


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (not_committed, "commit or stash them first.\n M README.md"),
        (lower, f"{NEXT} is not higher than 99.0.0"),
        (no_word, "The definition of noop@1 differs from that of"),
        (another_dataset, "The definition of noop@1 differs from that of"),
        (gone, "The definition of noop@1 differs from that of"),
        (no_section, "below no `### Kind: title`: - Doors"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_nothing_is_written_of_a_release_that_is_refused(
    tree: Tree, prepare: Callable[[Tree], None], message: str
) -> None:
    prepare(tree)
    before = tree.changed()
    code, output = cut(tree)
    assert code == 1 and message in output, output
    assert tree.changed() == before


def test_every_place_has_the_version_of_the_platform() -> None:
    for path, pattern in release.PLACES:
        assert pattern.format(VERSION) in (ROOT / path).read_text(), path
