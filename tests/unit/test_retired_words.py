"""Retired words are found in identifiers and prose, whatever their case, and nowhere else."""

import pytest

from scripts.retired_words import TABLE, parse, uses

FOUND = ("a shelf", "the shelfs", "shelf_index", "_shelf", "ShelfIndex", "NodeShelf", "SHELF", "SHELF_INDEX")


@pytest.mark.parametrize("text", FOUND)
def test_a_retired_word_is_found(text: str) -> None:
    assert [word.removesuffix("s") for _, word in uses(text, ["shelf"])] == ["shelf"]


@pytest.mark.parametrize("text", ["bookshelf", "shelfware", "itself", "himself"])
def test_a_word_that_only_holds_it_is_not(text: str) -> None:
    assert list(uses(text, ["shelf"])) == []


def test_the_line_is_named() -> None:
    assert list(uses("one\ntwo shelf\n", ["shelf", "crew"])) == [(2, "shelf")]


def test_the_table_has_a_replacement_for_each_word_and_a_broken_line_is_named() -> None:
    table = parse(TABLE.read_text())
    assert all(table.words.values()) and table.exceptions
    with pytest.raises(ValueError, match="not 'shelf'"):
        parse("shelf\n")
