"""Write docs/settings.md from `core/settings.py`: `python -m scripts.settings`."""

import ast
import inspect
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

from core import settings

PAGE = Path("docs/settings.md")
HEAD = """# Settings

Drawn from `core/settings.py` by `python -m scripts.settings`; a test holds the two together. All are environment
variables. An unknown `WINDTUNNEL_` name is an error, for a misspelt setting is a silent one. Durations are seconds,
sizes bytes, lists separated by commas. An empty URL means: embedded, under `WINDTUNNEL_HOME`.

| variable | default | what it is |
|---|---|---|
"""


def page() -> str:
    """Return the page: a row for each setting, its words from the comment above it."""
    words = said()
    rows = []
    for one in fields(settings.Settings):
        shown = f"`{_plain(one.default)}`" if _plain(one.default) else ""
        rows.append(f"| `{settings.PREFIX}{one.name.upper()}` | {shown} | {words[one.name]} |")
    return HEAD + "\n".join(rows) + "\n"


def said() -> dict[str, str]:
    """Return what the `#:` comment above each setting says."""
    source = inspect.getsource(settings)
    lines = source.splitlines()
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id != "PARSE":
            at, words = node.lineno - 2, list[str]()
            while (line := lines[at].strip()).startswith("#:"):
                words.insert(0, line.removeprefix("#:").strip())
                at -= 1
            found[node.target.id] = " ".join(words).replace("``", "`")
    return found


def _plain(value: object) -> str:
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}"
    return ",".join(value) if isinstance(value, tuple) else str(value)


if __name__ == "__main__":
    PAGE.write_text(page())
