"""Recipes of CONTRIBUTING.md: the edits and commands of a page, made in a copy of the tree whose changes git tells.

The code blocks of a recipe (`docs/contributing/`) are followed in order. A block after `<!-- file: PATH -->` is a new
file or, in the language `diff`, edits of one: lines that begin with a space or `-` are found in the file, once, and
replaced by those that begin with a space or `+`; `@@` separates edits. `sh` blocks are commands.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts import dist
from tests.document_commands import Block, Treatment, blocks

ROOT = Path(__file__).parents[1]
FOLDER = Path("docs/contributing")
#: A row of the table in CONTRIBUTING.md: a page, how many files are written by hand, generated files, a note.
ROW = re.compile(
    r"^\| \[[^\]]+\]\((?P<page>[^)#]+)[^)]*\) \| (?P<count>\d+) \|(?P<generated>[^|]*)\|(?P<note>[^|]*)\|$",
    re.MULTILINE,
)
MIGRATIONS = Path("core/store/migrations/versions")
#: Commands that write generated files; they run after the edits of all recipes.
GENERATORS = ("make openapi", "make reference", "make sync-client")


@dataclass(frozen=True, slots=True)
class Recipe:
    """A row of the table. ``test``: one of its own that follows the recipe, or none."""

    page: str
    count: int
    generated: frozenset[str]
    test: str

    @property
    def name(self) -> str:
        return Path(self.page).stem

    def blocks(self) -> list[Block]:
        """Return the blocks of the page."""
        return list(blocks((ROOT / self.page).read_text()))

    def tests(self) -> list[str]:
        """Return the tests that the recipe writes or changes."""
        return [block.note for block in self.blocks() if Path(block.note).name.startswith("test_")]

    def generators(self) -> list[str]:
        """Return the commands of the page that write generated files."""
        lines = [
            line for block in self.blocks() if block.treatment is Treatment.RUN for line in block.text.splitlines()
        ]
        return [line for line in lines if line in GENERATORS]


def recipes() -> Iterator[Recipe]:
    """Yield the recipes that CONTRIBUTING.md lists."""
    for row in ROW.finditer((ROOT / "CONTRIBUTING.md").read_text()):
        generated = frozenset(re.findall(r"`([^`]+)`", row["generated"]))
        test = re.search(r"`(tests/[^`]+)`", row["note"])
        yield Recipe(row["page"], int(row["count"]), generated, test[1] if test else "")


class Tree:
    """A copy of the files that git has, with a history of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        dist.copy(folder)
        (folder / ".venv").symlink_to(ROOT / ".venv")
        numbers = sorted(path.name[:4] for path in (folder / MIGRATIONS).glob("[0-9]*.py"))
        #: Words of pages that depend on the migrations that there are.
        self._words = {"LAST": numbers[-1], "NEXT": f"{int(numbers[-1]) + 1:04}"}
        self.git("init", "--quiet")
        # Objects that this repository has are not written again.
        (folder / ".git/objects/info/alternates").write_text(_objects())
        self.commit()

    def git(self, *arguments: str) -> str:
        """Run git, with none of this user's configuration."""
        environ = os.environ | {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
        options = (
            "user.name=recipes",
            "user.email=recipes@localhost",
            "core.compression=0",
            "core.fsync=none",
            "gc.auto=0",
        )
        command = ["git", *(word for option in options for word in ("-c", option)), *arguments]
        return subprocess.run(command, cwd=self.folder, env=environ, check=True, capture_output=True, text=True).stdout

    def commit(self) -> None:
        """Commit everything."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "A step")

    def changed(self) -> set[str]:
        """Return the paths that differ from the last commit."""
        listed = self.git("status", "--porcelain", "--untracked-files=all", "-z", "--no-renames")
        return {entry[3:] for entry in listed.split("\0") if entry}

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command on the copy's code; what it prints is in the error of the test."""
        completed = self.ended(*command)
        assert completed.returncode == 0, f"{' '.join(command)}: {completed.stdout[-3000:]}"
        return completed

    def ended(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command on the copy's code, whatever its exit code."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("WINDTUNNEL_", "PYTEST_"))}
        environ |= {"PYTHONPATH": f"{self.folder}{os.pathsep}{self.folder / 'cli'}"}
        return subprocess.run(
            command, cwd=self.folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def generate(self, command: str) -> None:
        """Run a target of the Makefile that generates files, on the packages that are installed."""
        self.run(*command.split(), "--old-file", "setup", f"PY={sys.executable}")

    def follow(self, recipe: Recipe) -> set[str]:
        """Make the edits of a recipe and run its commands but for the generators; return the paths that changed."""
        for block in recipe.blocks():
            text = self._filled(block.text)
            path = self.folder / self._filled(block.note)
            if block.treatment is Treatment.RUN:
                for line in text.splitlines():
                    if line not in GENERATORS:
                        self.run("sh", "-c", line)
            elif block.language == "diff":
                path.write_text(edited(path.read_text(), text, block.note))
            else:
                assert not path.exists(), f"{recipe.page}: {block.note} exists"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        return self.changed()

    def _filled(self, text: str) -> str:
        return re.sub(r"\b(LAST|NEXT)(?=_|\b)", lambda match: self._words[match[0]], text)


def _objects() -> str:
    command = ["git", "rev-parse", "--path-format=absolute", "--git-path", "objects"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def edited(text: str, diff: str, where: str) -> str:
    """Return a text with the edits of a block."""
    for before, after in _edits(diff):
        assert text.count(before) == 1, f"{where}: the lines of an edit are there {text.count(before)} times: {before}"
        text = text.replace(before, after)
    return text


def _edits(diff: str) -> Iterator[tuple[str, str]]:
    for hunk in re.split(r"^@@\n", diff, flags=re.MULTILINE):
        lines = [(line[:1] or " ", line[1:]) for line in hunk.splitlines()]
        assert all(mark in " +-" for mark, _ in lines), hunk
        yield tuple("".join(f"{text}\n" for mark, text in lines if mark in marks) for marks in (" -", " +"))  # type: ignore[misc]
