"""Commands of the documentation: the code blocks of a page, which of them are run, and the script that runs them.

A block is run if it is indented or its language is `sh` or `python`. A comment of the page before a block says
otherwise: `<!-- not run: reason -->`; `<!-- not run, lines with A or B: reason -->` if only these lines are left out;
`<!-- file: NAME -->` if the following commands use it as a file. Blocks in a language of data are shown, and parsed
where that is possible.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import yaml
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
MARK = re.compile(r"\s*<!-- (?P<kind>not run|file)(?:, lines with (?P<lines>[^:]+))?: (?P<note>.+?) -->\s*", re.DOTALL)
COMMANDS = frozenset({"sh", "python"})
#: Languages of data, and what parses them.
DATA = {"json": json.loads, "yaml": lambda text: list(yaml.safe_load_all(text)), "text": str}


class Treatment(StrEnum):
    """What the test does with a block."""

    RUN = "run"
    FILE = "file"
    NOT_RUN = "not run"
    SHOWN = "shown"


@dataclass(frozen=True, slots=True)
class Block:
    """A code block: its first line in the page, its language (`sh` if it is indented), and what the test does with it.

    ``note``: the reason why it, or ``left_out`` lines of it, are not run; or the name of the file.
    """

    line: int
    language: str
    text: str
    treatment: Treatment
    note: str = ""
    left_out: int = 0


def blocks(page: str) -> Iterator[Block]:
    """Yield the code blocks of a page in order; raise ValueError for one whose treatment does not follow."""
    mark: re.Match[str] | None = None
    for token in MarkdownIt("commonmark").enable("table").parse(page):
        if token.type == "html_block" and (match := MARK.fullmatch(token.content)):
            mark = match
        elif token.type in ("fence", "code_block"):
            language = "sh" if token.type == "code_block" else token.info.strip()
            line = (token.map or [0])[0] + 1
            yield _block(line, language, token.content, mark)
            mark = None
        elif token.type not in ("html_block", "list_item_open", "bullet_list_open"):
            if mark is not None:
                raise ValueError(f"a comment {mark['kind']!r} is not followed by a code block")


def _block(line: int, language: str, text: str, mark: re.Match[str] | None) -> Block:
    if mark is not None:
        note = " ".join(mark["note"].split())
        if mark["kind"] == "file":
            return Block(line, language, text, Treatment.FILE, note)
        if not mark["lines"]:
            return Block(line, language, text, Treatment.NOT_RUN, note)
        words = mark["lines"].split(" or ")
        kept = [part for part in text.splitlines(keepends=True) if not any(word in part for word in words)]
        left_out = len(text.splitlines()) - len(kept)
        if left_out < len(words):
            raise ValueError(f"line {line}: there are fewer lines with {mark['lines']} than words")
        return Block(line, language, "".join(kept), Treatment.RUN, note, left_out)
    if language in DATA:
        DATA[language](text)
        return Block(line, language, text, Treatment.SHOWN)
    if text.startswith("{") and _is_json(text):
        return Block(line, "json", text, Treatment.SHOWN)
    if language in COMMANDS:
        return Block(line, language, text, Treatment.RUN)
    raise ValueError(f"line {line}: a block of {language or 'no language'} is not run, and no comment says why")


def _is_json(text: str) -> bool:
    """Return whether an indented block is a JSON document, or one on each line."""
    try:
        json.loads(text)
    except ValueError:
        try:
            all(json.loads(line) for line in text.splitlines())
        except ValueError:
            return False
    return True


def script(page_blocks: list[Block], address: str, words: Mapping[str, str]) -> str:
    """Return a shell script that runs the blocks one after the other; it prints the line of each before it begins.

    ``address``: host and port in place of `localhost:5000`. ``words``: what is written for words of addresses (`ID`).
    """
    parts = ["set -euo pipefail"]
    for block in page_blocks:
        text = block.text.replace("localhost:5000", address)
        for word, value in words.items():
            text = re.sub(rf"(?<=[/=\"']){word}(?![A-Za-z0-9_])", value, text)
        if block.treatment is Treatment.FILE:
            parts.append(f"printf %s {shlex.quote(text)} > {shlex.quote(block.note)}")
        elif block.treatment is Treatment.RUN:
            parts.append(f"echo '== line {block.line}'")
            name = f"block-{block.line}.py"
            parts.append(text if block.language == "sh" else f"printf %s {shlex.quote(text)} > {name}\npython {name}")
    return "\n".join(parts) + "\n"
