"""Output of the command line: aligned tables, JSON and YAML that cannot act on a terminal, figures for people."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from windtunnel import figures, output, tables
from windtunnel.commands.sweep import sweep_table
from windtunnel.errors import WindtunnelError
from windtunnel.records import Dataset
from windtunnel.visible_text import visible

#: Texts of users: any script, wide characters, combining marks, and what would act on a terminal.
TEXTS = st.text(st.characters() | st.sampled_from("日本\u0301\x1b\x9b\u202e\n\t–"), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
COLUMNS: list[output.Column] = [
    ("name", lambda row: row["name"]),
    ("tasks", lambda row: row["tasks"]),
    ("title", lambda row: row["title"]),
]
ROWS = st.lists(st.fixed_dictionaries({"name": TEXTS, "tasks": st.integers(), "title": TEXTS}), min_size=1, max_size=5)


@given(ROWS)
def test_columns_are_aligned_whatever_their_texts(rows: list[dict[str, Any]]) -> None:
    columns: list[output.Column] = [*COLUMNS[:2], ("end", lambda row: "|")]
    head, *lines = output.table(columns, rows).splitlines()
    assert head.endswith("END")
    assert len(lines) == len(rows)
    assert len({cell_len(line) for line in lines}) == 1
    assert all(line.endswith("  |") for line in lines)


@given(ROWS, st.integers(30, 100))
def test_no_character_of_a_table_acts_on_the_terminal(rows: list[dict[str, Any]], width: int) -> None:
    for text in (output.table(COLUMNS, rows), output.table(COLUMNS, rows, width)):
        assert visible(text) == text
        assert text.count("\n") == len(rows) + 1


@given(st.lists(st.fixed_dictionaries({"name": st.just("x"), "tasks": st.just(1), "title": TEXTS}), min_size=1))
def test_the_last_column_is_cut_to_the_terminal(rows: list[dict[str, Any]]) -> None:
    assert all(cell_len(line) <= 30 for line in output.table(COLUMNS, rows, 30).splitlines())


def test_a_cut_text_says_so() -> None:
    text = output.table(COLUMNS, [{"name": "x", "tasks": 1, "title": "a title that is long"}], 24)
    assert text == "NAME  TASKS  TITLE\nx         1  a title th…\n"


def test_numbers_are_to_the_right_and_empty_cells_are_no_text() -> None:
    rows: list[output.Document] = [
        {"name": "a", "tasks": 5, "title": "-"},
        {"name": "b", "tasks": None, "title": "-"},
        {"name": "c", "tasks": 1000, "title": "-"},
    ]
    assert [line[6:11] for line in output.table(COLUMNS, rows).splitlines()] == ["TASKS", "    5", "     ", " 1000"]


@given(VALUES)
def test_json_has_the_values_and_no_active_character(value: Any) -> None:
    text = output.serialised(value, "json")
    assert visible(text) == text
    assert json.loads(text) == value


@given(VALUES)
def test_yaml_has_the_values_and_no_active_character(value: Any) -> None:
    text = output.serialised(value, "yaml")
    assert visible(text) == text
    assert yaml.safe_load(text) == value


def test_only_a_single_document_that_was_named_is_no_array(capsys: pytest.CaptureFixture[str]) -> None:
    columns: list[output.Column] = [("id", lambda row: row["id"])]
    output.show_one([{"id": "a"}], columns, "json")
    assert json.loads(capsys.readouterr().out) == {"id": "a"}
    output.show_one([{"id": "a"}, {"id": "b"}], columns, "json")
    assert json.loads(capsys.readouterr().out) == [{"id": "a"}, {"id": "b"}]
    output.show_list([], columns, "json")
    assert json.loads(capsys.readouterr().out) == []
    output.show_list([{"id": "a"}], columns, "name")
    assert capsys.readouterr().out == "a\n"


def test_a_table_without_rows_prints_nothing_for_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_list([], COLUMNS, "table")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "There are none.\n"


def test_fields_without_a_value_are_left_out() -> None:
    columns: list[output.Column] = [("id", lambda row: row["id"]), ("reason", lambda row: row["reason"])]
    assert output.fields(columns, {"id": "a", "reason": None}) == "id:     a\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"), (True, "True"), ("x", "x"), (0, "0"), (1234567, "1,234,567"), (0.0, "0.000"), (1.0, "1.000"),
        (99.999, "100.00"), (123.456, "123.5"), (1234.5, "1,234"), (1e-4, "0.0001"), (-0.5, "-0.500"), (1e9, "1e+09"),
        (float("nan"), "nan"), (float("inf"), "inf"),
    ],
)  # fmt: skip
def test_numbers_have_four_significant_digits(value: object, text: str) -> None:
    assert figures.number(value) == text


@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_a_share_is_100_percent_only_if_it_is_the_whole(part: int, whole: int) -> None:
    assert (figures.percent(part, whole) == "100 %") == (part == whole) or part > whole
    assert figures.percent(1, 0) == "–"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0.0 s"),
        (9.94, "9.9 s"),
        (12.3, "12 s"),
        (75, "1m15s"),
        (3599.6, "1h00m"),
        (90000, "25h00m"),
        (200000, "2d07h"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert figures.seconds(seconds) == text


def test_ages_are_whole_seconds_and_never_negative() -> None:
    now = datetime(2026, 11, 26, tzinfo=UTC)
    assert figures.age(now - timedelta(seconds=8), now) == "8 s"
    assert figures.age(now + timedelta(seconds=8), now) == "0 s"
    assert figures.age(None) == "–"


@pytest.mark.parametrize(
    ("count", "text"), [(None, "–"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")]
)
def test_sizes(count: int | None, text: str) -> None:
    assert figures.size(count) == text


@pytest.mark.parametrize(
    ("name", "format"),
    [("a.parquet", "parquet"), ("a.PQ", "parquet"), ("a.csv", "csv"), ("a.ndjson", "ndjson"), ("a.json", "ndjson")],
)
def test_the_suffix_of_a_file_is_its_format(name: str, format: str) -> None:
    assert tables.format_of(Path(name)) == format


def test_another_suffix_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(WindtunnelError, match=r"ends in \.ndjson"):
        tables.format_of(Path("results.xlsx"))


def test_a_draft_replaces_the_file_at_the_end_only(tmp_path: Path) -> None:
    file = tmp_path / "results.csv"
    file.write_text("old")
    with pytest.raises(RuntimeError), tables.draft_of(file) as draft:
        draft.write(b"half")
        raise RuntimeError
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]
    with tables.draft_of(file) as draft:
        draft.write(b"half")
        tables.rewind(draft)
        draft.write(b"new")
    assert file.read_text() == "new"


def test_a_missing_folder_and_a_missing_library_are_errors_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(WindtunnelError, match="There is no folder"), tables.draft_of(tmp_path / "no" / "a.csv"):
        pass
    with pytest.raises(WindtunnelError, match=r"pip install 'windtunnel\[polars\]'"):
        tables.library("no_such_library", "polars")


def test_a_sweep_of_a_program_shows_the_means_of_the_metrics_that_it_printed() -> None:
    statistics = {"mean": 0.25, "low": 0.0, "high": 1.0}
    row = {"tasks": {"done": 2, "failed": 0}, "outcomes": {}, "metrics": {"error": statistics, "cells": statistics}}
    rows = [{**row, "params": {"points": points}} for points in (8, 16)]
    table = sweep_table({"parameters": ["points"], "rows": rows}, Dataset(name="program", state="ready"))
    assert table.splitlines()[0].split() == ["POINTS", "TASKS", "FAILURES", "CELLS", "ERROR"]
    assert table.splitlines()[1].split() == ["8", "2", "0", "0.250", "0.250"]
