"""Scenarios as people write them: read as the client reads them, and bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import Invalid
from core.domain.submissions.scenario_text import LONGEST, selection_of
from windtunnel import submissions

SPANS = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 50)), min_size=1, max_size=5)


@given(SPANS, st.sampled_from([",", ", ", " ,"]))
def test_a_text_selects_what_the_same_text_selects_in_the_client(spans: list[tuple[int, int]], comma: str) -> None:
    text = comma.join(str(first) if not more else f"{first}-{first + more}" for first, more in spans)
    try:
        expected = submissions.scenarios(text)
    except submissions.WindtunnelError:
        with pytest.raises(Invalid, match="named twice"):
            selection_of(text)
    else:
        assert selection_of(text) == expected


def test_a_range_has_its_last_number_and_numbers_are_a_list() -> None:
    assert selection_of("0-3") == {"range": [0, 4]}
    assert selection_of("7") == {"tasks": [7]} and selection_of("3-3") == {"tasks": [3]}
    assert selection_of("0-1, 5") == {"tasks": [0, 1, 5]}


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "1,,2", "1.5", "1-2-3", "0x10", "²", "1" * 9, "0," * LONGEST])
def test_other_texts_are_refused_with_the_form_to_write(text: str) -> None:
    with pytest.raises(Invalid, match="write numbers and ranges, such as 0-99 or 3,5,20-29"):
        selection_of(text)


def test_a_typing_error_does_not_fill_the_memory() -> None:
    assert selection_of("0-99999999") == {"range": [0, 100_000_000]}
    with pytest.raises(Invalid, match="write a single range"):
        selection_of("1,0-99999999")
    with pytest.raises(Invalid, match="The range 3-1 ends before it begins"):
        selection_of("0,3-1")
