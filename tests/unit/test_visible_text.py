"""Untrusted text is inert: on a terminal, in a spreadsheet's cell, in a line of a log."""

import io
import json
import logging
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from api.escaping import spreadsheet_text
from api.tabular import as_csv
from runtimes.harness.evaluator.result_batch import unworldly
from runtimes.harness.visible_text import visible
from server.local import demo_report
from server.logs import JsonFormatter
from windtunnel import visible_text

TEXT = st.text(
    st.characters(codec=None) | st.sampled_from("\x1b\x9b\u202e\u200b\u2028\ufeff\t\r\n=+-@;\"'\uff1d\u3000")
)
#: A title for the terminal, a text that runs backwards, and a word with an invisible part.
HOSTILE = "\x1b]0;owned\x07\u202egnp.exe\u2069 pass\u200bword\u2028next\x9b2J"


@given(TEXT)
def test_visible_text_has_no_control_and_no_format_characters_but_tabs_and_line_feeds(text: str) -> None:
    shown = visible(text)
    active = {char for char in shown if unicodedata.category(char) in {"Cc", "Zl", "Zp", "Cs"}} - {"\t", "\n"}
    assert not active
    assert not {char for char in shown if unicodedata.bidirectional(char) in {"RLO", "LRO", "RLI", "PDI", "RLE", "BN"}}
    assert visible(shown) == shown
    shown.encode()


def test_text_of_any_language_stays_as_it_is() -> None:
    text = "日本語 ÄÖÜ עברית العربية 😀\tdone\n"
    assert visible(text) == text


@given(TEXT)
def test_no_cell_begins_like_a_formula_in_any_dialect(text: str) -> None:
    shown = spreadsheet_text(text)
    for cell in shown.replace("|", ";").replace("\n", ";").split(";"):
        assert is_number(shown) or cell.strip().strip('"').strip()[:1] not in set("=+-@＝＋－＠")


def is_number(text: str) -> bool:
    try:
        return bool(text) and isinstance(json.loads(text), int | float)
    except ValueError:
        return text.strip("-").isdigit()


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("  \u3000=1+1", "'  \u3000=1+1"),
        ("\uff1d1+1", "'\uff1d1+1"),
        ("a;=1+1", "a;'=1+1"),
        ("\t=1", "\\t=1"),
        ("\r\n@SUM(A1)", "\\x0d\n'@SUM(A1)"),
        ("-3.5e-7", "-3.5e-7"),
        ("x = y - 1", "x = y - 1"),
    ],
)
def test_a_formula_becomes_text_and_everything_else_stays(text: str, cell: str) -> None:
    assert spreadsheet_text(text) == cell


def test_the_words_of_a_model_are_inert_in_errors_csv_report_and_logs() -> None:
    shown = "\\x1b]0;owned\\x07\\u202egnp.exe\\u2069 pass\\u200bword\\u2028next\\x9b2J"
    assert unworldly(HOSTILE) == shown
    line: dict[str, Any] = {"task": 0, "status": "failed", "error": HOSTILE, "metrics": {}, "scenario": {"index": 0}}
    table = b"".join(as_csv(lambda: [json.dumps(line).encode()])).decode()
    assert shown in table
    console = Console(file=io.StringIO(), width=300, force_terminal=False)
    console.print(demo_report.worst_table([line]))
    assert shown in console.file.getvalue()  # type: ignore[attr-defined]
    record = logging.LogRecord("x", logging.WARNING, "", 0, "the model says %s", (HOSTILE,), None)
    assert json.loads(JsonFormatter("api").format(record))["message"] == f"the model says {shown}"


@given(TEXT)
def test_the_client_which_is_installed_without_the_server_shows_the_same_text(text: str) -> None:
    assert visible_text.visible(text) == visible(text)
