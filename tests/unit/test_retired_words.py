"""Check of retired words: detected in identifiers and prose of any case, and nowhere else."""

import pytest

from scripts.retired_words import TABLE, parse, uses

USES = ("a shelf", "the shelfs", "shelf_index", "_shelf", "ShelfIndex", "NodeShelf", "SHELF", "SHELF_INDEX")


@pytest.mark.parametrize("text", USES)
def test_a_retired_word_is_detected(text: str) -> None:
    assert [word.removesuffix("s") for _, word in uses(text, ["shelf"])] == ["shelf"]


@pytest.mark.parametrize("text", ["bookshelf", "shelfware", "itself", "himself"])
def test_a_longer_word_that_contains_a_retired_word_is_not_detected(text: str) -> None:
    assert list(uses(text, ["shelf"])) == []


def test_the_line_number_is_returned() -> None:
    assert list(uses("one\ntwo shelf\n", ["shelf", "crew"])) == [(2, "shelf")]


def test_the_table_has_a_replacement_for_each_word_and_an_invalid_line_is_quoted() -> None:
    table = parse(TABLE.read_text())
    assert all(table.words.values()) and table.exceptions
    with pytest.raises(ValueError, match="not 'shelf'"):
        parse("shelf\n")
