"""Documentation site: stage the pages as they lie in the repository and build them strictly into var/site: `make docs`.

Pages link to files outside of docs/, such as CHANGELOG.md or the source of an example. Staging keeps the tree, so the
same links work in the repository, on a forge and in the site.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CONFIG = Path("mkdocs.yml")
#: Folders that mkdocs.yml names: `docs_dir` and `site_dir`.
STAGED, SITE = Path("var/site-source"), Path("var/site")
#: Files of the site itself, which no page links to.
ASSETS = Path("docs/site")
#: Pages besides those in docs/.
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/RESULTS.md")
LINK = re.compile(r"\]\(([^)#\s:]+)(?:#[^)\s]*)?\)")


def pages(root: Path) -> Iterator[Path]:
    """Yield the paths of all pages, relative to the root of the repository."""
    yield from map(Path, PAGES)
    for path in sorted((root / "docs").rglob("*.md")):
        yield path.relative_to(root)


def linked_files(root: Path, page: Path) -> Iterator[Path]:
    """Yield the files that a page links to or shows and that are not pages. A missing file is left to the build."""
    for link in LINK.findall((root / page).read_text()):
        target = (root / page.parent / link).resolve()
        if target.suffix != ".md" and target.is_file() and target.is_relative_to(root):
            yield target.relative_to(root)


def stage(root: Path, target: Path) -> None:
    """Copy the pages and each file that they link to into a folder, which is emptied before."""
    shutil.rmtree(target, ignore_errors=True)
    files = {path.relative_to(root) for path in (root / ASSETS).iterdir()}
    for page in pages(root):
        files.update((page, *linked_files(root, page)))
    for file in files:
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / file, target / file)


def build(root: Path, home: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a repository below `home`. A link or an anchor that leads nowhere makes the build fail."""
    stage(root, home / STAGED)
    if home != root:
        shutil.copyfile(root / CONFIG, home / CONFIG)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    return subprocess.run(command, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def main() -> int:
    """Build the site of the current folder, and say where it is."""
    built = build(Path.cwd(), Path.cwd())
    print(built.stdout, end="")
    if built.returncode == 0:
        print(f"The site is in {SITE}: open {SITE}/index.html, or serve the folder.")
    return built.returncode


if __name__ == "__main__":
    raise SystemExit(main())
