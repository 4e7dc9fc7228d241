"""Limits of JSON texts: what is counted without decoding agrees with what decoding finds."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api import json_limits
from api.json_limits import excess, too_deep

TEXTS = st.text(st.sampled_from('a"\\,:[]{}\u00e4\n'), max_size=8)
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def containers_of(value: Any) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return isinstance(value, (dict, list)) + sum(map(containers_of, inner))


def members_of(value: Any) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return (len(value) if isinstance(value, dict) else 0) + sum(map(members_of, inner))


def levels_of(value: Any) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return isinstance(value, (dict, list)) + max(map(levels_of, inner), default=0)


@given(VALUES, st.integers(0, 6), st.integers(0, 6), st.integers(0, 4))
def test_texts_are_refused_exactly_if_decoding_finds_too_much(
    value: Any, containers: int, members: int, levels: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_limits, "MOST_CONTAINERS", containers)
        patch.setattr(json_limits, "MOST_MEMBERS", members)
        patch.setattr(json_limits, "MOST_LEVELS", levels)
        for ascii_only in (False, True):
            raw = json.dumps(value, ensure_ascii=ascii_only).encode()
            assert (excess(raw) is not None) is (containers_of(value) > containers or members_of(value) > members)
            if excess(raw) is None:
                assert too_deep(raw) is (levels_of(value) > levels)


@given(st.binary(max_size=60))
def test_texts_that_are_not_json_raise_nothing(raw: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_limits, "MOST_CONTAINERS", 1)
        patch.setattr(json_limits, "MOST_LEVELS", 1)
        excess(raw)
        too_deep(raw)


def test_a_string_full_of_commas_is_one_value() -> None:
    assert excess(b'{"model": "' + b",:[" * 1_000_000 + b'"}') is None
