"""Output of commands: aligned tables, JSON, YAML, or names, of the documents as the platform sent them."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click

from windtunnel.visible_text import visible

Document = Mapping[str, Any]
#: A column of a table: its head, and the text of a document.
Column = tuple[str, Callable[[Document], object]]

#: Colours of states and statuses on a terminal.
COLOURS = {
    "succeeded": "green",
    "ok": "green",
    "ready": "green",
    "finished": "green",
    "running": "cyan",
    "failed": "red",
    "crashed": "red",
    "timed_out": "red",
    "invalid": "red",
    "errored": "red",
    "cancelled": "yellow",
    "cancelling": "yellow",
}


def show_list(documents: Iterable[Document], columns: Sequence[Column], output: str, name: str = "id") -> None:
    """Print documents: a row, a member of an array, or a name each."""
    if output == "name":
        for document in documents:
            click.echo(visible(str(document[name])))
    elif output == "table":
        click.echo(table(columns, documents), nl=False)
    else:
        click.echo(serialised(list(documents), output))


def show_one(documents: Sequence[Document], columns: Sequence[Column], output: str, name: str = "id") -> None:
    """Print documents that were named: a line for each member of a column, or the document itself if there is one."""
    if output in {"table", "name"}:
        if output == "table" and len(documents) == 1:
            click.echo(fields(columns, documents[0]), nl=False)
        else:
            show_list(documents, columns, output, name)
    else:
        click.echo(serialised(documents[0] if len(documents) == 1 else list(documents), output))


def serialised(document: object, output: str) -> str:
    """Return a document as JSON or YAML."""
    if output == "json":
        return json.dumps(document, indent=2, ensure_ascii=False)
    import yaml

    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)).rstrip("\n")


def table(columns: Sequence[Column], documents: Iterable[Document]) -> str:
    """Return an aligned table without lines, with a head; numbers to the right."""
    rows = [[_cell(text(document)) for _, text in columns] for document in documents]
    right = [bool(rows) and all(_is_number(row[i]) for row in rows) for i in range(len(columns))]
    heads = [head.upper() for head, _ in columns]
    widths = [max([len(heads[i]), *(len(row[i]) for row in rows)]) for i in range(len(columns))]
    lines = []
    for line in (heads, *rows):
        cells = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ]
        lines.append("  ".join(coloured(cell) for cell in cells).rstrip() + "\n")
    return "".join(lines)


def fields(columns: Sequence[Column], document: Document) -> str:
    """Return the fields of a document, a line each; those without a value are left out."""
    pairs = [(head, _cell(text(document))) for head, text in columns]
    width = max(len(head) for head, _ in pairs) + 1
    return "".join(f"{head + ':':<{width}} {coloured(text)}\n" for head, text in pairs if text not in {"", "–"})


def coloured(cell: str) -> str:
    """Return a cell with the colour of the state that it is, if it is one; without colours where none are wanted."""
    colour = COLOURS.get(cell.strip())
    return click.style(cell, fg=colour) if colour else cell


def _cell(value: object) -> str:
    return visible("" if value is None else str(value)).replace("\n", " ").replace("\t", " ")


def _is_number(text: str) -> bool:
    return text in {"", "–"} or text.replace(",", "").replace(".", "", 1).removeprefix("-").isdigit()
