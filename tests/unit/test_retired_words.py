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


def test_a_longer_term_that_stays_is_not_detected_and_the_rest_of_its_line_is() -> None:
    assert list(uses("the `shelf.db` file", ["shelf"], ["shelf.db"])) == []
    assert list(uses("a shelf has a shelf.db", ["shelf"], ["shelf.db"])) == [(1, "shelf")]


def test_no_folder_may_use_retired_words_but_those_of_history() -> None:
    folders = [pattern for pattern in parse(TABLE.read_text()).exceptions if pattern.endswith("/*")]
    assert folders == ["docs/releases/*", "core/store/migrations/versions/*"]


def test_the_line_number_is_returned() -> None:
    assert list(uses("one\ntwo shelf\n", ["shelf", "crew"])) == [(2, "shelf")]


def test_the_table_has_a_replacement_for_each_word_and_an_invalid_line_is_quoted() -> None:
    table = parse(TABLE.read_text())
    assert all(table.words.values()) and table.exceptions
    with pytest.raises(ValueError, match="not 'shelf'"):
        parse("shelf\n")
