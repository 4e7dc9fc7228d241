"""Indented JSON has the text of the standard library, on which the recorded sizes of archives depend."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.results.indented_json import indented

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
documents = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@given(documents)
def test_a_document_has_the_text_of_the_standard_library(document: object) -> None:
    assert indented(document) == json.dumps(document, indent=2, sort_keys=True)


@pytest.mark.parametrize(
    "document", [{}, [], {"a": {}, "b": []}, "\ud800", float("nan"), [1e16, -0.0, 2**70], "\u2028é"]
)
def test_so_have_empty_parts_odd_numbers_and_half_characters(document: object) -> None:
    assert indented(document) == json.dumps(document, indent=2, sort_keys=True)
