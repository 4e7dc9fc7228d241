"""Displays of records in notebooks: HTML of a few rows, with every text escaped."""

from collections.abc import Iterable
from html import escape
from typing import Any

STYLE = "font-variant-numeric:tabular-nums"


def table_html(title: str, head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return a table with a caption."""
    header = "".join(f"<th>{escape(text)}</th>" for text in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f'<table style="{STYLE}"><caption>{escape(title)}</caption><tr>{header}</tr>{body}</table>'
