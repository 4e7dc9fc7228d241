"""Output of commands: aligned tables, JSON, YAML, or names, of the documents as the platform sent them."""

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import click

from windtunnel.visible_text import is_visible, visible, visible_json

Document = Mapping[str, Any]
#: A column of a table: its head, and the member of a document that it shows, if there, or what it shows of it.
Column = tuple[str, str | Callable[[Document], object]]


class Described(Protocol):
    """A record, with the document that it was read from."""

    @property
    def raw(self) -> Document:
        """The document."""


D = TypeVar("D", bound=Described)
#: A column of a table of records: its head, and what it shows of a record.
RecordColumn = tuple[str, Callable[[D], object]]
#: Columns of a terminal that the last column of a table keeps, however narrow the terminal.
LEAST_WIDTH = 10

#: Colours of states and statuses on a terminal. The end of a run says nothing of how good its model is, and has none.
COLOURS = {
    "ok": "green",
    "ready": "green",
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
        show_table(columns, documents)
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


def show_records(
    records: Sequence[D], columns: Sequence[RecordColumn[D]], output: str, *, name: str = "id", named: bool = False
) -> None:
    """Print records, as `show_list` prints documents; ``named``: as `show_one` does."""
    show = show_one if named else show_list
    if output == "table":
        show(
            [{head: shown(record) for head, shown in columns} for record in records],
            [(h, h) for h, _ in columns],
            output,
        )
    else:
        show([record.raw for record in records], (), output, name)


def serialised(document: object, output: str) -> str:
    """Return a document as JSON or YAML; a character that could act on a terminal is escaped, its value stays."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    if output == "json":
        return visible_json(text)
    import yaml

    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=is_visible(text), width=120)).rstrip("\n")


def show_table(columns: Sequence[Column], documents: Iterable[Document]) -> None:
    """Print a table, as wide as the terminal if there is one; without rows, say so, and not to a pipe."""
    rows = list(documents)
    if rows:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        click.echo(table(columns, rows, width), nl=False)
    else:
        click.echo("There are none.", err=True)


def table(columns: Sequence[Column], documents: Iterable[Document], width: int | None = None) -> str:
    """Return an aligned table without lines, with a head; numbers to the right.

    ``width`` is that of the terminal: the texts of the last column are cut to fit.
    """
    rows = [[_cell(document, shown) for _, shown in columns] for document in documents]
    right = [bool(rows) and all(_is_number(row[i]) for row in rows) for i in range(len(columns))]
    heads = [head.upper() for head, _ in columns]
    widths = [max([_width(heads[i]), *(_width(row[i]) for row in rows)]) for i in range(len(columns))]
    if width is not None and not right[-1]:
        widths[-1] = min(widths[-1], max(width - sum(widths[:-1]) - 2 * (len(widths) - 1), LEAST_WIDTH))
        rows = [[*row[:-1], _cut(row[-1], widths[-1])] for row in rows]
    lines = []
    for line in (heads, *rows):
        cells = [
            " " * (size - _width(cell)) + cell if to_right else cell + " " * (size - _width(cell))
            for cell, size, to_right in zip(line, widths, right, strict=True)
        ]
        lines.append("  ".join(coloured(cell) for cell in cells).rstrip() + "\n")
    return "".join(lines)


def fields(columns: Sequence[Column], document: Document) -> str:
    """Return the fields of a document, a line each; those without a value are left out."""
    pairs = [(head, _cell(document, shown)) for head, shown in columns]
    width = max(len(head) for head, _ in pairs) + 1
    return "".join(f"{head + ':':<{width}} {coloured(text)}\n" for head, text in pairs if text not in {"", "–"})


def coloured(cell: str) -> str:
    """Return a cell with the colour of the state that it is, if it is one; without colours where none are wanted."""
    colour = COLOURS.get(cell.strip())
    return click.style(cell, fg=colour) if colour else cell


def _cell(document: Document, shown: str | Callable[[Document], object]) -> str:
    value = document.get(shown) if isinstance(shown, str) else shown(document)
    return visible("" if value is None else str(value)).replace("\n", " ").replace("\t", " ")


def _width(text: str) -> int:
    """Return the columns of a terminal that a text takes: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _cut(text: str, width: int) -> str:
    if _width(text) <= width:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1).rstrip() + "…"


def _is_number(text: str) -> bool:
    return text in {"", "–"} or text.replace(",", "").replace(".", "", 1).removeprefix("-").isdigit()
