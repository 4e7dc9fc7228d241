"""The replay player as a script and a style sheet, for pages without a server, such as a self-contained HTML report."""

import re
from pathlib import Path

#: The modules of the replay player, and the one that the others are imported from.
FOLDER = Path(__file__).parent / "static" / "replay"
ENTRY = "replay.js"

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([a-z_]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) )", re.MULTILINE)
_LEFT = re.compile(r"^(?:import|export)\b.*|\bimport\(.*", re.MULTILINE)


def script() -> str:
    """Return all modules as the text of one inline script: each after those that it imports, in a scope of their own.

    The page has it at the end of its body, so that the elements and their inline documents (a child ``<script
    type="application/json">``) are there when it runs.
    """
    parts = "\n".join(_plain(name) for name in _in_order(ENTRY))
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


def style() -> str:
    """Return the style sheet, as the text of an inline style element."""
    return inline((FOLDER / "replay.css").read_text())


def _in_order(name: str, known: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the modules that a module needs and that are not known yet, then the module itself."""
    for needed in _IMPORT.findall((FOLDER / name).read_text()):
        if needed not in known:
            known = _in_order(needed, known)
    return (*known, name)


def _plain(name: str) -> str:
    """Return a module without its imports and exports. Raise ValueError for a form that is not known here."""
    text = _EXPORT.sub("", _IMPORT.sub("", (FOLDER / name).read_text()))
    if left := _LEFT.search(text):
        raise ValueError(
            f"{name}: `{left[0]}` cannot be joined; use `import {{ names }} from` and `export` before a name"
        )
    return inline(text)


def inline(text: str) -> str:
    """Return a text that may be within an element. Raise ValueError if it would end the element."""
    if re.search(r"</(script|style)|<!--", text, re.IGNORECASE):
        raise ValueError("the text ends its element: write `<\\/script` in it")
    return text
