"""Refuse retired words in code and docs: ``python -m scripts.retired_words``, part of `make lint`.

scripts/retired_words.txt lists them, each with the word that replaced it; a word counts as a whole part of an
identifier or of prose, in any case, alone or in the plural. Lines that begin with ``keep`` have longer terms that
contain one and stay; those that begin with ``except`` name the files that may use them: translations of old names.
"""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_suffix(".txt")
#: Files that are not checked: locks, pictures, recorded responses of other programs.
IGNORED = ("*.lock", "*.sum", "*.svg", "*.json", "*.tgz", "*.zip", "*.xml", "*/crds/*", "scripts/tools/*")


@dataclass(frozen=True, slots=True)
class Table:
    """Retired words with their replacements, longer terms that stay, and patterns of the files that may use them."""

    words: Mapping[str, str]
    terms: tuple[str, ...]
    exceptions: tuple[str, ...]


def parse(text: str) -> Table:
    """Read the table: ``word -> replacement``, ``keep TERM``, ``except PATTERN``, blank lines and comments."""
    words, terms, exceptions = {}, [], []
    for line in text.splitlines():
        content = line.partition("#")[0].strip()
        if content.startswith("except "):
            exceptions.append(content.removeprefix("except ").strip())
        elif content.startswith("keep "):
            terms.append(content.removeprefix("keep ").strip())
        elif content:
            word, arrow, replacement = content.partition(" -> ")
            if not arrow:
                kinds = "`word -> replacement`, `keep TERM` or `except PATTERN`"
                raise ValueError(f"{TABLE.name}: a line is {kinds}, not {content!r}")
            words[word.strip()] = replacement.strip()
    return Table(words, tuple(terms), tuple(exceptions))


def uses(text: str, words: Iterable[str], terms: Iterable[str] = ()) -> Iterator[tuple[int, str]]:
    """Yield the number of each line with a retired word outside of ``terms``, and the word.

    ``ShelfIndex`` and ``_shelf`` both use shelf.
    """
    lower, title, upper = ("|".join(change(word) for word in words) for change in (str.lower, str.title, str.upper))
    pattern = re.compile(
        rf"(?<![A-Za-z])(?:{lower})s?(?![a-z])"  # prose, snake case, the first part of camel case
        rf"|(?<![A-Z])(?:{title})s?(?![a-z])"  # any part of camel case
        rf"|(?<![A-Za-z])(?:{upper})S?(?![A-Za-z])"
    )
    kept = re.compile("|".join(map(re.escape, terms)) or r"(?!)")
    for number, line in enumerate(text.splitlines(), 1):
        for match in pattern.finditer(kept.sub("", line)):
            yield number, match[0].lower()


def main() -> int:
    """Print every use of a retired word and return 1 if there is one."""
    table = parse(TABLE.read_text())
    output = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    count = 0
    for name in filter(None, output.split("\0")):
        path = ROOT / name
        if (
            path.is_symlink()
            or not path.is_file()
            or any(fnmatch(name, pattern) for pattern in (*IGNORED, *table.exceptions))
        ):
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, word in uses(text, table.words, table.terms):
            replacement = table.words.get(word) or table.words.get(word.removesuffix("s"), "")
            print(f"{name}:{number}: `{word}` is retired; use: {replacement}")
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
