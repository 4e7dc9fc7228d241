"""Page of the settings: docs/settings.md, from `core/settings.py`; `make reference` writes it."""

import ast
import inspect
from dataclasses import fields
from datetime import timedelta

from core import settings

HEAD = """# Settings

Generated from `core/settings.py` by `make reference`. All settings are environment variables. Unknown names with
`WINDTUNNEL_` are errors, so that a misspelt setting is not ignored. Durations are in seconds, sizes in bytes, lists
separated by commas. An empty URL means: embedded, under `WINDTUNNEL_HOME`.

| variable | default | description |
|---|---|---|
"""


def page() -> str:
    """Return the page: a row for each setting, described by the comment above it."""
    texts = descriptions()
    rows = []
    for setting in fields(settings.Settings):
        default = f"`{_plain(setting.default)}`" if _plain(setting.default) else ""
        rows.append(f"| `{settings.PREFIX}{setting.name.upper()}` | {default} | {texts[setting.name]} |")
    return HEAD + "\n".join(rows) + "\n"


def descriptions() -> dict[str, str]:
    """Return the `#:` comment above each setting, by the setting's name."""
    source = inspect.getsource(settings)
    lines = source.splitlines()
    texts = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id != "PARSE":
            index, comment_lines = node.lineno - 2, list[str]()
            while (line := lines[index].strip()).startswith("#:"):
                comment_lines.insert(0, line.removeprefix("#:").strip())
                index -= 1
            texts[node.target.id] = " ".join(comment_lines).replace("``", "`")
    return texts


def _plain(value: object) -> str:
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}"
    return ",".join(value) if isinstance(value, tuple) else str(value)
