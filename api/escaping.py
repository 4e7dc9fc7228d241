"""Escaping of untrusted text where it leaves as text: logs for terminals, and cells for spreadsheets."""

import re
from collections.abc import Iterable, Iterator

from runtimes.harness.visible_text import visible

#: Where a spreadsheet may see the beginning of a formula: at a cell's beginning, or behind a separator of another
#: dialect (semicolon, tab, bar, new line), behind quotes and white space of any width; half-width or full-width signs.
_FORMULA = re.compile(r"(?:^|(?<=[;\t\n|]))(?=[\s\"]*[=+\-@\uff1d\uff0b\uff0d\uff20])")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")


def escaped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Escape chunks of whole lines; bytes that are not UTF-8 become ``\\xNN``."""
    for chunk in chunks:
        yield visible(chunk.decode("utf-8", "backslashreplace")).encode()


def spreadsheet_text(text: str) -> str:
    """Return the text of a cell that neither a spreadsheet evaluates nor a terminal obeys.

    An apostrophe goes before whatever could be a formula (OWASP, CSV injection); a number stays one.
    """
    return text if _NUMBER.fullmatch(text) else _FORMULA.sub("'", visible(text).replace("\t", "\\t"))
