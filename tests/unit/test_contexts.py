"""What an operator says of the places simulations run in: read whole, or refused with the place and what would do."""

from typing import Any

import pytest

from core.domain.executor_config import Context, parsed

WEST = {"name": "west", "kind": "kubernetes", "cores": 64, "width": 8, "grace": 30, "options": {"context": "w"}}


def test_places_are_read_in_their_order() -> None:
    west, hpc = parsed({"executors": [WEST, {"name": "hpc-1", "kind": "slurm", "cores": 128}]})
    assert west == Context(name="west", kind="kubernetes", cores=64, width=8, grace=30.0, options={"context": "w"})
    assert (hpc.name, hpc.grace, hpc.options) == ("hpc-1", 60.0, {})


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([], "one object"),
        ({"executors": []}, "at least one"),
        ({"executors": [WEST], "more": 1}, "one object"),
        ({"executors": [WEST, WEST]}, "named twice: west"),
        ({"executors": ["west"]}, r"executors\[0\] is an object"),
        ({"executors": [WEST | {"core": 1}]}, "unknown core; known are cores"),
        ({"executors": [WEST | {"name": "a b"}]}, "`name` is a word"),
        ({"executors": [WEST | {"kind": "../x"}]}, "`kind` names"),
        ({"executors": [WEST | {"cores": 0}]}, "`cores` is a whole number"),
        ({"executors": [WEST | {"cores": True}]}, "`cores` is a whole number"),
        ({"executors": [WEST | {"width": -1}]}, "`width`"),
        ({"executors": [WEST | {"grace": 0}]}, "`grace`"),
        ({"executors": [WEST | {"options": []}]}, "`options`"),
    ],
)
def test_what_cannot_be_is_refused_in_words(document: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parsed(document)


def test_a_simulation_is_as_wide_as_it_asks_for_and_as_the_place_allows() -> None:
    west, _ = parsed({"executors": [WEST, {"name": "x", "kind": "local", "cores": 2}]})
    assert [west.share(wanted) for wanted in (None, 3, 100)] == [8, 3, 8]
